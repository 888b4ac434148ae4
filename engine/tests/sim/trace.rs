//! What an engine did, as a hash to compare and as lines to read.
//!
//! Neighbours: `fake_executor.rs` records steps, `world.rs` events.

use std::fmt::Write;

use forerun_engine::StepBatch;

use crate::batch_checks::tokens_of;
use crate::fake_model::mix;

/// Grows with every step and event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    pub(crate) hash: u64,
    /// Lines are printed.
    pub(crate) is_printed: bool,
    pub(crate) num_steps: usize,
}

impl Trace {
    /// Every array of a step.
    pub(crate) fn record_step(&mut self, batch: &StepBatch, num_in_flight: usize) {
        self.num_steps += 1;
        let mut arrays: Vec<&[u32]> = vec![
            &batch.token_ids,
            &batch.positions,
            &batch.query_offsets,
            &batch.context_lens,
            &batch.logit_rows,
            &batch.masks,
        ];
        for group in &batch.groups {
            arrays.extend([group.slot_mapping.as_slice(), group.block_tables.as_slice()]);
        }
        for array in arrays {
            let fold = |hash, &word| mix(hash, u64::from(word));
            self.hash = array.iter().fold(mix(self.hash, array.len() as u64), fold);
        }
        if self.is_printed {
            println!("{}", self.line(batch, num_in_flight));
        }
    }

    /// Anything else that happened.
    pub(crate) fn note(&mut self, what: &str) {
        self.hash = what.bytes().fold(self.hash, |h, b| mix(h, u64::from(b)));
        if self.is_printed {
            println!("    {what}");
        }
    }

    fn line(&self, batch: &StepBatch, num_in_flight: usize) -> String {
        let mut decodes = String::new();
        let mut prefills = String::new();
        for (seq, entry) in batch.seqs.iter().enumerate() {
            let tokens = tokens_of(batch, seq);
            let (request, num_tokens) = (entry.request, tokens.len() as u32);
            let first = batch.positions[tokens.start];
            if num_tokens == 1 {
                let comma = if decodes.is_empty() { "" } else { "," };
                let _ = write!(decodes, "{comma}{request}@{first}");
            } else {
                let _ = write!(prefills, " {request}:[{first},{})", first + num_tokens);
            }
        }
        let mut line = format!("step {}", self.num_steps);
        if !decodes.is_empty() {
            let _ = write!(line, " | decode {decodes}");
        }
        if !prefills.is_empty() {
            let _ = write!(line, " | prefill{prefills}");
        }
        let copies = batch.groups.iter().flat_map(|group| &group.block_copies);
        let copies: Vec<_> = copies.map(|(from, to)| format!("{from}>{to}")).collect();
        if !copies.is_empty() {
            let _ = write!(line, " | copy {}", copies.join(" "));
        }
        let _ = write!(line, " | in flight {num_in_flight}");
        line
    }
}
