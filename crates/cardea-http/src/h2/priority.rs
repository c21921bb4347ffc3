//! Priorities of responses (RFC 9218): the `priority` field and PRIORITY_UPDATE.

use crate::{Fields, Known};

/// The priority of a response (RFC 9218 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// From 0, the most urgent, to 7.
    pub urgency: u8,
    /// Whether parts of the response are of use before its end.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// The lowest priority.
    pub const URGENCY_MAX: u8 = 7;

    /// The priority that the fields of a request ask for.
    #[must_use]
    pub fn of(fields: &Fields) -> Self {
        fields.get_all(Known::Priority).fold(Self::default(), Self::updated)
    }

    /// The priority in a field value. What isn't understood has no effect (RFC 9218 §4).
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        Self::default().updated(value)
    }

    /// This priority with the members of a dictionary (RFC 9651 §3.2) applied; of repeated keys, the last one counts.
    fn updated(mut self, value: &[u8]) -> Self {
        for member in crate::chars::list_members(value) {
            // Parameters have no meaning here.
            let item = member.split(|&byte| byte == b';').next().map(<[u8]>::trim_ascii_end);
            match item.unwrap_or_default() {
                [b'u', b'=', digit @ b'0'..=b'7'] => self.urgency = digit - b'0',
                b"i" | b"i=?1" => self.incremental = true,
                b"i=?0" => self.incremental = false,
                _ => {}
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_is_read_and_the_rest_ignored() {
        let table = [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i=?0, u=1", 1, false),
            ("i, i=?0", 3, false),
            ("u=8", 3, false),
            ("u=-1, u=12", 3, false),
            ("u=5;x=1, i;q=2", 5, true),
            ("U=1, I", 3, false),
            ("u=1, u=2", 2, false),
            ("i=1", 3, false),
            (",, u=4", 4, false),
        ];
        for (value, urgency, incremental) in table {
            assert_eq!(Priority::parse(value.as_bytes()), Priority { urgency, incremental }, "{value}");
        }
    }
}
