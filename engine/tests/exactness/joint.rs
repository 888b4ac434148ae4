//! Steps composed into texts: what is emitted with drafts against what the target gives.
//!
//! Neighbours: `branches.rs` enumerates, `drafter.rs` drafts, the rule under test verifies.

use std::collections::BTreeMap;

use forerun_engine::{Drafted, Verdicts, verify_block, verify_rejection};

use crate::branches::{Branches, enumerate};
use crate::drafter::{Drafter, text_behind};
use crate::world::World;

/// Acceptance under test.
pub(crate) type Rule<'a> = &'a dyn Fn(Drafted<'_>, &mut Branches) -> Verdicts;

pub(crate) const REJECTION: Rule<'static> = &|drafted, chance| verify_rejection(drafted, chance);
pub(crate) const BLOCK: Rule<'static> = &|drafted, chance| verify_block(drafted, chance);

/// What is emitted with drafts has to have this distribution, within [`ERROR_MAX`].
pub(crate) const ERROR_MAX: f64 = 1e-12;

/// Probability of each text of `len` tokens, and of shorter ones behind which nothing is finite.
pub(crate) type Texts = BTreeMap<Vec<u32>, f64>;

/// Outcomes of one step behind `text`: what it emits, how many drafts it accepts.
fn step(
    target: &World,
    drafter: &Drafter<'_>,
    rule: Rule<'_>,
    text: &[u32],
) -> Vec<(f64, Emitted)> {
    let mut outcomes = Vec::new();
    for (drafted_with, draft) in enumerate(|chance| drafter.draft(text, chance)) {
        let drafted = Drafted {
            tree: &draft.tree,
            target: &|node| target.distribution(&text_behind(text, &draft.tree, node)),
            draft: &|row| &draft.rows[row as usize],
        };
        for (verified_with, verdicts) in enumerate(|chance| rule(drafted, chance)) {
            let emitted = Emitted {
                tokens: verdicts.tokens(&draft.tree).iter().map(|t| t.0).collect(),
                num_accepted: verdicts.path.len(),
                is_broken: verdicts.final_token.is_none(),
            };
            outcomes.push((drafted_with * verified_with, emitted));
        }
    }
    outcomes
}

struct Emitted {
    tokens: Vec<u32>,
    num_accepted: usize,
    is_broken: bool,
}

/// Texts as steps with drafts emit them.
pub(crate) fn emitted(target: &World, drafter: &Drafter<'_>, rule: Rule<'_>, len: usize) -> Texts {
    let mut ended = Texts::new();
    let mut open = Texts::from([(Vec::new(), 1.0)]);
    // The shortest first: a step makes texts longer, so that each text is gone on with once.
    for open_len in 0..len {
        let (going, rest): (Texts, Texts) = open
            .into_iter()
            .partition(|(text, _)| text.len() == open_len);
        open = rest;
        for (text, probability) in going {
            for (outcome, emitted) in step(target, drafter, rule, &text) {
                let mut longer = [&text[..], &emitted.tokens].concat();
                let is_ended = emitted.is_broken && longer.len() < len;
                longer.truncate(len);
                let texts = if is_ended { &mut ended } else { &mut open };
                *texts.entry(longer).or_default() += probability * outcome;
            }
        }
    }
    for (text, probability) in open {
        *ended.entry(text).or_default() += probability;
    }
    ended
}

/// Texts as the target alone gives them.
fn plain(target: &World, len: usize) -> Texts {
    let mut ended = Texts::new();
    let mut open = vec![Vec::new()];
    while let Some(text) = open.pop() {
        let next = (text.len() < len)
            .then(|| target.distribution(&text))
            .flatten();
        match next {
            None => {
                ended.insert(text.clone(), target.joint(&text));
            }
            Some(distribution) => {
                let tokens = (0..distribution.len()).filter(|&token| distribution[token] > 0.0);
                open.extend(tokens.map(|token| [&text[..], &[token as u32]].concat()));
            }
        }
    }
    ended
}

/// The greatest difference of a text's probability from what the target gives it.
pub(crate) fn distance(found: &Texts, target: &World, len: usize) -> f64 {
    let expected = plain(target, len);
    let of = |texts: &Texts, text| texts.get(text).copied().unwrap_or(0.0);
    let texts = found.keys().chain(expected.keys());
    let errors = texts.map(|text| (of(found, text) - of(&expected, text)).abs());
    errors.fold(0.0, f64::max)
}

/// The same for texts emitted with drafts.
pub(crate) fn joint_error(
    target: &World,
    drafter: &Drafter<'_>,
    rule: Rule<'_>,
    len: usize,
) -> f64 {
    distance(&emitted(target, drafter, rule, len), target, len)
}

/// Drafts accepted on average in the step behind `text`.
pub(crate) fn mean_accepted(
    target: &World,
    drafter: &Drafter<'_>,
    rule: Rule<'_>,
    text: &[u32],
) -> f64 {
    let outcomes = step(target, drafter, rule, text);
    let accepted = outcomes
        .iter()
        .map(|(p, emitted)| p * emitted.num_accepted as f64);
    accepted.sum()
}
