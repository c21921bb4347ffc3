//! The `Date` header (RFC 9110 §5.6.7, §6.6.1), written once a second per thread.

use std::cell::RefCell;

use cardea_clock::Wall;

/// The length of an IMF-fixdate.
const LENGTH: usize = 29;

thread_local! {
    static LAST: RefCell<(i64, [u8; LENGTH])> = const { RefCell::new((i64::MIN, [0; LENGTH])) };
}

/// Appends `now` as an IMF-fixdate, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn write(now: Wall, out: &mut Vec<u8>) {
    let seconds = now.unix_seconds();
    LAST.with_borrow_mut(|(last, text)| {
        if *last != seconds {
            *text = format(seconds);
            *last = seconds;
        }
        out.extend_from_slice(text);
    });
}

fn format(seconds: i64) -> [u8; LENGTH] {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // Years of more than four digits have no such form.
    let seconds = seconds.clamp(0, 253_402_300_799);
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let weekday = DAYS.get(usize::try_from(days % 7).unwrap_or(0)).copied().unwrap_or_default();
    let month = MONTHS.get(month).copied().unwrap_or_default();
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    let text = format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT");
    let mut out = [b' '; LENGTH];
    out.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    out
}

/// The Gregorian date of a day since the epoch: year, month from 0, day from 1. Counts in eras of 400 years that
/// begin in March, so that the leap day is a year's last.
fn civil(days: i64) -> (i64, usize, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 2 } else { march_month - 10 };
    let year = year_of_era + era * 400 + i64::from(month < 2);
    (year, usize::try_from(month).unwrap_or(0), day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_imf_fixdates() {
        let cases = [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ];
        for (seconds, expected) in &cases {
            let mut out = Vec::new();
            write(Wall::from_unix_seconds(*seconds), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), *expected);
        }
        assert_eq!(format(i64::MIN), format(0));
        assert_eq!(format(i64::MAX).len(), LENGTH);
    }
}
