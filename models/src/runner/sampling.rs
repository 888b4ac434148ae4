//! From logits to verdicts, on the device: the chain, the draw, the verification of drafts, and the
//! log-probabilities that were asked for.
//!
//! Neighbours: called by [`super::ModelRunner`]; ops are `logits_process`, `sample`, `verify` and
//! `logprobs`.

use burn::tensor::{Int, Tensor};
use forerun_engine::{LogprobsKind, SamplingRow, StepBatch};
use forerun_kernels::{logits_process, logprobs, sample, verify};

use crate::forward_context::ForwardContext;

/// What a step decided, on the device.
pub(super) struct Sampled {
    /// `[R, 2]`: the next step may take its tokens from it.
    pub(super) verdicts: Tensor<2, Int>,
    /// `[R, W]`: what the host reads.
    pub(super) rows: Tensor<2, Int>,
}

/// Processes and samples `logits [R, V]`. Steps that ask for nothing but greedy tokens or draws pay
/// for nothing else. `num_top` is `None` where no row asks for log-probabilities.
pub(super) fn sample(
    batch: &StepBatch,
    context: &ForwardContext,
    logits: Tensor<2>,
    draft_logits: Option<Tensor<2>>,
    num_top: Option<usize>,
) -> Sampled {
    let step = || context.step();
    let is_processed = batch.sampling.iter().any(is_processed);
    let wants_raw = batch.sampling.iter().any(|row| {
        row.logprobs
            .is_some_and(|asked| asked.kind == LogprobsKind::Raw)
    });
    // A second handle makes the chain write to a copy: only where somebody reads the original.
    let raw = (is_processed && wants_raw).then(|| logits.clone());
    let processed = if is_processed {
        logits_process::logits_process(logits, step())
    } else {
        logits
    };
    let has_drafts = batch.sampling.iter().any(|row| row.num_drafts > 0);
    let decide = |processed: Tensor<2>| {
        if !has_drafts {
            return sample::sample(processed, step());
        }
        let sampled = sample::sample(processed.clone(), step());
        verify::verify(processed, sampled, draft_logits, step())
    };
    match num_top {
        None => {
            let verdicts = decide(processed);
            Sampled {
                rows: verdicts.clone(),
                verdicts,
            }
        }
        Some(num_top) => {
            let verdicts = decide(processed.clone());
            let raw = raw.unwrap_or_else(|| processed.clone());
            let rows = logprobs::logprobs(raw, processed, verdicts.clone(), step(), num_top);
            Sampled { verdicts, rows }
        }
    }
}

/// Whether `logits_process` has anything to do for a row.
pub(super) fn is_processed(row: &SamplingRow) -> bool {
    let has_penalties = row.history.0 < row.history.1 || row.carried_row.is_some();
    let has_filters = row.top_k > 0 || row.top_p < 1.0 || row.min_p > 0.0 || row.typical_p < 1.0;
    row.bias.0 < row.bias.1 || row.mask.is_some() || has_penalties || has_filters
}
