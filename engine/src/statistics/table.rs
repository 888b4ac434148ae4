//! The statistics as two tables of at most 100 columns: the engine, and the buckets of requests.
//!
//! Neighbours: prints `report.rs`, for `forerun batch --stats`.

use std::fmt;

use super::SamplingKind;
use super::report::{
    BucketReport, Distribution, EngineReport, MeanMax, PrefixReport, RequestsReport,
    StatisticsReport, TenantLabel,
};

/// Columns that a tenant's name may take.
const TENANT_WIDTH: usize = 12;

impl fmt::Display for StatisticsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        engine_table(f, self)?;
        writeln!(f)?;
        bucket_table(f, self)
    }
}

/// One line per number: a label, then what it is.
fn engine_table(f: &mut fmt::Formatter<'_>, report: &StatisticsReport) -> fmt::Result {
    let StatisticsReport {
        engine, requests, ..
    } = report;
    row(f, "steps", &engine.num_steps.to_string())?;
    row(f, "tokens per step", &tokens_per_step(engine))?;
    for bin in &engine.tokens_per_step_bins {
        let range = if bin.low == bin.high {
            format!("  {} tokens", bin.low)
        } else {
            format!("  {} to {} tokens", bin.low, bin.high)
        };
        let share = bin.count as f64 / engine.num_steps as f64;
        row(
            f,
            &range,
            &format!("{} steps, {}", bin.count, percent(share)),
        )?;
    }
    row(
        f,
        "sequences per step",
        &mean_max(engine.seqs_per_step, |value| format!("{value:.1}")),
    )?;
    row(f, "tokens emitted", &engine.emitted_tokens.to_string())?;
    row(f, "requests ended", &requests.num_requests.to_string())?;
    row(
        f,
        "  their prompt tokens",
        &requests.prompt_tokens.to_string(),
    )?;
    row(
        f,
        "  their output tokens",
        &requests.completion_tokens.to_string(),
    )?;
    if let Some(parked) = requests.parked_us {
        let parked_text = format!(
            "{} requests, P50 {}, P95 {}, P99 {}",
            parked.count,
            time(parked.p50),
            time(parked.p95),
            time(parked.p99)
        );
        row(f, "  parked", &parked_text)?;
    }
    row(f, "saved prefill tokens", &saved(&engine.prefix))?;
    row(
        f,
        "  after preemptions",
        &requests.recomputed_cached_tokens.to_string(),
    )?;
    row(f, "prefix misses", &misses(&engine.prefix))?;
    row(
        f,
        "KV blocks in use",
        &mean_max(engine.kv_used_share, percent),
    )?;
    row(
        f,
        "KV slots wasted",
        &mean_max(engine.kv_waste_share, percent),
    )?;
    row(f, "preemptions", &engine.num_preemptions.to_string())?;
    let most = format!(
        "{} running, {} waiting, {} parked",
        engine.num_running_max, engine.num_waiting_max, engine.num_parked_max
    );
    row(f, "most at a time", &most)
}

fn row(f: &mut fmt::Formatter<'_>, label: &str, value: &str) -> fmt::Result {
    writeln!(f, "{label:<24}  {value}")
}

fn tokens_per_step(engine: &EngineReport) -> String {
    engine.tokens_per_step.map_or_else(none, |tokens| {
        format!(
            "mean {:.1}, P50 {}, P95 {}, P99 {}, max {}",
            tokens.mean, tokens.p50, tokens.p95, tokens.p99, tokens.max
        )
    })
}

fn saved(prefix: &PrefixReport) -> String {
    let share = prefix.hit_share.map_or_else(none, percent);
    format!(
        "{} of {} looked up, {share}",
        prefix.saved_prefill_tokens, prefix.looked_up_tokens
    )
}

fn misses(prefix: &PrefixReport) -> String {
    let counts = &prefix.misses;
    let reasons = [
        ("first seen", counts.num_first_seen),
        ("other tokens", counts.num_tokens),
        ("other tenant", counts.num_other_tenant),
        ("evicted", counts.num_evicted),
        ("cache off", counts.num_disabled),
    ];
    let parts: Vec<String> = reasons
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| format!("{} {reason}", integer(*count)))
        .collect();
    if parts.is_empty() {
        return none();
    }
    parts.join(", ")
}

fn mean_max(values: Option<MeanMax>, show: impl Fn(f64) -> String) -> String {
    values.map_or_else(none, |values| {
        format!("mean {}, max {}", show(values.mean), show(values.max))
    })
}

/// Three lines per bucket, one for each quantile, and three for all requests together.
fn bucket_table(f: &mut fmt::Formatter<'_>, report: &StatisticsReport) -> fmt::Result {
    let heads = ["TTFT", "TPOT", "queue", "total", "cached", "preempt"];
    let key = bucket_key(["sampling", "prompt", "output", "tenant", "requests"]);
    writeln!(f, "{}", line(&key, "", heads.map(str::to_owned)))?;
    for bucket in &report.buckets {
        bucket_rows(f, &key_of(bucket), &bucket.requests)?;
    }
    let num_requests = integer(report.requests.num_requests);
    let key = bucket_key(["all", "", "", "", &num_requests]);
    bucket_rows(f, &key, &report.requests)
}

/// One of the quantiles of a distribution.
type Quantile = fn(Distribution) -> u64;

fn bucket_rows(f: &mut fmt::Formatter<'_>, key: &str, requests: &RequestsReport) -> fmt::Result {
    let quantiles: [(&str, Quantile); 3] = [
        ("P50", |values| values.p50),
        ("P95", |values| values.p95),
        ("P99", |values| values.p99),
    ];
    for (index, (name, quantile)) in quantiles.into_iter().enumerate() {
        let cell = |values: Option<Distribution>, show: fn(u64) -> String| {
            values.map_or_else(none, |values| show(quantile(values)))
        };
        let cells = [
            cell(requests.ttft_us, time),
            cell(requests.tpot_us, time),
            cell(requests.queue_us, time),
            cell(requests.total_us, time),
            cell(requests.cached_tokens, integer),
            cell(requests.preemptions, integer),
        ];
        let key = if index == 0 { key } else { "" };
        writeln!(f, "{}", line(key, name, cells))?;
    }
    Ok(())
}

/// One line of the table of buckets, 99 columns: 46 of key, 4 of quantile, 7 of each measure.
fn line(key: &str, quantile: &str, cells: [String; 6]) -> String {
    let cells = cells.map(|cell| format!("{cell:>7}")).join(" ");
    format!("{key:<46} {quantile:<3} {cells}")
}

fn bucket_key(columns: [&str; 5]) -> String {
    let [kind, prompt_len, output_len, tenant, num_requests] = columns;
    format!("{kind:<10} {prompt_len:>6} {output_len:>6} {tenant:<TENANT_WIDTH$} {num_requests:>8}")
}

fn key_of(bucket: &BucketReport) -> String {
    bucket_key([
        match bucket.kind {
            SamplingKind::Greedy => "greedy",
            SamplingKind::Sampled => "sampled",
            SamplingKind::Structured => "structured",
            SamplingKind::Beam => "beam",
        },
        bucket.prompt_len.label(),
        bucket.output_len.label(),
        &tenant(&bucket.tenant),
        &integer(bucket.requests.num_requests),
    ])
}

/// A tenant's name, in so few and so plain characters that it can neither break the table nor
/// command a terminal. The JSON form has it in full.
fn tenant(label: &TenantLabel) -> String {
    let name = match label {
        TenantLabel::Nobody => "-",
        TenantLabel::Other => "(other)",
        TenantLabel::Named(name) => name,
    };
    let is_plain = |c: char| c.is_ascii_graphic() || c == ' ';
    let mut shown: String = name
        .chars()
        .take(TENANT_WIDTH + 1)
        .map(|c| if is_plain(c) { c } else { '?' })
        .collect();
    if shown.len() > TENANT_WIDTH {
        shown.truncate(TENANT_WIDTH - 1);
        shown.push('~');
    }
    shown
}

/// Microseconds in three digits and a unit.
fn time(us: u64) -> String {
    const US_PER_HOUR: f64 = 3.6e9;
    let value = us as f64;
    match us {
        0..1_000 => format!("{us}us"),
        1_000..999_500 => format!("{}ms", three_digits(value / 1e3)),
        999_500..=99_999_000_000 => format!("{}s", three_digits(value / 1e6)),
        _ => format!("{}h", three_digits(value / US_PER_HOUR)),
    }
}

/// A number of at most seven characters.
fn integer(value: u64) -> String {
    match value {
        0..10_000_000 => value.to_string(),
        10_000_000..10_000_000_000 => format!("{}M", three_digits(value as f64 / 1e6)),
        _ => format!("{}G", three_digits(value as f64 / 1e9)),
    }
}

/// Three digits, more only before the point.
fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// Stands where nothing was measured.
fn none() -> String {
    "-".to_owned()
}
