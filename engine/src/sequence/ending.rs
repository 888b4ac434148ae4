//! Why a sequence ends: its stop conditions and its grammar together.

use super::Sequence;
use crate::{FailureCause, FinishReason, Grammar, StopCause, TokenId, Vocabulary};

impl Sequence {
    /// Why the sequence would end with `token`, if it would: [`Self::commit`] without doing it.
    pub(crate) fn reason_to_end_with<V: Vocabulary + ?Sized>(
        &self,
        token: TokenId,
        vocabulary: &V,
    ) -> Option<FinishReason> {
        let mut grammar = self.grammar.as_ref().map(|grammar| grammar.fork());
        let mut stop = self.stop.clone();
        let num_tokens = self.tokens.len() + 1;
        let stopped = stop.push(token, num_tokens, vocabulary, &mut Vec::new());
        end_reason(grammar.as_mut(), token, stopped)
    }
}

/// Why a sequence ends with `token`, which its grammar takes now, if it does. `stopped` is what the
/// stop conditions say.
pub(super) fn end_reason(
    grammar: Option<&mut Box<dyn Grammar>>,
    token: TokenId,
    stopped: Option<FinishReason>,
) -> Option<FinishReason> {
    let Some(grammar) = grammar else {
        return stopped;
    };
    match grammar.accept(token) {
        Err(error) => Some(FinishReason::Error(FailureCause::Grammar(error.message))),
        // A text that is complete did not run out of length.
        Ok(()) if grammar.is_finished() => stopped
            .filter(|reason| *reason != FinishReason::Length)
            .or(Some(FinishReason::Stop(StopCause::Grammar))),
        Ok(()) => stopped,
    }
}
