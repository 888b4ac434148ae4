use super::*;

fn at(us: u64) -> Timestamp {
    Timestamp(us)
}

/// Three steps, three lookups and three requests, small enough to be computed by hand.
fn scenario() -> Statistics {
    let mut statistics = Statistics::default();
    let crowded = StepFacts {
        num_tokens: 100,
        num_seqs: 2,
        num_emitted: 1,
        num_running: 2,
        num_waiting: 3,
        num_parked: 1,
        blocks_used: 10,
        blocks_usable: 40,
        slots_allocated: 160,
        slots_filled: 120,
        num_preempted: 0,
    };
    let fuller = StepFacts {
        num_tokens: 3,
        num_seqs: 2,
        num_emitted: 2,
        num_waiting: 1,
        blocks_used: 20,
        slots_filled: 156,
        num_preempted: 1,
        ..crowded
    };
    let empty = StepFacts {
        num_tokens: 2,
        num_seqs: 1,
        num_emitted: 1,
        blocks_usable: 40,
        ..StepFacts::default()
    };
    for step in [crowded, fuller, empty] {
        statistics.record_step(&step);
    }
    statistics.record_prefix(100, 64, MissKind::Tokens);
    statistics.record_prefix(48, 48, MissKind::None);
    statistics.record_prefix(30, 0, MissKind::FirstSeen);

    let mut greedy = RequestFacts::new(at(1_000), SamplingKind::Greedy, 64, None);
    greedy.admitted(at(3_000), 48);
    for us in [11_000, 21_000, 32_000] {
        greedy.token(at(us));
    }
    statistics.record_finished(&greedy, at(32_000), 3);

    let tenant = Some("acme".to_owned());
    let mut structured = RequestFacts::new(at(0), SamplingKind::Sampled, 300, tenant);
    structured.set_structured();
    structured.promoted(at(5_000));
    structured.admitted(at(6_000), 0);
    structured.preempted();
    structured.admitted(at(20_000), 32);
    structured.token(at(30_000));
    statistics.record_finished(&structured, at(30_500), 1);

    let aborted = RequestFacts::new(at(10_000), SamplingKind::Greedy, 65, None);
    statistics.record_finished(&aborted, at(40_000), 0);
    statistics
}

/// A distribution of one value.
fn single(value: u64) -> Distribution {
    Distribution {
        count: 1,
        mean: value as f64,
        min: value,
        p50: value,
        p95: value,
        p99: value,
        max: value,
    }
}

#[test]
fn steps_and_lookups_add_up_to_what_was_computed_by_hand() {
    let engine = scenario().report().engine;
    assert_eq!(engine.num_steps, 3);
    let tokens = engine.tokens_per_step.unwrap();
    assert_eq!((tokens.min, tokens.p50, tokens.p99), (2, 3, 100));
    assert!((tokens.mean - 35.0).abs() < 1e-12);
    let bin = |low, high, count| Bin { low, high, count };
    assert_eq!(engine.tokens_per_step_bins, [bin(2, 3, 2), bin(64, 127, 1)]);
    let close = |found: Option<MeanMax>, mean: f64, max: f64| {
        let found = found.unwrap();
        assert!((found.mean - mean).abs() < 1e-12 && (found.max - max).abs() < 1e-12);
    };
    close(engine.seqs_per_step, 5.0 / 3.0, 2.0);
    close(engine.kv_used_share, 0.25, 0.5);
    // The step without blocks has no share of waste: (25 % + 2.5 %) / 2.
    close(engine.kv_waste_share, 0.1375, 0.25);
    assert_eq!((engine.emitted_tokens, engine.num_preemptions), (4, 1));
    assert_eq!(engine.num_running_max, 2);
    assert_eq!((engine.num_waiting_max, engine.num_parked_max), (3, 1));
    let prefix = engine.prefix;
    assert_eq!((prefix.num_lookups, prefix.looked_up_tokens), (3, 178));
    assert_eq!(prefix.saved_prefill_tokens, 112);
    assert!((prefix.hit_share.unwrap() - 112.0 / 178.0).abs() < 1e-12);
    let misses = MissCounts {
        num_tokens: 1,
        num_first_seen: 1,
        ..MissCounts::default()
    };
    assert_eq!(prefix.misses, misses);
}

#[test]
fn requests_are_measured_in_their_buckets_as_computed_by_hand() {
    let report = scenario().report();
    let [greedy, aborted, structured] = report.buckets.try_into().unwrap();
    assert_eq!(
        (greedy.kind, greedy.prompt_len, greedy.output_len),
        (SamplingKind::Greedy, LengthClass::To64, LengthClass::To64)
    );
    assert_eq!(greedy.tenant, TenantLabel::Nobody);
    let found = greedy.requests;
    assert_eq!(found.ttft_us, Some(single(10_000)));
    assert_eq!(found.tpot_us, Some(single(10_500)));
    assert_eq!(found.queue_us, Some(single(2_000)));
    assert_eq!(found.parked_us, None);
    assert_eq!(found.total_us, Some(single(31_000)));
    assert_eq!(found.cached_tokens, Some(single(48)));
    assert_eq!(found.preemptions, Some(single(0)));
    assert_eq!((found.prompt_tokens, found.completion_tokens), (64, 3));

    assert_eq!(aborted.prompt_len, LengthClass::To256);
    let found = aborted.requests;
    assert_eq!((found.ttft_us, found.queue_us), (None, None));
    assert_eq!(found.cached_tokens, None);
    assert_eq!(found.total_us, Some(single(30_000)));

    assert_eq!(structured.kind, SamplingKind::Structured);
    assert_eq!(structured.prompt_len, LengthClass::To1024);
    assert_eq!(structured.tenant, TenantLabel::Named("acme".to_owned()));
    let found = structured.requests;
    assert_eq!(found.ttft_us, Some(single(30_000)));
    assert_eq!(found.tpot_us, None, "one token has no time per token");
    assert_eq!(found.queue_us, Some(single(1_000)));
    assert_eq!(found.parked_us, Some(single(5_000)));
    assert_eq!(
        found.cached_tokens,
        Some(single(0)),
        "the first admission counts"
    );
    assert_eq!(found.recomputed_cached_tokens, 32);
    assert_eq!(found.preemptions, Some(single(1)));

    assert_eq!(report.requests.num_requests, 3);
    assert_eq!(report.requests.total_us.unwrap().count, 3);
    assert_eq!(report.requests.ttft_us.unwrap().max, 30_000);
    assert_eq!(report.requests.prompt_tokens, 429);
}

#[test]
fn the_printed_form_is_two_tables_within_100_columns() {
    let mut statistics = scenario();
    let tenant = Some("a\u{1b}name that is too long".to_owned());
    let mut slow = RequestFacts::new(at(0), SamplingKind::Beam, 5_000, tenant);
    slow.admitted(at(99_000_000_000), 12_345_678);
    slow.token(at(400_000_000_000));
    statistics.record_finished(&slow, at(u64::from(u32::MAX) * 1_000), 4_097);
    let printed = statistics.report().to_string();
    for line in printed.lines() {
        assert!(line.len() <= 100, "{} columns: {line}", line.len());
        assert!(line.chars().all(|c| !c.is_control()));
    }
    let (engine, buckets) = printed.split_once("\n\n").unwrap();
    assert_eq!(engine, ENGINE_TABLE.trim());
    let buckets: Vec<&str> = buckets.lines().map(str::trim_end).collect();
    assert_eq!(buckets.join("\n"), BUCKET_TABLE.trim());
}

const ENGINE_TABLE: &str = "
steps                     3
tokens per step           mean 35.0, P50 3, P95 100, P99 100, max 100
  2 to 3 tokens           2 steps, 66.7%
  64 to 127 tokens        1 steps, 33.3%
sequences per step        mean 1.7, max 2.0
tokens emitted            4
requests ended            4
  their prompt tokens     5429
  their output tokens     4101
  parked                  1 requests, P50 5.00ms, P95 5.00ms, P99 5.00ms
saved prefill tokens      112 of 178 looked up, 62.9%
  after preemptions       32
prefix misses             1 first seen, 1 other tokens
KV blocks in use          mean 25.0%, max 50.0%
KV slots wasted           mean 13.8%, max 25.0%
preemptions               1
most at a time            2 running, 3 waiting, 1 parked
";

/// Quantiles that are not the greatest value are middles of histogram cells: 30,080 us for 30,000.
const BUCKET_TABLE: &str = "
sampling   prompt output tenant       requests        TTFT    TPOT   queue   total  cached preempt
greedy       <=64   <=64 -                   1 P50  10.0ms  10.5ms  2.00ms  31.0ms      48       0
                                               P95  10.0ms  10.5ms  2.00ms  31.0ms      48       0
                                               P99  10.0ms  10.5ms  2.00ms  31.0ms      48       0
greedy      <=256   <=64 -                   1 P50       -       -       -  30.0ms       -       0
                                               P95       -       -       -  30.0ms       -       0
                                               P99       -       -       -  30.0ms       -       0
structured   <=1k   <=64 acme                1 P50  30.0ms       -  1.00ms  30.5ms       0       1
                                               P95  30.0ms       -  1.00ms  30.5ms       0       1
                                               P99  30.0ms       -  1.00ms  30.5ms       0       1
beam          >4k    >4k a?name that~        1 P50    111h       -  99000s   1193h   12.3M       0
                                               P95    111h       -  99000s   1193h   12.3M       0
                                               P99    111h       -  99000s   1193h   12.3M       0
all                                          4 P50  30.1ms  10.5ms  2.01ms  30.6ms      48       0
                                               P95    111h  10.5ms  99000s   1193h   12.3M       1
                                               P99    111h  10.5ms  99000s   1193h   12.3M       1
";

#[test]
fn nothing_measured_is_printed_as_such_and_divides_by_nothing() {
    let report = Statistics::default().report();
    assert_eq!(report.engine.tokens_per_step, None);
    assert_eq!(report.engine.kv_used_share, None);
    assert_eq!(report.engine.prefix.hit_share, None);
    assert!(report.buckets.is_empty());
    let printed = report.to_string();
    assert!(
        printed.contains("tokens per step           -\n"),
        "{printed}"
    );
    assert!(!printed.contains("NaN"), "{printed}");
}

#[test]
fn the_json_form_has_units_in_its_names_and_null_for_what_never_came() {
    let json = serde_json::to_value(scenario().report()).unwrap();
    assert_eq!(json["engine"]["tokens_per_step"]["p50"], 3);
    assert_eq!(json["engine"]["tokens_per_step_bins"][1]["low"], 64);
    assert_eq!(json["engine"]["kv_used_share"]["max"], 0.5);
    assert_eq!(json["engine"]["prefix"]["saved_prefill_tokens"], 112);
    assert_eq!(json["engine"]["prefix"]["misses"]["num_first_seen"], 1);
    assert_eq!(json["requests"]["num_requests"], 3);
    let [greedy, _, structured] = [0, 1, 2].map(|index| &json["buckets"][index]);
    assert_eq!(greedy["kind"], "greedy");
    assert_eq!(greedy["prompt_len"], "<=64");
    assert_eq!(greedy["tenant"], "nobody");
    assert_eq!(greedy["requests"]["ttft_us"]["p99"], 10_000);
    assert_eq!(structured["tenant"]["named"], "acme");
    assert!(structured["requests"]["tpot_us"].is_null());
}

#[test]
fn tenants_beyond_the_limit_share_one_bucket() {
    let mut statistics = Statistics::default();
    let names = (0..bucket::TENANTS_MAX + 10).map(|index| format!("tenant {index}"));
    for name in names.clone().chain(names) {
        let facts = RequestFacts::new(at(0), SamplingKind::Greedy, 1, Some(name));
        statistics.record_finished(&facts, at(1), 1);
    }
    let report = statistics.report();
    let (other, named) = report.buckets.split_last().unwrap();
    assert_eq!(other.tenant, TenantLabel::Other);
    assert_eq!(other.requests.num_requests, 20);
    assert_eq!(named.len(), bucket::TENANTS_MAX);
    for (index, bucket) in named.iter().enumerate() {
        let name = format!("tenant {index}");
        assert_eq!(bucket.tenant, TenantLabel::Named(name));
        assert_eq!(bucket.requests.num_requests, 2);
    }
}

#[test]
fn length_classes_end_at_powers_of_four() {
    let limits = [(64, "<=64"), (256, "<=256"), (1024, "<=1k"), (4096, "<=4k")];
    for (index, (limit, label)) in limits.into_iter().enumerate() {
        assert_eq!(LengthClass::of(limit).to_string(), label);
        let next = limits.get(index + 1).map_or(">4k", |(_, label)| label);
        assert_eq!(LengthClass::of(limit + 1).to_string(), next);
    }
    assert_eq!(LengthClass::of(0), LengthClass::To64);
}

#[test]
fn a_clock_that_runs_backwards_gives_zero() {
    let mut facts = RequestFacts::new(at(50), SamplingKind::Sampled, 1, None);
    facts.promoted(at(40));
    facts.admitted(at(30), 0);
    facts.token(at(20));
    facts.token(at(10));
    let mut statistics = Statistics::default();
    statistics.record_finished(&facts, at(0), 2);
    let found = statistics.report().requests;
    for measure in [
        found.ttft_us,
        found.tpot_us,
        found.queue_us,
        found.parked_us,
        found.total_us,
    ] {
        assert_eq!(measure, Some(single(0)));
    }
}

#[test]
#[should_panic(expected = "5 slots filled of 4")]
fn more_slots_filled_than_allocated_is_a_bug_of_the_caller() {
    Statistics::default().record_step(&StepFacts {
        slots_allocated: 4,
        slots_filled: 5,
        ..StepFacts::default()
    });
}
