//! Decoding allocates nothing once it has begun: buffers are reused from step to step.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use forerun_engine::{
    Engine, EngineConfig, Executor, ExecutorError, Statistics, StepBatch, StepFacts, StepOutput,
    TokenId, Verdict,
};

use crate::fake_model::FakeVocabulary;
use crate::harness::{config, request};

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

/// Gives token 1 for every row.
struct Constant;

impl Executor for Constant {
    fn execute(&mut self, batch: &StepBatch, output: &mut StepOutput) -> Result<(), ExecutorError> {
        for _ in &batch.logit_rows {
            output.push(Verdict::Token(TokenId(1)));
        }
        Ok(())
    }
}

#[test]
fn a_decode_step_allocates_nothing_after_the_arrays_have_grown() {
    let config = EngineConfig {
        step_seqs_max: 9,
        max_seq_len: 4000,
        ..config(4, 4000)
    };
    let mut engine = Engine::new(config, Constant, FakeVocabulary).unwrap();
    for salt in 0..9 {
        let mut request = request(salt, 5 + salt as usize, 600);
        request.stop.stop_strings = vec![b"bbbbb.".to_vec(), b"never".to_vec()];
        engine.add_request(request).unwrap();
    }
    // Block table rows of a step grow with the longest context: up to 256 blocks a row by then.
    for _ in 0..520 {
        engine.step();
    }
    let before = NUM_ALLOCATIONS.get();
    for _ in 0..60 {
        assert_eq!(engine.step().len(), 9);
    }
    assert_eq!(NUM_ALLOCATIONS.get() - before, 0);
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
