//! What a server says about how long it keeps a connection: the field `Keep-Alive` (RFC 2068 §19.7.1.1).
//!
//! No current RFC defines its parameters. Servers send `timeout`, in seconds, and `max`, the requests that are left.

use std::time::Duration;

use crate::{Fields, Known, chars::list_members};

/// How long a server keeps a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepAlive {
    /// How long it may be idle.
    pub timeout: Option<Duration>,
    /// How many more requests it may carry.
    pub max: Option<u32>,
}

impl KeepAlive {
    /// Of the server that sent these fields. What can't be understood says nothing; of several values, the least counts.
    #[must_use]
    pub fn of(fields: &Fields) -> Self {
        let mut offer = Self::default();
        if !fields.contains(Known::KeepAlive) {
            return offer;
        }
        for member in fields.get_all(Known::KeepAlive).flat_map(list_members) {
            let mut parts = member.splitn(2, |byte| *byte == b'=').map(<[u8]>::trim_ascii);
            let (Some(name), Some(Some(value))) = (parts.next(), parts.next().map(number)) else { continue };
            if name.eq_ignore_ascii_case(b"timeout") {
                let timeout = Duration::from_secs(value.into());
                offer.timeout = Some(offer.timeout.map_or(timeout, |other| other.min(timeout)));
            } else if name.eq_ignore_ascii_case(b"max") {
                offer.max = Some(offer.max.map_or(value, |other| other.min(value)));
            }
        }
        offer
    }
}

/// A number without a sign; the greatest in place of one that is too great.
fn number(digits: &[u8]) -> Option<u32> {
    let add = |sum: u32, digit: &u8| {
        let digit = u32::from(*digit).checked_sub(u32::from(b'0')).filter(|digit| *digit < 10)?;
        Some(sum.saturating_mul(10).saturating_add(digit))
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_what_is_none_is_passed_over() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (values, timeout, max) in [
            (&[][..], None, None),
            (&["timeout=5, max=99"][..], seconds(5), Some(99)),
            (&["Timeout = 5,MAX=0"], seconds(5), Some(0)),
            (&["timeout=5", "max=2", "timeout=3"], seconds(3), Some(2)),
            (&["300"], None, None),
            (&["timeout=, max=-1, timeout=1s, max=\"5\", =7, timeout"], None, None),
            (&["timeout=99999999999999999999"], seconds(u32::MAX.into()), None),
        ] {
            let mut fields = Fields::default();
            for value in values {
                fields.append(b"keep-alive", value.as_bytes()).unwrap();
            }
            assert_eq!(KeepAlive::of(&fields), KeepAlive { timeout, max }, "{values:?}");
        }
    }
}
