//! The benches over a fake model: what they claim must hold there too.

use super::report::{Report, Section};
use super::workload::Workload;
use super::{Bench, NUM_SEQS_MAX, STEP_TOKENS_MAX, cache, html, sched};
use crate::fakes::{self, FakeExecutor, VOCAB_SIZE};

fn bench(executor: &mut FakeExecutor) -> Bench<'_, FakeExecutor> {
    let mut config = fakes::config();
    config.block_size = 16;
    config.groups[0].num_blocks = 1024;
    config.max_seq_len = 4096;
    config.step_seqs_max = NUM_SEQS_MAX;
    config.step_tokens_max = STEP_TOKENS_MAX;
    config.scheduling.waiting_max = usize::MAX;
    Bench {
        executor,
        config,
        workload: Workload::new(1, VOCAB_SIZE),
        is_quick: true,
    }
}

fn value(section: &Section, row: usize, column: &str) -> f64 {
    let column = section
        .columns
        .iter()
        .position(|name| *name == column)
        .unwrap();
    section.rows[row].values[column].unwrap()
}

#[test]
fn the_prefix_cache_saves_prefill_in_every_workload_and_changes_no_answer() {
    let sections = cache::run(&mut bench(&mut FakeExecutor::default())).unwrap();
    for row in 0..3 {
        assert!(value(&sections[0], row, "saved") > 0.3, "{}", sections[0]);
        assert!(value(&sections[0], row, "same answers") > 0.999);
    }
}

#[test]
fn samples_hold_fewer_blocks_than_separate_requests() {
    let sections = cache::run(&mut bench(&mut FakeExecutor::default())).unwrap();
    for row in 0..3 {
        assert!(
            value(&sections[1], row, "saved by samples") > 0.2,
            "{}",
            sections[1]
        );
    }
}

#[test]
fn continuous_batches_take_fewer_steps_and_little_is_wasted() {
    let sections = sched::run(&mut bench(&mut FakeExecutor::default())).unwrap();
    let steps = |row| value(&sections[0], row, "steps");
    assert!(steps(1) < steps(0), "{}", sections[0]);
    let waste_at_16 = value(&sections[2], 2, "waste %, mean over steps");
    assert_eq!(sections[2].rows[2].label, "16");
    assert!(waste_at_16 < 4.0, "{}", sections[2]);
    let waste_at_1 = value(&sections[2], 0, "waste %, mean over steps");
    assert!(
        waste_at_1 < 0.5,
        "a block of one token wastes nothing: {}",
        sections[2]
    );
}

#[test]
fn the_page_has_every_number_and_needs_nothing_from_elsewhere() {
    let report = Report {
        bench: "sched",
        model: "a<b".to_owned(),
        device: "cpu".to_owned(),
        num_cores: 2,
        version: "0",
        seed: 1,
        is_quick: true,
        sections: sched::run(&mut bench(&mut FakeExecutor::default())).unwrap(),
    };
    let page = html::page(&report);
    assert!(page.contains("a&lt;b") && !page.contains("a<b"));
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(
        !page.contains("http") && !page.contains("<script"),
        "nothing is loaded"
    );
    for row in report.sections.iter().flat_map(|section| &section.rows) {
        assert!(page.contains(&format!("<td>{}</td>", row.label)));
    }
}
