//! Worker threads for the native kernels.
//!
//! A decode step runs a hundred products of some ten microseconds each, so handing work out must
//! cost less than one: workers spin for a moment after each job before they park, and the caller
//! works too. Tasks are claimed one by one from a counter, so a worker that the system has put
//! aside holds nobody up: a job ends when its tasks are done and the workers *that joined it* have
//! left. Results never depend on who ran which task.

use std::any::Any;
use std::cell::UnsafeCell;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an idle worker, or a caller at the end of a job, spins before it gives its core away.
const SPIN: Duration = Duration::from_micros(50);
/// Looks at the shared state between two looks at the clock.
const SPINS_PER_CLOCK: u32 = 64;

/// A pool of worker threads. Dropping it ends them.
pub struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held by the caller whose job is running.
    running: Mutex<()>,
}

impl Threads {
    /// A pool in which `num_threads` threads work, the caller's among them.
    pub fn new(num_threads: NonZeroUsize) -> Self {
        let num_workers = num_threads.get() - 1;
        let shared = Arc::new(Shared::new(num_workers));
        let workers = (0..num_workers)
            .map(|worker| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("forerun-{worker}"))
                    .spawn(move || shared.work(worker))
                    .expect("the system can start a thread")
            })
            .collect();
        Self {
            shared,
            workers,
            running: Mutex::new(()),
        }
    }

    /// Threads that work on a job, the caller's among them.
    pub fn num_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task` with each of `0..num_tasks`, on several threads at once, and returns when all
    /// calls have returned. Does not allocate.
    ///
    /// Inside a task, or while another thread's job is running, the calls are made on the calling
    /// thread alone.
    ///
    /// # Panics
    ///
    /// With the payload of a task that panicked, once every thread has left the job.
    pub fn run(&self, num_tasks: usize, task: impl Fn(usize) + Sync) {
        let guard = match self.running.try_lock() {
            Ok(guard) if num_tasks > 1 && !self.workers.is_empty() => guard,
            _ => {
                (0..num_tasks).for_each(task);
                return;
            }
        };
        let payload = self.shared.run(num_tasks, &task, &self.workers);
        drop(guard);
        if let Some(payload) = payload {
            resume_unwind(payload);
        }
    }

    /// Splits `items` into chunks of `chunk_len` (the last may be shorter) and calls `task` with the
    /// index of each and the chunk itself.
    pub fn for_each_chunk<T: Send>(
        &self,
        items: &mut [T],
        chunk_len: usize,
        task: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let len = items.len();
        let start = SendPtr(items.as_mut_ptr());
        self.run(len.div_ceil(chunk_len.max(1)), |chunk| {
            let range = chunk * chunk_len..((chunk + 1) * chunk_len).min(len);
            // SAFETY: the range lies in `items`, and each task has a chunk of its own.
            let chunk_items = unsafe {
                std::slice::from_raw_parts_mut(start.get().add(range.start), range.len())
            };
            task(chunk, chunk_items);
        });
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.state.store(STOPPED, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker hands panics to the caller of the job, so it cannot have panicked itself.
            let _ = worker.join();
        }
    }
}

/// A pointer that tasks may share: each task touches a part of its own.
pub(crate) struct SendPtr<T>(pub(crate) *mut T);

impl<T> SendPtr<T> {
    /// The pointer. (A method, so that closures capture the whole wrapper.)
    pub(crate) fn get(&self) -> *mut T {
        self.0
    }
}

// SAFETY: whoever dereferences it says why parts do not overlap; values may move between threads.
unsafe impl<T: Send> Send for SendPtr<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SendPtr<T> {}

static PROCESS: OnceLock<Threads> = OnceLock::new();

/// The pool of the process.
///
/// burn's op traits have no argument for state, so the ops of its CPU backend find their threads
/// here; kernels take a [`Threads`] as an argument. Without [`configure`] it has a thread for each
/// core this process may use.
pub fn process() -> &'static Threads {
    PROCESS.get_or_init(|| {
        Threads::new(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    })
}

/// Sets the number of threads of [`process`]. Fails, with the number in use, once that pool exists
/// with another number.
pub fn configure(num_threads: NonZeroUsize) -> Result<(), usize> {
    let found = PROCESS
        .get_or_init(|| Threads::new(num_threads))
        .num_threads();
    if found == num_threads.get() {
        Ok(())
    } else {
        Err(found)
    }
}

type Task<'a> = dyn Fn(usize) + Sync + 'a;

/// Bits of [`Shared::state`]: a job's number, whether it still takes workers, how many have joined.
const JOINED: u64 = (1 << 16) - 1;
const OPEN: u64 = 1 << 16;
const JOB: u64 = 1 << 17;
/// The pool is being dropped.
const STOPPED: u64 = !OPEN;

struct Job {
    task: *const Task<'static>,
    num_tasks: usize,
}

/// What the caller and the workers share.
///
/// A job goes: the caller writes `job` and resets the counters, then *opens* it by storing a new
/// state; workers join by raising the count in the state, which fails once the caller has *closed*
/// the job; then the caller waits until `num_left` equals the count. So `job` is only written while
/// no worker can read it.
struct Shared {
    state: AtomicU64,
    job: UnsafeCell<Job>,
    next_task: AtomicUsize,
    num_left: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// For each worker, whether it is about to park.
    parked: Vec<AtomicBool>,
}

// SAFETY: `job` is written by the one caller that holds `Threads::running`, while no worker has
// joined, and read by workers between joining and leaving; the task it points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is only used as said above.
unsafe impl Send for Shared {}

impl Shared {
    fn new(num_workers: usize) -> Self {
        let task: &Task<'static> = &|_| {};
        Self {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(Job { task, num_tasks: 0 }),
            next_task: AtomicUsize::new(0),
            num_left: AtomicUsize::new(0),
            panic: Mutex::new(None),
            parked: (0..num_workers).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    fn run(
        &self,
        num_tasks: usize,
        task: &Task<'_>,
        workers: &[JoinHandle<()>],
    ) -> Option<Box<dyn Any + Send>> {
        // SAFETY: the previous job is closed and its workers have left, so nobody reads `job`. The
        // lifetime of `task` may be forgotten because this function outlives every use of it.
        unsafe {
            let task = std::mem::transmute::<&Task<'_>, &'static Task<'static>>(task);
            *self.job.get() = Job { task, num_tasks };
        }
        self.next_task.store(0, Ordering::Relaxed);
        self.num_left.store(0, Ordering::Relaxed);
        let previous = self.state.load(Ordering::Relaxed);
        self.state
            .store(((previous / JOB + 1) * JOB) | OPEN, Ordering::SeqCst);
        for (parked, worker) in self.parked.iter().zip(workers) {
            if parked.swap(false, Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        self.claim_tasks();
        let num_joined = (self.state.fetch_and(!OPEN, Ordering::SeqCst) & JOINED) as usize;
        spin_until(
            || self.num_left.load(Ordering::Acquire) == num_joined,
            std::thread::yield_now,
        );
        self.panic
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Runs tasks of the current job until none is left to claim.
    fn claim_tasks(&self) {
        // SAFETY: the caller of the job, or a worker that has joined it, may read `job`, and the
        // task lives until all of them have left.
        let (task, num_tasks) = unsafe {
            let job = &*self.job.get();
            (&*job.task, job.num_tasks)
        };
        let result = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let index = self.next_task.fetch_add(1, Ordering::Relaxed);
                if index >= num_tasks {
                    break;
                }
                task(index);
            }
        }));
        if let Err(payload) = result {
            self.next_task.store(num_tasks, Ordering::Relaxed);
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(payload);
        }
    }

    /// The life of worker `worker`.
    fn work(&self, worker: usize) {
        let mut seen = 0;
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if state == STOPPED {
                return;
            }
            if state / JOB == seen || state & OPEN == 0 {
                self.idle(worker, state);
                continue;
            }
            let joined = state + 1;
            if self
                .state
                .compare_exchange(state, joined, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
            {
                seen = state / JOB;
                self.claim_tasks();
                self.num_left.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Returns soon after the state is no longer `state`, or at any time.
    fn idle(&self, worker: usize, state: u64) {
        spin_until(
            || self.state.load(Ordering::SeqCst) != state,
            || {
                self.parked[worker].store(true, Ordering::SeqCst);
                if self.state.load(Ordering::SeqCst) == state {
                    std::thread::park();
                }
                self.parked[worker].store(false, Ordering::SeqCst);
            },
        );
    }
}

/// Spins until `done`; after [`SPIN`] calls `rest` between looks.
fn spin_until(done: impl Fn() -> bool, rest: impl Fn()) {
    let mut clock = None;
    loop {
        for _ in 0..SPINS_PER_CLOCK {
            if done() {
                return;
            }
            std::hint::spin_loop();
        }
        let start = *clock.get_or_insert_with(Instant::now);
        if start.elapsed() > SPIN {
            rest();
        }
    }
}

#[cfg(test)]
mod tests;
