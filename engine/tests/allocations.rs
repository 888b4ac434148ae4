//! Decoding allocates nothing once it has begun: buffers are reused from step to step, with one step
//! in flight and with two, with the prefix cache and without.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use forerun_engine::{
    Engine, EngineConfig, Executor, ExecutorError, KvGroupConfig, PrefixCacheConfig, Request,
    SamplingParams, SchedulingConfig, Statistics, StepBatch, StepFacts, StepOutput, StopParams,
    Timestamp, TokenId, Verdict, Vocabulary,
};

thread_local! {
    static NUM_ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting per thread.
struct Counting;

fn count() {
    // A thread that is ending has no counter left, and nobody reads it.
    let _ = NUM_ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Gives token 1 for every row, with so many steps in flight.
struct Constant {
    depth: usize,
    /// Rows of the steps in flight, oldest first.
    num_rows: [usize; 2],
    num_in_flight: usize,
}

impl Executor for Constant {
    fn submit(&mut self, batch: &StepBatch) -> Result<(), ExecutorError> {
        self.num_rows[self.num_in_flight] = batch.num_logit_rows();
        self.num_in_flight += 1;
        Ok(())
    }

    fn collect(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        for _ in 0..self.num_rows[0] {
            output.push(Verdict::Token(TokenId(1)));
        }
        self.num_rows.swap(0, 1);
        self.num_in_flight -= 1;
        Ok(())
    }

    fn steps_in_flight_max(&self) -> usize {
        self.depth
    }
}

/// Every token is the letter b.
struct Letters;

impl Vocabulary for Letters {
    fn token_bytes(&self, _: TokenId) -> &[u8] {
        b"b"
    }
}

fn config(num_seqs: usize, has_cache: bool) -> EngineConfig {
    EngineConfig {
        block_size: 4,
        groups: vec![KvGroupConfig {
            num_blocks: 4001,
            window: None,
        }],
        step_tokens_max: 512,
        step_seqs_max: num_seqs,
        max_seq_len: 4000,
        vocab_size: 40,
        eos_token_ids: vec![],
        prefix_cache: PrefixCacheConfig {
            enabled: has_cache,
            ..PrefixCacheConfig::default()
        },
        scheduling: SchedulingConfig::default(),
        speculation: forerun_engine::SpeculationConfig::default(),
    }
}

fn request(index: u32) -> Request {
    Request {
        prompt: (0..5 + index).map(|i| TokenId((i + index) % 37)).collect(),
        sampling: SamplingParams {
            temperature: (index % 2) as f32,
            repetition_penalty: if index.is_multiple_of(3) { 1.2 } else { 1.0 },
            ..SamplingParams::default()
        },
        stop: StopParams {
            max_tokens: Some(600),
            stop_strings: vec![b"bbbbb.".to_vec(), b"never".to_vec()],
            ..StopParams::default()
        },
        ..Request::default()
    }
}

#[test]
fn a_decode_step_allocates_nothing_after_the_arrays_have_grown() {
    for depth in [1, 2] {
        for has_cache in [true, false] {
            let executor = Constant {
                depth,
                num_rows: [0; 2],
                num_in_flight: 0,
            };
            let mut engine = Engine::new(config(16, has_cache), executor, Letters).unwrap();
            for index in 0..16 {
                engine.add_request(request(index), Timestamp(0)).unwrap();
            }
            // Block table rows of a step grow with the longest context: up to 256 blocks a row by
            // then.
            for now in 0..520 {
                engine.step(Timestamp(now));
            }
            let before = NUM_ALLOCATIONS.get();
            for now in 520..580 {
                assert_eq!(engine.step(Timestamp(now)).len(), 16);
            }
            let num_allocations = NUM_ALLOCATIONS.get() - before;
            assert_eq!(num_allocations, 0, "depth {depth}, cache {has_cache}");
        }
    }
}

#[test]
fn recording_a_step_allocates_nothing_from_the_first_on() {
    let mut statistics = Statistics::default();
    let before = NUM_ALLOCATIONS.get();
    for num_tokens in (0..10_000).step_by(7) {
        statistics.record_step(&StepFacts {
            num_tokens,
            num_seqs: 1,
            blocks_used: 1,
            blocks_usable: 2,
            ..StepFacts::default()
        });
    }
    assert_eq!(NUM_ALLOCATIONS.get() - before, 0);
    assert_eq!(statistics.report().engine.num_steps, 1429);
}
