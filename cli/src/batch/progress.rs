//! How a batch shows its progress, and its warnings, on standard error.
//!
//! Neighbours: `run_loop.rs` tells it the numbers; `mod.rs` decides whether it is shown.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time between two pictures.
const REFRESH: Duration = Duration::from_millis(100);

/// The numbers of a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tally {
    /// Bytes of the input read.
    pub(super) input_end: u64,
    pub(super) num_ok: u64,
    pub(super) num_errors: u64,
    pub(super) num_skipped: u64,
    pub(super) num_running: usize,
    pub(super) num_waiting: usize,
    /// Tokens generated since the start.
    pub(super) num_generated: u64,
    /// Of the KV blocks.
    pub(super) kv_used_share: f64,
}

/// A progress bar, or silence.
pub(super) struct Progress {
    bar: ProgressBar,
    is_quiet: bool,
    started: Instant,
    shown: Option<Instant>,
}

impl Progress {
    /// Shows nothing and warns of nothing.
    pub(super) fn quiet() -> Self {
        Self {
            bar: ProgressBar::hidden(),
            is_quiet: true,
            started: Instant::now(),
            shown: None,
        }
    }

    /// A bar over the bytes of the input, where their number is known. Only drawn on a terminal.
    pub(super) fn shown(input_len: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(input_len, ProgressDrawTarget::stderr());
        let template = if input_len.is_some() {
            "{bar:24} {percent:>3} % of the input | {msg}"
        } else {
            "{spinner} {msg}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self {
            bar,
            is_quiet: false,
            started: Instant::now(),
            shown: None,
        }
    }

    /// Shows `tally`, if the last picture is old enough.
    pub(super) fn show(&mut self, tally: Tally) {
        let is_fresh = self.shown.is_some_and(|shown| shown.elapsed() < REFRESH);
        if self.bar.is_hidden() || is_fresh {
            return;
        }
        self.shown = Some(Instant::now());
        self.bar.set_position(tally.input_end);
        self.bar.set_message(tally.message(self.started.elapsed()));
    }

    /// A line of warning above the bar.
    pub(super) fn warn(&self, message: &str) {
        if !self.is_quiet {
            self.bar.suspend(|| eprintln!("warning: {message}"));
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Tally {
    fn message(&self, elapsed: Duration) -> String {
        let part = |count: u64, what: &str| match count {
            0 => String::new(),
            count => format!(", {count} {what}"),
        };
        let seconds = elapsed.as_secs_f64();
        let speed = if seconds > 0.0 {
            self.num_generated as f64 / seconds
        } else {
            0.0
        };
        format!(
            "{} done{}{} | {speed:.1} tokens/s | {} running, {} waiting | KV {:.0} %",
            self.num_ok,
            part(self.num_errors, "errors"),
            part(self.num_skipped, "skipped"),
            self.num_running,
            self.num_waiting,
            100.0 * self.kv_used_share
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_what_there_is() {
        let tally = Tally {
            input_end: 0,
            num_ok: 12,
            num_errors: 1,
            num_skipped: 0,
            num_running: 8,
            num_waiting: 3,
            num_generated: 500,
            kv_used_share: 0.254,
        };
        assert_eq!(
            tally.message(Duration::from_secs(10)),
            "12 done, 1 errors | 50.0 tokens/s | 8 running, 3 waiting | KV 25 %"
        );
    }
}
