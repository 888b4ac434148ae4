//! With two steps in flight a device has its next step before the host has read the last one's
//! verdicts, and nothing else changes.

use forerun_engine::{Executor, ExecutorError, Request, StepBatch, StepOutput};
use forerun_models::devices::DeviceChoice;

use crate::models::{load, tiny};
use crate::run::{Run, run};
use crate::workload::mixed;

/// Notes what the engine asks for, in order.
struct Traced<E> {
    executor: E,
    calls: Vec<Call>,
    num_submitted: usize,
    num_collected: usize,
    num_carried: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Submit(usize),
    Collect(usize),
}

impl<E: Executor> Executor for &mut Traced<E> {
    fn submit(&mut self, batch: &StepBatch) -> Result<(), ExecutorError> {
        self.calls.push(Call::Submit(self.num_submitted));
        self.num_submitted += 1;
        self.num_carried += batch.carried.len();
        self.executor.submit(batch)
    }

    fn collect(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        self.calls.push(Call::Collect(self.num_collected));
        self.num_collected += 1;
        self.executor.collect(output)
    }

    fn steps_in_flight_max(&self) -> usize {
        self.executor.steps_in_flight_max()
    }
}

/// Greedy and seeded requests of the mixed workload; few, since the device of these tests is slow.
fn requests(vocab_size: usize) -> Vec<Request> {
    let mut requests = mixed(vocab_size, 12);
    requests.truncate(12);
    requests
}

/// Tokens of every sample. Log-probabilities may differ in their last bits on a device, where the
/// bits of a row may depend on its batch mates.
fn tokens(run: &Run) -> Vec<Vec<&[u32]>> {
    run.outputs
        .iter()
        .map(|output| {
            output
                .samples
                .values()
                .map(|s| s.tokens.as_slice())
                .collect()
        })
        .collect()
}

#[test]
fn a_step_is_submitted_before_the_last_ones_verdicts_are_read_and_tokens_stay_the_same() {
    for name in ["llama", "gemma3"] {
        let mut loaded = load(&tiny(name), DeviceChoice::Wgpu(None));
        let requests = requests(loaded.config.vocab_size);
        let mut config = loaded.engine_config(64, 8);
        config.scheduling.steps_in_flight_max = 1;
        let synchronous = run(&mut loaded.runner, &config, &requests);

        config.scheduling.steps_in_flight_max = 2;
        let mut traced = Traced {
            executor: &mut loaded.runner,
            calls: Vec::new(),
            num_submitted: 0,
            num_collected: 0,
            num_carried: 0,
        };
        let overlapped = run(&mut traced, &config, &requests);
        assert_eq!(tokens(&overlapped), tokens(&synchronous), "{name}");

        let place = |call| traced.calls.iter().position(|&other| other == call);
        let overlaps = |step: usize| {
            let next = place(Call::Submit(step + 1));
            next.is_some_and(|next| Some(next) < place(Call::Collect(step)))
        };
        let num_overlaps = (0..traced.num_submitted)
            .filter(|&step| overlaps(step))
            .count();
        assert!(
            2 * num_overlaps > traced.num_submitted,
            "{num_overlaps} of {} steps overlap",
            traced.num_submitted
        );
        assert!(traced.num_carried > 0, "no token stayed on the device");
    }
}
