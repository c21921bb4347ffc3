//! Distinguished encoding rules (X.690), as little of them as a response about a certificate needs.

use cardea_clock::Wall;

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const ENUMERATED: u8 = 0x0a;
pub(super) const GENERALIZED_TIME: u8 = 0x18;

/// The context's own tag `number`, constructed.
pub(super) const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// One value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    /// With tag and length.
    pub(super) raw: &'a [u8],
    pub(super) content: &'a [u8],
}

/// Values one after another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next value; `None` at the end, and for what is not in its shortest form.
    pub(super) fn next(&mut self) -> Option<Element<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        // No field here has a tag of more than one octet.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x83 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let length = digits.iter().fold(0, |sum, &digit| sum << 8 | usize::from(digit));
                let shortest = digits.first() != Some(&0) && length >= 0x80;
                (Some(length).filter(|_| shortest)?, rest)
            }
            _ => return None,
        };
        let (content, after) = rest.split_at_checked(length)?;
        let raw = self.0.get(..self.0.len() - after.len())?;
        self.0 = after;
        Some(Element { tag, raw, content })
    }

    /// The next value, which must have this tag.
    pub(super) fn expect(&mut self, tag: u8) -> Option<Element<'a>> {
        self.next().filter(|element| element.tag == tag)
    }

    /// The next value if it has this tag; else it is left there.
    pub(super) fn optional(&mut self, tag: u8) -> Option<Element<'a>> {
        let mut ahead = *self;
        let element = ahead.expect(tag)?;
        *self = ahead;
        Some(element)
    }

    /// The inside of the next value, which must have this tag.
    pub(super) fn enter(&mut self, tag: u8) -> Option<Self> {
        self.expect(tag).map(|element| Self(element.content))
    }
}

/// The octets of a bit string, all of whose bits are used.
pub(super) fn bits<'a>(element: &Element<'a>) -> Option<&'a [u8]> {
    element.content.split_first().filter(|(unused, _)| **unused == 0).map(|(_, octets)| octets)
}

/// A value of this tag around `parts`.
pub(super) fn wrap(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let digits = length.to_be_bytes();
            let digits: Vec<u8> = digits.into_iter().skip_while(|digit| *digit == 0).collect();
            out.push(0x80 | u8::try_from(digits.len()).unwrap_or(0));
            out.extend(digits);
        }
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// A time as RFC 6960 has it: in UTC, to the second.
pub(super) fn time(element: &Element<'_>) -> Option<Wall> {
    let text = element.content.strip_suffix(b"Z").filter(|text| text.len() == 14)?;
    let number = |from: usize, to: usize| {
        text.get(from..to)?
            .iter()
            .try_fold(0, |sum, &digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    let valid =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 60;
    if !valid {
        return None;
    }
    // Years that begin in March put the leap day last.
    let (shifted, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * shifted + shifted.div_euclid(4) - shifted.div_euclid(100)
        + shifted.div_euclid(400)
        + (153 * month + 2) / 5
        + day
        - 719_469;
    Some(Wall::from_unix_seconds(days * 86_400 + hour * 3_600 + minute * 60 + second))
}
