//! Random workloads: one seed decides sizes, pools, arrivals, aborts and faults; everything that
//! ends by itself ends as it does alone.

use forerun_engine::{
    EngineConfig, ExecutorError, FailureScope, FinishReason, KvGroupConfig, RequestId, StepBatch,
    TokenId,
};

use crate::fake_model::{NAN_TOKEN, mix};
use crate::harness::{Harness, config, request};

const NUM_SEEDS: u64 = 200;

/// Damages a step's arrays.
type Canary = fn(&mut StepBatch);

struct Random(u64);

impl Random {
    /// Uniform in `[low, high)`.
    fn within(&mut self, low: usize, high: usize) -> usize {
        self.0 = mix(self.0, 1);
        low + (self.0 % (high - low) as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.within(0, n) == 0
    }
}

fn random_config(random: &mut Random) -> EngineConfig {
    let block_size = 1 << random.within(0, 6);
    let group = |random: &mut Random| KvGroupConfig {
        // From what one request needs to what all need.
        num_blocks: 1 + random.within(24, 200).div_ceil(block_size),
        window: random.one_in(3).then(|| random.within(1, 20)),
    };
    let step_seqs_max = random.within(1, 9);
    EngineConfig {
        groups: (0..random.within(1, 3)).map(|_| group(random)).collect(),
        step_seqs_max,
        step_tokens_max: step_seqs_max + random.within(0, 40),
        max_seq_len: random.within(20, 90),
        ..config(block_size, 1)
    }
}

fn add_random(random: &mut Random, harness: &mut Harness) {
    let num_prompt = random.within(1, harness.engine.seq_len_max());
    let mut request = request(
        random.within(0, 50) as u64,
        num_prompt,
        random.within(1, 40) as u32,
    );
    request.stop.ignore_eos = random.one_in(2);
    if random.one_in(3) {
        request.sampling.temperature = 0.7;
    }
    if random.one_in(4) {
        request.stop.max_tokens = None;
    }
    if random.one_in(3) {
        request.stop.stop_strings = vec![b"abab".to_vec(), b"cc".to_vec()];
    }
    if random.one_in(3) {
        request.stop.stop_token_ids = vec![TokenId(random.within(0, 40) as u32)];
    }
    if random.one_in(15) {
        *request.prompt.last_mut().unwrap() = TokenId(NAN_TOKEN);
    }
    harness.add(request);
}

fn random_fault(random: &mut Random, harness: &Harness) -> ExecutorError {
    let all: Vec<_> = harness.requests.keys().copied().collect();
    let scope = if random.one_in(3) || all.is_empty() {
        FailureScope::All
    } else {
        FailureScope::Requests((0..2).map(|_| all[random.within(0, all.len())]).collect())
    };
    ExecutorError {
        scope,
        message: "planted".into(),
    }
}

/// Runs one seed. Returns the trace of all arrays and how many preemptions there were.
fn simulate(seed: u64, canary: Option<Canary>) -> (u64, usize) {
    let mut random = Random(mix(seed, 0));
    let mut harness = Harness::new(random_config(&mut random));
    harness.engine.executor_mut().canary = canary;
    let num_requests = random.within(1, 25);
    let with_faults = random.one_in(3);
    let with_aborts = random.one_in(2);
    while harness.requests.len() < num_requests {
        for _ in 0..random.within(0, 5) {
            add_random(&mut random, &mut harness);
        }
        if with_aborts && random.one_in(4) {
            harness.abort(RequestId(random.within(0, num_requests) as u64));
        }
        if with_faults && random.one_in(5) {
            let fault = random_fault(&mut random, &harness);
            harness.engine.executor_mut().faults.push_back(Some(fault));
        }
        harness.step();
    }
    harness.run();
    for &id in harness.requests.keys() {
        let is_cut_short = match harness.reason(id) {
            FinishReason::Aborted => with_aborts,
            FinishReason::Error(_) => with_faults,
            _ => false,
        };
        if is_cut_short {
            harness.assert_cut_short(id);
        } else {
            harness.assert_oracle(id);
        }
    }
    (harness.engine.executor().trace, harness.num_preemptions)
}

#[test]
fn every_request_of_a_random_workload_ends_once_and_as_it_does_alone() {
    let mut num_preemptions = 0;
    for seed in 0..NUM_SEEDS {
        let outcome = std::panic::catch_unwind(|| simulate(seed, None));
        num_preemptions += outcome.unwrap_or_else(|_| panic!("seed {seed} failed")).1;
    }
    assert!(
        num_preemptions > 100,
        "only {num_preemptions} preemptions: the pools are too ample"
    );
}

#[test]
fn a_seed_gives_the_same_arrays_in_every_step_of_a_second_run() {
    for seed in 0..NUM_SEEDS / 4 {
        assert_eq!(
            simulate(seed, None).0,
            simulate(seed, None).0,
            "seed {seed}"
        );
    }
}

/// A simulator that cannot fail shows nothing: each of these is a bug that it must see.
#[test]
fn planted_bugs_are_caught() {
    let canaries: [(&str, Canary); 4] = [
        ("a slot of another position", |batch| {
            for group in &mut batch.groups {
                let last = group.slot_mapping.len() - 1;
                group.slot_mapping.swap(0, last);
            }
        }),
        ("the block tables of the neighbour", |batch| {
            for group in &mut batch.groups {
                group.block_tables.rotate_left(group.blocks_per_seq);
            }
        }),
        ("a position one too far", |batch| {
            if let Some(row) = batch.sampling.first_mut() {
                row.position += 1;
            }
        }),
        ("a token of the neighbour", |batch| {
            batch.token_ids.rotate_left(1);
        }),
    ];
    for (name, canary) in canaries {
        let is_caught = |seed| std::panic::catch_unwind(|| simulate(seed, Some(canary))).is_err();
        assert!((0..20).any(is_caught), "{name} was not caught");
    }
}
