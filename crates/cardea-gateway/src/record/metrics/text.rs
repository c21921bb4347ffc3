//! The Prometheus text format 0.0.4: `# HELP`, `# TYPE` and a line for each value.

use std::fmt::Write as _;
use std::time::Duration;

use super::{MetricKind, cells::Cells};

/// The lines before a metric's values.
pub(super) fn head(out: &mut String, name: &str, help: &str, kind: MetricKind) {
    out.push_str("# HELP ");
    out.push_str(name);
    out.push(' ');
    for letter in help.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            _ => out.push(letter),
        }
    }
    out.push_str("\n# TYPE ");
    out.push_str(name);
    out.push(' ');
    out.push_str(kind.as_str());
    out.push('\n');
}

/// The lines of one series; `labels` as [`label_text`] makes them.
pub(super) fn series(out: &mut String, name: &str, kind: MetricKind, labels: &str, cells: &Cells) {
    match kind {
        MetricKind::Counter => line(out, name, "", labels, None, &Number::Unsigned(cells.sum(0))),
        MetricKind::Gauge => line(out, name, "", labels, None, &Number::Signed(cells.sum(0).cast_signed())),
        MetricKind::Histogram(bounds) => {
            let mut count = 0;
            for (bucket, bound) in bounds.iter().enumerate() {
                count += cells.sum(bucket);
                line(out, name, "_bucket", labels, Some(&seconds(*bound)), &Number::Unsigned(count));
            }
            count += cells.sum(bounds.len());
            line(out, name, "_bucket", labels, Some("+Inf"), &Number::Unsigned(count));
            let sum = seconds(Duration::from_nanos(cells.sum(bounds.len() + 1)));
            line(out, name, "_sum", labels, None, &Number::Text(&sum));
            line(out, name, "_count", labels, None, &Number::Unsigned(count));
        }
    }
}

/// The line of a value that was collected.
pub(super) fn sample(out: &mut String, name: &str, labels: &str, value: f64) {
    let special = if value.is_nan() {
        Some("NaN")
    } else if value.is_infinite() {
        Some(if value > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        None
    };
    line(out, name, "", labels, None, &special.map_or(Number::Float(value), Number::Text));
}

/// `name="value",name="value"`. A missing value is empty.
pub(super) fn label_text(names: &[&str], values: &[&str]) -> String {
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for letter in values.get(index).copied().unwrap_or_default().chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                _ => text.push(letter),
            }
        }
        text.push('"');
    }
    text
}

enum Number<'n> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'n str),
}

fn line(out: &mut String, name: &str, suffix: &str, labels: &str, bound: Option<&str>, number: &Number<'_>) {
    out.push_str(name);
    out.push_str(suffix);
    if !labels.is_empty() || bound.is_some() {
        out.push('{');
        out.push_str(labels);
        if let Some(bound) = bound {
            if !labels.is_empty() {
                out.push(',');
            }
            out.push_str("le=\"");
            out.push_str(bound);
            out.push('"');
        }
        out.push('}');
    }
    out.push(' ');
    match number {
        Number::Unsigned(number) => out.push_str(itoa::Buffer::new().format(*number)),
        Number::Signed(number) => out.push_str(itoa::Buffer::new().format(*number)),
        Number::Text(text) => out.push_str(text),
        Number::Float(number) => {
            let _ = write!(out, "{number}");
        }
    }
    out.push('\n');
}

/// Seconds as the shortest decimal number that is exact.
fn seconds(duration: Duration) -> String {
    let mut text = duration.as_secs().to_string();
    if duration.subsec_nanos() != 0 {
        let fraction = format!(".{:09}", duration.subsec_nanos());
        text.push_str(fraction.trim_end_matches('0'));
    }
    text
}
