//! Drafts from everything that came before: the request's own text, and earlier outputs of its tenant.
//!
//! Neighbours: a [`Drafter`] of `speculator.rs`; `automaton.rs` is the index. Source: Oliaro et al.,
//! "SuffixDecoding", arXiv 2411.04975.
//!
//! The longest suffix of the text that came before is continued with what came behind it, most frequent
//! first: a token is as likely as its share of the occurrences, a path as the product of its tokens.

use std::collections::BTreeMap;

use super::automaton::{Automaton, ROOT, State};
use super::{DraftContext, DraftTree, Drafter};
use crate::{SeqId, TokenId};

/// Shorter matches say too little.
const MATCH_LEN_MIN: usize = 2;
/// Guesses per matched token: what is long alike stays alike for long.
const GUESSES_PER_MATCHED_TOKEN: usize = 3;
/// Paths less likely than this are not worth a row: a row costs a tenth of a pass or more.
const PROBABILITY_MIN: f64 = 0.1;
/// Tokens kept of a tenant: two generations of half as many; some 200 bytes each.
const TENANT_TOKENS_MAX: usize = 1 << 16;
/// Tenants kept; whoever was idle the longest goes first.
const TENANTS_MAX: usize = 64;

/// Drafts from an index of suffixes.
#[derive(Debug, Default)]
pub struct SuffixDrafter {
    sequences: Vec<Option<SequenceIndex>>,
    tenants: BTreeMap<Option<String>, TenantIndex>,
    clock: u64,
}

/// One sequence's own text, and where it stands in its tenant's.
#[derive(Debug)]
struct SequenceIndex {
    own: Automaton,
    num_indexed: usize,
    /// In the tenant's generations, as they were when it began.
    matches: [(State, usize); 2],
    generation: u64,
}

/// Earlier outputs: those that fill up, and those before them.
#[derive(Debug)]
struct TenantIndex {
    generations: [Automaton; 2],
    /// Times that the generations changed.
    num_changes: u64,
    last_used: u64,
}

impl TenantIndex {
    fn new() -> Self {
        Self {
            generations: [Automaton::new(), Automaton::new()],
            num_changes: 0,
            last_used: 0,
        }
    }

    fn add(&mut self, output: &[TokenId]) {
        if self.generations[0].num_tokens() + output.len() > TENANT_TOKENS_MAX / 2 {
            self.generations.swap(0, 1);
            self.generations[0] = Automaton::new();
            self.num_changes += 1;
        }
        self.generations[0].begin_text();
        let end = output.len().min(TENANT_TOKENS_MAX / 2);
        for &token in &output[..end] {
            self.generations[0].push(token);
        }
    }
}

/// A guess that may be taken.
#[derive(Clone, Copy)]
struct Open {
    parent: Option<u32>,
    token: TokenId,
    state: State,
    probability: f64,
    depth: usize,
}

impl SuffixDrafter {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Brings a sequence's index up to date.
    fn index(&mut self, context: &DraftContext<'_>) {
        let index = context.seq.index();
        if self.sequences.len() <= index {
            self.sequences.resize_with(index + 1, || None);
        }
        let sequence = self.sequences[index].get_or_insert_with(|| SequenceIndex {
            own: Automaton::new(),
            num_indexed: 0,
            matches: [(ROOT, 0); 2],
            generation: 0,
        });
        let tenant = self.tenants.get(&context.tenant.map(str::to_owned));
        if let Some(tenant) = tenant
            && tenant.num_changes != sequence.generation
        {
            sequence.matches = [(ROOT, 0); 2];
            sequence.generation = tenant.num_changes;
        }
        for &token in &context.tokens[sequence.num_indexed..] {
            sequence.own.push(token);
            if let Some(tenant) = tenant {
                for (found, automaton) in sequence.matches.iter_mut().zip(&tenant.generations) {
                    *found = automaton.advance(*found, token);
                }
            }
        }
        sequence.num_indexed = context.tokens.len();
    }
}

/// Grows the draft from a matched state, the likeliest guess first.
fn grow(
    automaton: &Automaton,
    (state, match_len): (State, usize),
    context: &DraftContext<'_>,
    draft: &mut DraftTree,
) {
    let start = context.assumed.len();
    let depth_max = (match_len * GUESSES_PER_MATCHED_TOKEN).min(context.depth_max - start);
    let mut open: Vec<Open> = Vec::new();
    let expand = |open: &mut Vec<Open>, parent, state, probability: f64, depth| {
        let total: u32 = automaton
            .following(state)
            .map(|(_, s)| automaton.count(s))
            .sum();
        let first = open.len();
        open.extend(automaton.following(state).map(|(token, next)| Open {
            parent,
            token,
            state: next,
            probability: probability * f64::from(automaton.count(next)) / f64::from(total),
            depth,
        }));
        // Of equals the lowest token: the order of a map.
        open[first..].sort_by(|a, b| b.probability.total_cmp(&a.probability));
        open.truncate(first + context.width_max);
    };
    expand(&mut open, context.after, state, 1.0, 1);
    while draft.len() < context.num_nodes_max {
        let likeliest = (0..open.len()).max_by(|&a, &b| {
            let by_probability = open[a].probability.total_cmp(&open[b].probability);
            by_probability.then(b.cmp(&a))
        });
        let Some(likeliest) = likeliest else { return };
        let guess = open.swap_remove(likeliest);
        if guess.probability < PROBABILITY_MIN || guess.depth > depth_max {
            continue;
        }
        let node = draft.push(guess.parent, guess.token);
        expand(
            &mut open,
            Some(node),
            guess.state,
            guess.probability,
            guess.depth + 1,
        );
    }
}

impl Drafter for SuffixDrafter {
    fn name(&self) -> &'static str {
        "suffix"
    }

    fn draft(&mut self, context: &DraftContext<'_>, draft: &mut DraftTree) -> usize {
        self.index(context);
        let sequence = self.sequences[context.seq.index()].as_ref();
        let Some(sequence) = sequence else { return 0 };
        if context.assumed.len() >= context.depth_max {
            return 0;
        }
        let own = sequence.own.repeated_suffix();
        let mut best = (&sequence.own, (own, sequence.own.len(own)));
        let advanced = |automaton: &Automaton, found| {
            let assumed = context.assumed.iter();
            assumed.fold(found, |found, &token| automaton.advance(found, token))
        };
        best.1 = advanced(best.0, best.1);
        if let Some(tenant) = self.tenants.get(&context.tenant.map(str::to_owned)) {
            for (found, automaton) in sequence.matches.iter().zip(&tenant.generations) {
                let found = advanced(automaton, *found);
                // The request's own text outranks others at equal length.
                if found.1 > best.1.1 {
                    best = (automaton, found);
                }
            }
        }
        if best.1.1 < MATCH_LEN_MIN {
            return 0;
        }
        grow(best.0, best.1, context, draft);
        best.1.1
    }

    fn forget(&mut self, seq: SeqId, tenant: Option<&str>, output: &[TokenId]) {
        if let Some(index) = self.sequences.get_mut(seq.index()) {
            *index = None;
        }
        if output.is_empty() {
            return;
        }
        self.clock += 1;
        let clock = self.clock;
        let key = tenant.map(str::to_owned);
        if !self.tenants.contains_key(&key) && self.tenants.len() >= TENANTS_MAX {
            let idle = self
                .tenants
                .iter()
                .min_by_key(|(_, tenant)| tenant.last_used);
            if let Some(idle) = idle.map(|(key, _)| key.clone()) {
                self.tenants.remove(&idle);
            }
        }
        let tenant = self.tenants.entry(key).or_insert_with(TenantIndex::new);
        tenant.last_used = clock;
        tenant.add(output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestId;

    fn tokens(text: &str) -> Vec<TokenId> {
        text.bytes().map(|byte| TokenId(u32::from(byte))).collect()
    }

    fn drafted(
        drafter: &mut SuffixDrafter,
        text: &str,
        tenant: Option<&str>,
        width: usize,
    ) -> DraftTree {
        let tokens = tokens(text);
        let mut draft = DraftTree::new();
        let context = DraftContext {
            seq: SeqId(0),
            request: RequestId(0),
            tenant,
            tokens: &tokens,
            num_prompt: 1,
            assumed: &[],
            after: None,
            num_nodes_max: 6,
            depth_max: 6,
            width_max: width,
        };
        drafter.draft(&context, &mut draft);
        draft
    }

    fn text(draft: &DraftTree) -> String {
        let bytes = draft.nodes().iter().map(|node| node.token.0 as u8);
        String::from_utf8(bytes.collect()).unwrap()
    }

    #[test]
    fn what_came_most_often_behind_the_longest_match_comes_first() {
        let mut drafter = SuffixDrafter::new();
        let draft = drafted(&mut drafter, " xabc xabd xabd. xab", None, 1);
        assert_eq!(text(&draft), "d xabd");
        assert!(draft.is_chain());
        drafter.forget(SeqId(0), None, &[]);
        let draft = drafted(&mut drafter, " xabc xabd xabd. xab", None, 2);
        let children: Vec<_> = draft.children(None).collect();
        let first = |index: usize| draft.nodes()[children[index] as usize].token.0 as u8;
        assert_eq!((first(0), first(1), children.len()), (b'd', b'c', 2));
        drafter.forget(SeqId(0), None, &[]);
        assert!(drafted(&mut drafter, "abcdefgh", None, 1).is_empty());
    }

    #[test]
    fn earlier_outputs_are_shared_within_a_tenant_alone() {
        let mut drafter = SuffixDrafter::new();
        drafter.forget(SeqId(3), Some("a"), &tokens("the quick brown fox"));
        for (tenant, expected) in [(Some("a"), "ck bro"), (Some("b"), ""), (None, "")] {
            let draft = drafted(&mut drafter, "a qui", tenant, 1);
            assert_eq!(text(&draft), expected, "{tenant:?}");
            drafter.forget(SeqId(0), tenant, &[]);
        }
    }

    #[test]
    fn memory_of_tenants_is_bounded() {
        let mut drafter = SuffixDrafter::new();
        for round in 0..3 * TENANTS_MAX as u32 {
            let name = format!("tenant {round}");
            drafter.forget(SeqId(0), Some(&name), &[TokenId(round)]);
        }
        assert_eq!(drafter.tenants.len(), TENANTS_MAX);
        let long: Vec<_> = (0..1000).map(TokenId).collect();
        for _ in 0..200 {
            drafter.forget(SeqId(0), Some("long"), &long);
        }
        let tenant = &drafter.tenants[&Some("long".to_owned())];
        let num_tokens: usize = tenant.generations.iter().map(Automaton::num_tokens).sum();
        assert!(num_tokens <= TENANT_TOKENS_MAX, "{num_tokens}");
    }
}
