//! Made-up drafters and machines: what the controller costs against the best fixed choice in hindsight.

#![expect(
    clippy::print_stdout,
    reason = "what it costs is told, not only bounded"
)]

use super::*;

/// Numbers without a generator of their own.
fn unit(seed: u64, index: u64) -> f64 {
    let mut x = seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) as f64 / u64::MAX as f64
}

/// Microseconds of a pass.
type Machine = fn(usize) -> f64;
/// That a guess comes true, by token of the text and depth.
type Text = fn(usize, usize) -> f64;

const MACHINES: [(&str, Machine); 3] = [
    ("flat, like a GPU", |rows| 1000.0 + 10.0 * rows as f64),
    ("like a CPU", |rows| {
        1000.0 * (1.0 + 0.12 * (rows - 1) as f64)
    }),
    ("steep", |rows| 1000.0 * (1.0 + 0.43 * (rows - 1) as f64)),
];

const TEXTS: [(&str, Text); 5] = [
    ("predictable", |_, _| 0.9),
    ("half", |_, depth| if depth < 2 { 0.6 } else { 0.4 }),
    ("hopeless", |_, _| 0.03),
    (
        "code after chat",
        |token, _| if token < 500 { 0.05 } else { 0.9 },
    ),
    (
        "chat after code",
        |token, _| if token < 500 { 0.9 } else { 0.05 },
    ),
];

const DRAFT_LEN: usize = 8;

/// Runs `num_seqs` requests at a time until 8000 tokens have come; a request that has 1000 makes place for
/// the next. `choose` says how many guesses are verified.
fn run(
    (machine, text, num_seqs): (Machine, Text, usize),
    mut choose: impl FnMut(&mut Controller, &[RequestEstimates]) -> Vec<usize>,
) -> f64 {
    let mut controller = Controller::default();
    let mut requests = vec![RequestEstimates::default(); num_seqs];
    // Not all begin at once.
    let mut tokens: Vec<usize> = (0..num_seqs).map(|seq| 1000 * seq / num_seqs).collect();
    let (mut total, mut step, mut num_tokens) = (0.0, 0, 0);
    while num_tokens < 8000 {
        let kept = choose(&mut controller, &requests);
        let num_rows = num_seqs + kept.iter().sum::<usize>();
        let noise = 0.9 + 0.2 * unit(5, step);
        let micros = machine(num_rows) * noise;
        controller.record_pass(num_rows, micros as u64);
        total += micros;
        for seq in 0..num_seqs {
            let comes_true = |depth: usize| {
                let index = (num_tokens + tokens[seq] + depth + 10_000 * seq) as u64;
                unit(9, index) < text(tokens[seq], depth)
            };
            let num_true = (0..DRAFT_LEN)
                .take_while(|&depth| comes_true(depth))
                .count();
            let offer = offer();
            controller.learn(offer, &mut requests[seq], num_true, num_true < DRAFT_LEN);
            let emitted = 1 + num_true.min(kept[seq]);
            tokens[seq] += emitted;
            num_tokens += emitted;
            if tokens[seq] >= 1000 {
                tokens[seq] = 0;
                requests[seq] = RequestEstimates::default();
            }
        }
        step += 1;
    }
    total
}

fn offer() -> Offer {
    Offer {
        drafter: 0,
        match_len: 3,
        bucket: Bucket::default(),
    }
}

#[test]
fn it_is_near_the_best_fixed_choice_and_never_much_worse_than_none() {
    println!(
        "machine, text, sequences: off, best fixed (guesses), controller, regret, against off"
    );
    for (machine_name, machine) in MACHINES {
        for (text_name, text) in TEXTS {
            for num_seqs in [1, 8] {
                let world = (machine, text, num_seqs);
                let fixed = |num: usize| run(world, |_, _| vec![num; num_seqs]);
                let times: Vec<f64> = (0..=DRAFT_LEN).map(fixed).collect();
                let best = (0..times.len()).min_by(|&a, &b| times[a].total_cmp(&times[b]));
                let best = best.unwrap();
                let own = run(world, |controller, requests| {
                    controller.begin();
                    for (number, request) in requests.iter().enumerate() {
                        let nodes = (1..=DRAFT_LEN).map(|depth| (depth, 0));
                        controller.offer(number as u32, offer(), request, nodes);
                    }
                    let mut kept = vec![0; num_seqs];
                    controller.decide(num_seqs, &mut kept);
                    kept
                });
                let regret = own / times[best] - 1.0;
                let against_off = own / times[0];
                println!(
                    "{machine_name}, {text_name}, {num_seqs}: {:.0}, {:.0} ({best}), {own:.0}, \
                     {:.1} %, {against_off:.3}",
                    times[0],
                    times[best],
                    100.0 * regret
                );
                assert!(regret < 0.05, "{machine_name}, {text_name}: {regret}");
                assert!(against_off < 1.03, "{machine_name}, {text_name}");
            }
        }
    }
}

#[test]
fn a_model_that_never_pays_is_probed_less_and_less() {
    let mut controller = Controller::default();
    let mut request = RequestEstimates::default();
    for rows in 1..=9 {
        controller.record_pass(rows, 1000 + 120 * rows as u64);
    }
    let mut num_drafted = 0;
    for _ in 0..1000 {
        let num = controller.num_model_drafts(offer(), &mut request, 4, 0.3);
        num_drafted += num;
        if num > 0 {
            controller.learn(offer(), &mut request, 0, true);
        }
    }
    // Each guess costs 0.3 passes and a row of 0.12.
    let cost = 0.42 * f64::from(num_drafted as u32) / 1000.0;
    println!("a hopeless model costs {:.1} % of 1000 steps", 100.0 * cost);
    assert!(cost < 0.05, "{num_drafted} guesses");
}
