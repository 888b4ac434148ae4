use super::*;

fn threads(num_threads: usize) -> Threads {
    Threads::new(NonZeroUsize::new(num_threads).unwrap())
}

#[test]
fn every_task_runs_exactly_once_whatever_the_number_of_threads() {
    for num_threads in 1..=5 {
        let threads = threads(num_threads);
        for num_tasks in [0, 1, 2, 3, 7, 100] {
            for _ in 0..200 {
                let counts: Vec<_> = (0..num_tasks).map(|_| AtomicUsize::new(0)).collect();
                threads.run(num_tasks, |task| {
                    counts[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(
                    counts
                        .iter()
                        .all(|count| count.load(Ordering::Relaxed) == 1)
                );
            }
        }
    }
}

#[test]
fn chunks_cover_the_items_in_order() {
    let mut items = vec![0; 103];
    threads(3).for_each_chunk(&mut items, 10, |chunk, items| items.fill(chunk));
    assert!(items.iter().enumerate().all(|(i, &chunk)| chunk == i / 10));
}

#[test]
fn workers_wake_after_they_have_parked() {
    let threads = threads(3);
    for _ in 0..5 {
        std::thread::sleep(4 * SPIN);
        let sum = AtomicUsize::new(0);
        threads.run(64, |task| {
            sum.fetch_add(task, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 64 * 63 / 2);
    }
}

#[test]
fn a_panic_in_a_task_reaches_the_caller_and_the_pool_lives_on() {
    let threads = threads(2);
    for bad in 0..8 {
        let result = catch_unwind(AssertUnwindSafe(|| {
            threads.run(8, |task| assert!(task != bad, "task {task} fails"));
        }));
        let payload = result.unwrap_err();
        assert_eq!(
            payload.downcast_ref::<String>().unwrap(),
            &format!("task {bad} fails")
        );
    }
    threads.run(8, |_| {});
}

#[test]
fn a_job_inside_a_task_runs_there() {
    let threads = threads(2);
    let count = AtomicUsize::new(0);
    threads.run(4, |_| {
        threads.run(4, |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(count.into_inner(), 16);
}

#[test]
fn jobs_of_several_callers_do_not_mix() {
    let threads = threads(3);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let mut items = [0; 9];
                    threads.for_each_chunk(&mut items, 1, |i, item| item[0] = i + 1);
                    assert_eq!(items, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
                }
            });
        }
    });
}
