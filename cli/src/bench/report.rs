//! Sections of numbers: as text and as JSON.
//!
//! Neighbours: `cache.rs` and `sched.rs` fill them; `html.rs` draws them.

use std::fmt;

use serde::Serialize;

/// What a bench measured, and on what.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) bench: &'static str,
    pub(super) model: String,
    pub(super) device: String,
    pub(super) num_cores: usize,
    pub(super) version: &'static str,
    pub(super) seed: u64,
    pub(super) is_quick: bool,
    pub(super) sections: Vec<Section>,
}

/// One comparison.
#[derive(Debug, Serialize)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) note: String,
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Row>,
    /// How to draw it.
    #[serde(skip)]
    pub(super) plot: Option<Plot>,
}

/// A value per column; nothing where nothing was measured.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) label: String,
    pub(super) values: Vec<Option<f64>>,
}

/// Which columns to draw, and in what unit.
#[derive(Debug)]
pub(super) enum Plot {
    /// A group of bars per row.
    Bars {
        columns: Vec<usize>,
        unit: &'static str,
    },
    /// A line per column over the rows, whose labels are numbers.
    Lines {
        columns: Vec<usize>,
        unit: &'static str,
    },
}

impl Report {
    /// What was measured where.
    pub(super) fn headline(&self) -> String {
        let quick = if self.is_quick { ", quick" } else { "" };
        format!(
            "bench {} of {} on {} ({} cores), forerun {}, seed {}{quick}",
            self.bench, self.model, self.device, self.num_cores, self.version, self.seed
        )
    }
}

/// A number with three or so digits that matter.
pub(super) fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.fract().abs() < 1e-9 && value.abs() < 1e9 => format!("{value:.0}"),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.headline())?;
        for section in &self.sections {
            write!(f, "\n{section}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}", self.title, self.note)?;
        let labels = self.rows.iter().map(|row| row.label.chars().count());
        let label_width = labels.max().unwrap_or(0);
        write!(f, "{:label_width$}", "")?;
        for column in &self.columns {
            write!(f, "  {column}")?;
        }
        writeln!(f)?;
        for row in &self.rows {
            write!(f, "{:label_width$}", row.label)?;
            for (column, &value) in self.columns.iter().zip(&row.values) {
                let width = column.chars().count();
                write!(f, "  {:>width$}", number(value))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
