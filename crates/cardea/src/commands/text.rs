//! Readable output: tables, times, and untrusted text that is safe for a terminal.

use std::fmt::Write as _;

/// A table with padded columns.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column headings.
    pub(super) fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(|&head| head.to_owned()).collect()] }
    }

    /// Adds a row with one cell per column.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// One line per row; the last column is not padded.
    pub(super) fn render(&self) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(line, "{cell:width$}  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Names with values, one per line.
pub(super) fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in facts {
        let line = format!("{name:width$}  {}", printable(value));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Text without control characters and characters that change the direction of writing.
pub(super) fn printable(text: &str) -> String {
    let harmful = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if harmful(letter) {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Seconds since the Unix epoch as an RFC 3339 time in UTC, or as a number if it is out of range.
pub(super) fn time(seconds: i64) -> String {
    /// From the year 0 to the year 9999.
    const FOUR_DIGIT_YEARS: std::ops::Range<i64> = -62_167_219_200..253_402_300_800;
    if !FOUR_DIGIT_YEARS.contains(&seconds) {
        return seconds.to_string();
    }
    let (year, month, day) = cardea_env::civil_date(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The approximate distance of a time from `now`.
pub(super) fn distance(seconds: i64, now: i64) -> String {
    let apart = seconds.abs_diff(now);
    let count = |count: u64, unit: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {unit}{plural}")
    };
    let text = match apart {
        0 => return "now".to_owned(),
        1..=119 => count(apart, "second"),
        120..=7_199 => count(apart / 60, "minute"),
        7_200..=172_799 => count(apart / 3_600, "hour"),
        _ => count(apart / 86_400, "day"),
    };
    if seconds > now { format!("in {text}") } else { format!("{text} ago") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_of_the_gregorian_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (-62_167_219_200, "0000-01-01T00:00:00Z"),
            (-62_167_219_201, "-62167219201"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_800_000_000, "2027-01-15T08:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            (253_402_300_800, "253402300800"),
            (i64::MAX, "9223372036854775807"),
            (i64::MIN, "-9223372036854775808"),
        ] {
            assert_eq!(time(seconds), expected);
        }
    }

    #[test]
    fn distances_have_their_direction() {
        for (seconds, expected) in [
            (100, "now"),
            (101, "in 1 second"),
            (40, "60 seconds ago"),
            (100 + 3_600, "in 60 minutes"),
            (100 - 7_200, "2 hours ago"),
            (100 + 864_000, "in 10 days"),
            (i64::MIN, "106751991167300 days ago"),
        ] {
            assert_eq!(distance(seconds, 100), expected);
        }
    }

    #[test]
    fn a_terminal_obeys_nothing_that_is_printed() {
        assert_eq!(
            printable("a\u{1b}[2Jb\r\n\u{9b}c\u{202e}é ü"),
            r"a\u{1b}[2Jb\u{d}\u{a}\u{9b}c\u{202e}é ü"
        );
        assert_eq!(facts(&[("a", "\u{7}".into()), ("long", String::new())]), "a     \\u{7}\nlong\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["A", "B"]);
        table.row(["éé".into(), "1".into()]);
        table.row(["".into(), "22".into()]);
        assert_eq!(table.render(), "A   B\néé  1\n    22\n");
    }
}
