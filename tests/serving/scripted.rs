//! A drafter that knows what will come, and says as much of it as its script wants.
//!
//! Neighbours: `speculation.rs` runs models with it.

use forerun_engine::{DraftContext, DraftTree, Drafter, SeqId, TokenId};

/// What it makes of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// Everything that comes.
    Right,
    /// Nothing of it.
    Wrong,
    /// Right up to a token that changes from step to step.
    Mixed,
    /// Branches of every shape, some right.
    Tree,
}

#[derive(Debug)]
pub(crate) struct ScriptedDrafter {
    pub(crate) script: Script,
    /// Whole sequences: prompts with what followed.
    pub(crate) answers: Vec<Vec<TokenId>>,
    pub(crate) vocab_size: usize,
}

impl ScriptedDrafter {
    fn rest(&self, tokens: &[TokenId]) -> Vec<TokenId> {
        let answer = self.answers.iter().find(|a| a.starts_with(tokens));
        answer.map_or(Vec::new(), |a| a[tokens.len()..].to_vec())
    }

    fn other(&self, step: usize, i: usize, than: Option<TokenId>) -> TokenId {
        let id = (step * 31 + i * 17 + 5) % self.vocab_size;
        let token = TokenId(id as u32);
        if Some(token) == than {
            TokenId(((id + 1) % self.vocab_size) as u32)
        } else {
            token
        }
    }
}

impl Drafter for ScriptedDrafter {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn draft(&mut self, context: &DraftContext<'_>, draft: &mut DraftTree) -> usize {
        let step = context.tokens.len();
        let rest = self.rest(context.tokens);
        let num_max = context.num_nodes_max;
        let wrong = |i: usize| self.other(step, i, rest.get(i).copied());
        match self.script {
            Script::Right => drop(draft.push_chain(None, rest.into_iter().take(num_max))),
            Script::Wrong => drop(draft.push_chain(None, (0..num_max).map(wrong))),
            Script::Mixed => {
                let num_right = step % (num_max + 1);
                let tokens = (0..num_max).map(|i| match rest.get(i) {
                    Some(&token) if i < num_right => token,
                    _ => wrong(i),
                });
                draft.push_chain(None, tokens);
            }
            Script::Tree => {
                let (mut right, mut depth) = (None, 0);
                for i in 0..num_max {
                    match rest.get(depth) {
                        Some(&token) if !(step + i).is_multiple_of(3) => {
                            right = Some(draft.push(right, token));
                            depth += 1;
                        }
                        _ => {
                            let parent = (step * 7 + i * 3) % (draft.len() + 1);
                            let parent = (parent as u32).checked_sub(1);
                            draft.push(parent, self.other(step, i, None));
                        }
                    }
                }
            }
        }
        0
    }

    fn forget(&mut self, _seq: SeqId, _tenant: Option<&str>, _output: &[TokenId]) {}
}
