//! The report as one page: tables and plots in SVG, nothing from elsewhere.
//!
//! Neighbours: `report.rs` has the numbers.

use std::fmt::Write;

use super::report::{Plot, Report, Section, number};

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}\
td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd;font-weight:normal}\
th{border-bottom:2px solid #888;vertical-align:bottom}\
td:first-child,th:first-child{text-align:left}\
svg{display:block;max-width:100%}";

/// Colours that also differ in grey.
const COLOURS: [&str; 4] = ["#1b6ca8", "#e8a33d", "#3a9d5d", "#a33b5e"];

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
/// Room for the numbers at the left and the labels below.
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 50.0;
const TOP: f64 = 30.0;

/// The page.
pub(super) fn page(report: &Report) -> String {
    let headline = escaped(&report.headline());
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>{headline}</title><style>{STYLE}</style></head>\n<body>\n<h1>{headline}</h1>\n"
    );
    for section in &report.sections {
        page.push_str(&section_html(section));
    }
    page.push_str("</body></html>\n");
    page
}

fn section_html(section: &Section) -> String {
    let mut html = format!(
        "<h2>{}</h2>\n<p>{}</p>\n",
        escaped(&section.title),
        escaped(&section.note)
    );
    if let Some(plot) = &section.plot {
        html.push_str(&svg(section, plot));
    }
    html.push_str("<table>\n<tr><th></th>");
    for column in &section.columns {
        put(&mut html, format_args!("<th>{}</th>", escaped(column)));
    }
    html.push_str("</tr>\n");
    for row in &section.rows {
        put(
            &mut html,
            format_args!("<tr><td>{}</td>", escaped(&row.label)),
        );
        for &value in &row.values {
            put(&mut html, format_args!("<td>{}</td>", number(value)));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
    html
}

/// Writing to a text cannot fail.
fn put(html: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = html.write_fmt(what);
}

/// The plot of a section, where its numbers lie.
struct Canvas<'a> {
    section: &'a Section,
    columns: &'a [usize],
    unit: &'a str,
    /// The greatest value.
    most: f64,
    /// Width for one row.
    slot: f64,
}

fn svg(section: &Section, plot: &Plot) -> String {
    let (Plot::Bars { columns, unit } | Plot::Lines { columns, unit }) = plot;
    let mut canvas = Canvas {
        section,
        columns,
        unit,
        most: 1.0,
        slot: (WIDTH - LEFT) / section.rows.len().max(1) as f64,
    };
    let values = columns.iter().flat_map(|&column| canvas.values(column));
    let most = values.map(|(_, value)| value).fold(0.0, f64::max);
    if most > 0.0 {
        canvas.most = most;
    }
    let mut svg = canvas.axes();
    for (series, (&column, colour)) in columns.iter().zip(COLOURS).enumerate() {
        match plot {
            Plot::Bars { .. } => canvas.bars(&mut svg, series, colour),
            Plot::Lines { .. } => canvas.line(&mut svg, column, colour),
        }
        canvas.legend(&mut svg, series, colour);
    }
    svg.push_str("</svg>\n");
    svg
}

impl Canvas<'_> {
    /// The values of a column, each with its row.
    fn values(&self, column: usize) -> impl Iterator<Item = (usize, f64)> {
        let rows = self.section.rows.iter().enumerate();
        rows.filter_map(move |(index, row)| Some((index, (*row.values.get(column)?)?)))
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / self.most
    }

    fn middle(&self, row: usize) -> f64 {
        LEFT + self.slot * (row as f64 + 0.5)
    }

    fn axes(&self) -> String {
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" role=\"img\" font-size=\"12\">\n\
             <text x=\"{LEFT}\" y=\"14\" fill=\"#555\">{}</text>\n",
            escaped(self.unit)
        );
        for share in [0.0, 0.5, 1.0] {
            let value = self.most * share;
            let y = self.y(value);
            let mark = format_args!(
                "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                LEFT - 6.0,
                y + 4.0,
                number(Some(value))
            );
            put(&mut svg, mark);
        }
        for (index, row) in self.section.rows.iter().enumerate() {
            // The part before a colon is the name, what follows explains it.
            let label = row.label.split(':').next().unwrap_or_default();
            let text = format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
                self.middle(index),
                HEIGHT - BOTTOM + 18.0,
                escaped(label)
            );
            put(&mut svg, text);
        }
        svg
    }

    fn bars(&self, svg: &mut String, series: usize, colour: &str) {
        let width = self.slot * 0.7 / self.columns.len() as f64;
        let first = -self.slot * 0.35 + width * series as f64;
        for (row, value) in self.values(self.columns[series]) {
            let top = self.y(value);
            let bar = format_args!(
                "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                 fill=\"{colour}\"/>\n",
                self.middle(row) + first,
                width * 0.92,
                self.y(0.0) - top
            );
            put(svg, bar);
        }
    }

    fn line(&self, svg: &mut String, column: usize, colour: &str) {
        let points: Vec<String> = self
            .values(column)
            .map(|(row, value)| format!("{:.1},{:.1}", self.middle(row), self.y(value)))
            .collect();
        let line = format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n",
            points.join(" ")
        );
        put(svg, line);
    }

    fn legend(&self, svg: &mut String, series: usize, colour: &str) {
        let x = LEFT + 190.0 * series as f64;
        let entry = format_args!(
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            HEIGHT - 16.0,
            x + 16.0,
            HEIGHT - 7.0,
            escaped(self.section.columns[self.columns[series]])
        );
        put(svg, entry);
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
