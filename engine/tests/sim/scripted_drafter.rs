//! A drafter that knows the answer, and says as much of it as its script wants.
//!
//! Neighbours: `world.rs` tells it the answers of `oracle.rs`; the engine asks it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use forerun_engine::{DraftContext, DraftTree, Drafter, RequestId, SeqId, TokenId};

use crate::fake_model::mix;

/// Whole sequences, prompt and output, that a request comes to: one for each sample drawn.
pub(crate) type Answers = Arc<Mutex<BTreeMap<RequestId, Vec<Vec<TokenId>>>>>;

#[derive(Debug)]
pub(crate) struct ScriptedDrafter {
    pub(crate) answers: Answers,
    pub(crate) vocab_size: usize,
    pub(crate) seed: u64,
    /// What it always makes, where that is said.
    pub(crate) script: Option<Script>,
}

/// What it makes of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Nothing,
    TooLittle,
    TooMuch,
    Right,
    Wrong,
    Mixed,
    /// Right and wrong branches of any shape.
    Tree,
}

const SCRIPTS: [Script; 7] = [
    Script::Nothing,
    Script::TooLittle,
    Script::TooMuch,
    Script::Right,
    Script::Wrong,
    Script::Mixed,
    Script::Tree,
];

impl ScriptedDrafter {
    fn token(&self, hash: u64) -> TokenId {
        // Now and then one that does not exist.
        TokenId((hash % (self.vocab_size as u64 + 1)) as u32)
    }

    /// What follows, as far as it is known.
    fn rest(&self, context: &DraftContext<'_>) -> Vec<TokenId> {
        let answers = self.answers.lock().expect("nobody panicked with it");
        let answers = answers.get(&context.request).map_or(&[][..], Vec::as_slice);
        let answer = answers.iter().find(|a| a.starts_with(context.tokens));
        answer.map_or(Vec::new(), |a| a[context.tokens.len()..].to_vec())
    }
}

impl Drafter for ScriptedDrafter {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn draft(&mut self, context: &DraftContext<'_>, draft: &mut DraftTree) -> usize {
        let own = mix(self.seed, context.request.0);
        let step = mix(own, context.tokens.len() as u64);
        // Some keep to one script, others change with every step.
        let pick = if own.is_multiple_of(2) { own } else { step };
        let picked = SCRIPTS[(pick >> 8) as usize % SCRIPTS.len()];
        let script = self.script.unwrap_or(picked);
        let mut rest = self.rest(context);
        let any = |i: usize| self.token(mix(step, i as u64));
        let num_max = context.num_nodes_max;
        match script {
            Script::Nothing => {}
            Script::TooLittle => drop(draft.push_chain(None, rest.into_iter().take(1))),
            Script::TooMuch => {
                let end = rest.len();
                rest.extend((0..2 * num_max + 3).map(|i| any(i + end)));
                draft.push_chain(None, rest);
            }
            Script::Right => drop(draft.push_chain(None, rest.into_iter().take(num_max))),
            Script::Wrong => drop(draft.push_chain(None, (0..num_max).map(any))),
            Script::Mixed => {
                let wrong = step as usize % (num_max + 1);
                rest.resize(rest.len().max(wrong + 1), TokenId(0));
                rest[wrong] = any(wrong);
                draft.push_chain(None, rest.into_iter().take(num_max));
            }
            Script::Tree => {
                let mut right = None;
                let mut rest = rest.into_iter();
                for i in 0..num_max {
                    let hash = mix(step, 1000 + i as u64);
                    if hash.is_multiple_of(2) {
                        if let Some(token) = rest.next() {
                            right = Some(draft.push(right, token));
                        }
                    } else {
                        let parent = (hash >> 16) as usize % (draft.len() + 1);
                        draft.push((parent as u32).checked_sub(1), any(i));
                    }
                }
            }
        }
        0
    }

    fn forget(&mut self, _seq: SeqId, _tenant: Option<&str>, _output: &[TokenId]) {}
}
