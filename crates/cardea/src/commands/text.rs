//! What people read: tables, times, and text of others made harmless for a terminal.

use std::fmt::Write as _;

/// Columns of text.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads of columns.
    pub(super) fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(|&head| head.to_owned()).collect()] }
    }

    /// Adds a row with as many cells as there are columns.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// A line for each row; the last column is not padded.
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

/// Names with values, a line each.
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

/// Text without what a terminal obeys: control characters, and those that turn the direction of writing around.
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

/// Seconds since the Unix epoch as a date in UTC (RFC 3339), or as they are where no calendar has them.
pub(super) fn time(seconds: i64) -> String {
    let day = seconds.div_euclid(86_400);
    let second = seconds.rem_euclid(86_400);
    // Days are counted from the first of March of the year 0, so that the leap day comes last.
    let Some(day) = day.checked_add(719_468) else { return seconds.to_string() };
    let era = day.div_euclid(146_097);
    let day_of_era = day.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    if !(0..=9_999).contains(&year) {
        return seconds.to_string();
    }
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// How far a time is from `now`, roughly.
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
