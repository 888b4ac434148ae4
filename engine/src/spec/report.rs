//! What speculation did for one request.
//!
//! Neighbours: counted by `commit.rs`; told with the end of the request (`event.rs`).

/// Counts over all samples of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpeculationReport {
    /// Drafters that made drafts, and how many each.
    pub drafters: Vec<(&'static str, u64)>,
    /// Decode passes: steps that gave the request tokens after its prompt, with a draft or without.
    pub decode_passes: u64,
    /// Passes with a draft.
    pub drafts: u64,
    /// Tokens of all drafts.
    pub draft_tokens: u64,
    /// Those that were accepted.
    pub accepted_tokens: u64,
    /// Tokens that decode passes gave.
    pub emitted_tokens: u64,
    /// Drafts whose token at depth i + 1 was accepted.
    pub accepted_per_position: Vec<u64>,
    /// Drafts that reached to depth i + 1.
    pub drafted_per_position: Vec<u64>,
    /// Time spent on making drafts, shared by the sequences of a step.
    pub draft_us: u64,
    /// Time of its decode passes with drafts, shared by the sequences of a step.
    pub verify_us: u64,
    /// Drafts that a model failed to make.
    pub failures: u64,
    /// Why there was no speculation although it was asked for.
    pub refused: Option<&'static str>,
}

impl SpeculationReport {
    /// Accepted draft tokens of all; 0 without drafts.
    pub fn acceptance_rate(&self) -> f64 {
        ratio(self.accepted_tokens, self.draft_tokens)
    }

    /// Tokens per decode pass, those without drafts counted; 0 without passes.
    pub fn mean_emitted_per_step(&self) -> f64 {
        ratio(self.emitted_tokens, self.decode_passes)
    }

    /// One more draft of `depth` tokens on its longest path, of which `accepted` were accepted.
    pub(crate) fn record_draft(
        &mut self,
        drafter: &'static str,
        (num_nodes, depth): (usize, usize),
        accepted: usize,
    ) {
        self.drafts += 1;
        self.draft_tokens += num_nodes as u64;
        self.accepted_tokens += accepted as u64;
        self.drafted_per_position
            .resize(self.drafted_per_position.len().max(depth), 0);
        self.accepted_per_position
            .resize(self.accepted_per_position.len().max(depth), 0);
        for count in &mut self.drafted_per_position[..depth] {
            *count += 1;
        }
        for count in &mut self.accepted_per_position[..accepted] {
            *count += 1;
        }
        match self.drafters.iter_mut().find(|(name, _)| *name == drafter) {
            Some((_, count)) => *count += 1,
            None => self.drafters.push((drafter, 1)),
        }
    }
}

fn ratio(numerator: u64, denominator: u64) -> f64 {
    if denominator == 0 {
        0.0
    } else {
        numerator as f64 / denominator as f64
    }
}
