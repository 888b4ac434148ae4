//! What ran where.

use super::{Case, TestDevice};
use std::collections::BTreeMap;
use std::fmt;

/// How an op did on a device.
#[derive(Clone, Debug, Default)]
struct Cell {
    num_ran: usize,
    worst_error: f32,
    failures: Vec<String>,
}

/// The outcome of many cases on one or several devices.
#[derive(Clone, Debug, Default)]
pub struct Report {
    cells: BTreeMap<(&'static str, TestDevice), Cell>,
    unsupported: BTreeMap<TestDevice, String>,
}

impl Report {
    /// Records a case.
    pub fn add(&mut self, device: TestDevice, case: &Case, outcome: Result<f32, String>) {
        let cell = self.cells.entry((case.op, device)).or_default();
        match outcome {
            Ok(error) => {
                cell.num_ran += 1;
                cell.worst_error = cell.worst_error.max(error);
            }
            Err(reason) => cell.failures.push(format!("{}: {reason}", case.name)),
        }
    }

    /// Records that a device is not there.
    pub fn unsupported(&mut self, device: TestDevice, reason: String) {
        self.unsupported.insert(device, reason);
    }

    /// Adds what another report says.
    pub fn merge(&mut self, other: Self) {
        self.cells.extend(other.cells);
        self.unsupported.extend(other.unsupported);
    }

    /// Why this report is not good enough, if `expected` devices must have run every op.
    pub fn shortcomings(&self, expected: &[TestDevice]) -> Vec<String> {
        let mut reasons = Vec::new();
        for (&(op, device), cell) in &self.cells {
            for failure in &cell.failures {
                reasons.push(format!("{op} on {}: {failure}", device.name()));
            }
        }
        for device in expected {
            if let Some(reason) = self.unsupported.get(device) {
                reasons.push(format!("{} was expected to run: {reason}", device.name()));
            } else if !self.cells.keys().any(|(_, ran)| ran == device) {
                reasons.push(format!(
                    "{} was expected to run and was not tried",
                    device.name()
                ));
            }
        }
        reasons
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:<6} {:>6}  worst error",
            "op", "device", "cases"
        )?;
        for (&(op, device), cell) in &self.cells {
            let verdict = if cell.failures.is_empty() {
                "ran"
            } else {
                "FAILED"
            };
            writeln!(
                f,
                "{op:<16} {:<6} {:>6}  {:<11.1e} {verdict}",
                device.name(),
                cell.num_ran + cell.failures.len(),
                cell.worst_error,
            )?;
            for failure in &cell.failures {
                writeln!(f, "    {failure}")?;
            }
        }
        for (device, reason) in &self.unsupported {
            writeln!(
                f,
                "{:<16} {:<6} unsupported: {reason}",
                "every op",
                device.name()
            )?;
        }
        Ok(())
    }
}
