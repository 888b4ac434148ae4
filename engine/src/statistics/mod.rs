//! Stub until merged.
#![allow(
    dead_code,
    missing_docs,
    reason = "stands in until the statistics are merged"
)]
mod facts;
pub use facts::*;
#[derive(Debug, Default)]
pub struct Statistics {}
#[derive(Debug, Default)]
pub struct StatisticsReport {}
impl Statistics {
    pub fn record_step(&mut self, _: &StepFacts) {}
    pub fn record_finished(&mut self, _: &RequestFacts, _: crate::Timestamp, _: usize) {}
    pub fn record_prefix(&mut self, _: usize, _: usize, _: MissKind) {}
    pub fn report(&self) -> StatisticsReport {
        StatisticsReport {}
    }
}
