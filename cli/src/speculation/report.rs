//! The "speculation" object of an answer.
//!
//! Neighbours: `generate/report.rs` and `openai/response.rs` hold one; counts are the engine's.

use forerun_engine::SpeculationReport;
use serde::Serialize;

/// What speculation did for a request.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SpeculationBody {
    /// Who drafted: a drafter, "none", or "auto" if there were several.
    method: &'static str,
    /// Passes with a draft.
    drafts: u64,
    draft_tokens: u64,
    accepted_tokens: u64,
    acceptance_rate: f64,
    /// Tokens per decode pass, those without drafts counted.
    mean_emitted_per_step: f64,
    /// Share of the drafts that reached a position whose token there was accepted.
    accepted_per_position: Vec<f64>,
    draft_ms: f64,
    verify_ms: f64,
    /// Decode passes, with drafts and without.
    decode_passes: u64,
    /// How many drafts each drafter made, if there were several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    drafters: Vec<Share>,
    /// Drafts that a model failed to make.
    #[serde(skip_serializing_if = "is_zero")]
    failures: u64,
    /// Why there was none, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
struct Share {
    method: &'static str,
    drafts: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl From<&SpeculationReport> for SpeculationBody {
    fn from(report: &SpeculationReport) -> Self {
        let drafters = report.drafters.iter();
        let shares: Vec<_> = drafters
            .map(|&(method, drafts)| Share { method, drafts })
            .collect();
        let positions = report.accepted_per_position.iter();
        let shares_of = positions.zip(&report.drafted_per_position);
        Self {
            method: match shares.as_slice() {
                [] => "none",
                [one] => one.method,
                _ => "auto",
            },
            drafts: report.drafts,
            draft_tokens: report.draft_tokens,
            accepted_tokens: report.accepted_tokens,
            acceptance_rate: rounded(report.acceptance_rate()),
            mean_emitted_per_step: rounded(report.mean_emitted_per_step()),
            accepted_per_position: shares_of
                .map(|(&accepted, &drafted)| rounded(accepted as f64 / drafted.max(1) as f64))
                .collect(),
            draft_ms: report.draft_us as f64 / 1000.0,
            verify_ms: report.verify_us as f64 / 1000.0,
            decode_passes: report.decode_passes,
            drafters: if shares.len() > 1 { shares } else { Vec::new() },
            failures: report.failures,
            note: report.refused,
        }
    }
}

/// To four digits behind the point: more says nothing.
fn rounded(share: f64) -> f64 {
    (share * 1e4).round() / 1e4
}
