//! What a person sees of a pull: a bar on a terminal, a few lines elsewhere, nothing when quiet.
//! Everything goes to stderr, because stdout belongs to the command's result.
//!
//! Neighbours: `download.rs` moves the bar.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How much a pull tells about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A bar where stderr is a terminal, and a line for each file and each surprise.
    Shown,
    /// Nothing: errors are returned, not printed.
    Quiet,
}

impl Progress {
    /// One line about what is happening.
    pub(super) fn note(self, line: &str) {
        if self == Self::Shown {
            eprintln!("{line}");
        }
    }

    /// A bar for a file of `total` bytes of which `done` are already here. indicatif hides it where
    /// stderr is no terminal.
    pub(super) fn bar(self, label: &str, total: Option<u64>, done: u64) -> ProgressBar {
        if self == Self::Quiet {
            return ProgressBar::hidden();
        }
        let template = match total {
            Some(_) => "{msg} {bar:24} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            None => "{msg} {spinner} {bytes} {bytes_per_sec}",
        };
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = match total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::new_spinner(),
        };
        bar.set_style(style);
        bar.set_message(label.to_owned());
        bar.set_position(done);
        // Resumed bytes took no time: without this the speed would start absurdly high.
        bar.reset_eta();
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }
}
