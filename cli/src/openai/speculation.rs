//! What a request says about speculation: `"speculation": {"enabled", "method", "num_tokens", "verify",
//! "task"}`.
//!
//! Neighbours: `request.rs` asks; names are those of `speculation/settings.rs`.

use forerun_engine::{SpecMethod, SpeculationParams, Verification};

use super::error::ApiError;
use super::fields::Fields;
use crate::speculation::{METHODS, VERIFICATIONS, method_of, verification_of};

/// Longest label of a task.
const TASK_BYTES_MAX: usize = 64;

/// The field, and how drafts are verified if it says so.
pub(super) fn speculation(
    fields: &mut Fields,
) -> Result<(SpeculationParams, Option<Verification>), ApiError> {
    let mut params = SpeculationParams::default();
    let Some(mut spec) = fields.take_object("speculation")? else {
        return Ok((params, None));
    };
    if let Some(name) = spec.take::<String>("method")? {
        let method = method_of(&name);
        let wrong = || spec.error("method", format!("is {name:?}, valid are {METHODS}"));
        params.method = Some(method.ok_or_else(wrong)?);
    }
    if spec.take("enabled")? == Some(false) {
        params.method = Some(SpecMethod::Off);
    }
    params.num_tokens = spec.take("num_tokens")?;
    let verification = match spec.take::<String>("verify")? {
        Some(name) => {
            let wrong = || spec.error("verify", format!("is {name:?}, valid are {VERIFICATIONS}"));
            Some(verification_of(&name).ok_or_else(wrong)?)
        }
        None => None,
    };
    if let Some(task) = spec.take::<String>("task")? {
        if task.len() > TASK_BYTES_MAX {
            let found = task.len();
            let problem = format!("has {found} bytes, may have {TASK_BYTES_MAX}");
            return Err(spec.error("task", problem));
        }
        params.task = Some(label(&task));
    }
    if let Some(unknown) = spec.into_unknown().next() {
        let valid = "valid keys are enabled, method, num_tokens, verify, task";
        return Err(ApiError::field(unknown, format!("is unknown, {valid}")));
    }
    Ok((params, verification))
}

/// A number for a label: what is learnt of speculation is kept apart by it. Labels that share one
/// share what is learnt, which harms nothing.
fn label(task: &str) -> u32 {
    task.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}
