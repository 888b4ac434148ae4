//! Cells as sections.
//!
//! Neighbours: `numbers.rs` has the cells; `report.rs` of the benches prints and `html.rs` draws.

use forerun_engine::SpeculationReport;

use super::super::report::{Plot, Row, Section};
use super::numbers::{Cell, Speed};

/// Positions that are told.
const POSITIONS: [&str; 16] = [
    "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16",
];

/// Cells of one drafter at one temperature: speed, and acceptance by position.
pub(super) fn sections(title: &str, mut cells: Vec<Cell>, at_once: bool) -> Vec<Section> {
    let sum = Cell::sum("all", &cells);
    let note = note(&sum.speculation, at_once);
    if cells.len() > 1 {
        cells.push(sum);
    }
    let speed = speed_section(title, note, &cells, at_once);
    let mut sections = vec![speed];
    sections.extend(position_section(title, &cells));
    sections
}

fn speed_section(title: &str, note: String, cells: &[Cell], at_once: bool) -> Section {
    let mut columns = vec![
        "drafted",
        "acceptance",
        "emitted/pass",
        "tokens/s off",
        "tokens/s on",
        "speed-up",
        "min",
        "max",
        "same",
    ];
    if at_once {
        columns.extend([
            "tokens/s off, with prompts",
            "on, with prompts",
            "speed-up, with prompts",
            "least",
            "most",
        ]);
    }
    let row = |cell: &Cell| {
        let mut values = vec![cell.drafted_share(), cell.acceptance(), cell.emitted()];
        values.extend(of_speed(cell.decode()));
        values.push(cell.same_share());
        if at_once {
            values.extend(of_speed(cell.whole()));
        }
        Row {
            label: cell.label.clone(),
            values,
        }
    };
    Section {
        title: title.to_owned(),
        note,
        columns,
        rows: cells.iter().map(row).collect(),
        plot: Some(Plot::Bars {
            columns: vec![5, 2],
            unit: "speed-up, and tokens per decode pass",
        }),
    }
}

fn of_speed(speed: Speed) -> [Option<f64>; 5] {
    [
        speed.off,
        speed.on,
        speed.ratio,
        speed.ratio_min,
        speed.ratio_max,
    ]
}

/// None if there were no drafts.
fn position_section(title: &str, cells: &[Cell]) -> Option<Section> {
    let positions = cells.iter().map(|cell| cell.acceptance_by_position().len());
    let num_positions = positions.max().unwrap_or(0).min(POSITIONS.len());
    if num_positions == 0 {
        return None;
    }
    let row = |cell: &Cell| {
        let mut values = cell.acceptance_by_position();
        values.resize(num_positions, None);
        Row {
            label: cell.label.clone(),
            values,
        }
    };
    Some(Section {
        title: format!("{title}: acceptance by position"),
        note:
            "Share of the drafts that were long enough whose token at this position was accepted, \
               which needs all before it."
                .to_owned(),
        columns: POSITIONS[..num_positions].to_vec(),
        rows: cells.iter().map(row).collect(),
        plot: Some(Plot::Bars {
            columns: [0, 1, 3]
                .into_iter()
                .filter(|&position| position < num_positions)
                .collect(),
            unit: "share accepted at positions",
        }),
    })
}

/// How much was drafted and by whom.
fn note(report: &SpeculationReport, at_once: bool) -> String {
    let passes = report.decode_passes;
    let mut note = format!(
        "Drafts in {} of {passes} decode passes ({:.0} %)",
        report.drafts,
        100.0 * report.drafts as f64 / passes.max(1) as f64
    );
    let by = report.drafters.iter();
    let by: Vec<String> = by.map(|(name, count)| format!("{name} {count}")).collect();
    if !by.is_empty() {
        note = format!("{note}, by {}", by.join(", "));
    }
    if let Some(reason) = report.refused {
        note = format!("{note}; refused: {reason}");
    }
    let measured = if at_once {
        "Tokens of all requests: per second of the time after the last prompt was read, and of the \
         whole time."
    } else {
        "Tokens per second from the first token to the last."
    };
    format!(
        "{note}. {measured} Speed-up is the median over repeats of on against off; `same` is the share \
         of answers whose tokens are those of off."
    )
}
