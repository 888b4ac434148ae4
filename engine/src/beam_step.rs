//! A step of beam search: the rule of `beam.rs` applied to sequences and blocks.
//!
//! Neighbours: called by `commit.rs` after all rows of a step; forks share blocks, which are copied
//! where the beams diverge.

use crate::beam::{BeamSearch, Offer};
use crate::executor::RowLogprobs;
use crate::in_flight::Step;
use crate::sampling_rows::RowPurpose;
use crate::{Engine, Executor, FinishReason, RequestId, SeqId, Vocabulary};

impl<E: Executor, V: Vocabulary> Engine<E, V> {
    /// Goes on with the searches for whose beams this step brought the last candidates.
    pub(crate) fn advance_beams(&mut self, step: &Step) {
        for (row, purpose) in step.batch.purposes.iter().enumerate() {
            if *purpose != RowPurpose::Candidates {
                continue;
            }
            let id = step.batch.seqs[step.batch.logit_seqs[row] as usize].request;
            let search = self.requests.find_mut(id).and_then(|request| {
                let is_ready = request.beam.as_ref().is_some_and(BeamSearch::is_ready);
                request.beam.take_if(|_| is_ready)
            });
            if let Some(search) = search {
                self.advance(id, search);
            }
        }
    }

    /// From the candidates of all beams to the next beams, or to the end.
    fn advance(&mut self, id: RequestId, mut search: BeamSearch) {
        let asked = self.requests.get(id).output.logprobs;
        let num_top = asked.map_or(0, |asked| asked.num_top as usize);
        let chosen = match self.choose(&mut search, num_top) {
            Ok(chosen) => chosen,
            Err(reason) => {
                self.requests.get_mut(id).beam = Some(search);
                return self.end_request(id, &reason);
            }
        };
        let parents: Vec<SeqId> = search.beams().iter().map(|beam| beam.seq).collect();
        let first = self.sequences.get(parents[0]);
        let (num_generated, num_generated_max) = (first.output().len() + 1, first.num_output_max());
        let sums = chosen.iter().map(|offer| (parents[offer.beam], offer.sum));
        let tops = search.take_candidates();
        search.set_beams(sums);
        if search.is_decided(num_generated, num_generated_max) {
            for seq in self.requests.get(id).live.clone() {
                self.take(seq);
            }
            self.requests.get_mut(id).beam = Some(search);
            return self.close_beams(id);
        }
        let mut beams = Vec::with_capacity(chosen.len());
        for (index, offer) in chosen.iter().enumerate() {
            let parent = parents[offer.beam];
            let is_last_child = chosen[index + 1..].iter().all(|o| o.beam != offer.beam);
            let seq = if is_last_child {
                parent
            } else {
                let sibling = self.requests.get_mut(id).next_sibling();
                self.fork(parent, sibling)
            };
            beams.push((seq, offer.sum));
            self.extend(seq, offer.row_logprobs(&tops[offer.beam], num_top));
        }
        for parent in parents {
            if beams.iter().all(|&(seq, _)| seq != parent) {
                self.take(parent);
            }
        }
        search.set_beams(beams);
        self.requests.get_mut(id).beam = Some(search);
    }

    /// The offers that become beams. Those that end the text become hypotheses.
    fn choose(&self, search: &mut BeamSearch, num_top: usize) -> Result<Vec<Offer>, FinishReason> {
        let mut chosen = Vec::new();
        for offer in search.ranked_offers() {
            if chosen.len() == search.width() {
                break;
            }
            let beam = &search.beams()[offer.beam];
            let sequence = self.sequences.get(beam.seq);
            match sequence.reason_to_end_with(offer.token.token, &self.vocabulary) {
                None => chosen.push(offer),
                Some(reason @ FinishReason::Error(_)) => return Err(reason),
                // A log is long: it is copied for what is kept alone.
                Some(reason) if search.would_keep(offer.sum, sequence.output().len() + 1) => {
                    let mut log = sequence.log.clone().unwrap_or_default();
                    log.push(offer.row_logprobs(beam.candidates(), num_top));
                    search.add_hypothesis(log, reason);
                }
                Some(_) => {}
            }
        }
        Ok(chosen)
    }

    /// Appends a token to a beam and lets it run again.
    fn extend(&mut self, seq: SeqId, logprobs: RowLogprobs<'_>) {
        let sequence = self.sequences.get_mut(seq);
        let token = logprobs.chosen.token;
        let reason = sequence.commit(token, Some(logprobs), &self.vocabulary, &mut self.events);
        assert!(reason.is_none(), "a beam that ends is no beam: {reason:?}");
        sequence.waits_for_siblings = false;
        if self.scheduler.queues.is_parked(seq) {
            self.scheduler.queues.wait(sequence);
        }
        let request = self.requests.get_mut(sequence.request);
        request.facts.token(self.now);
        self.num_emitted += 1;
    }
}
