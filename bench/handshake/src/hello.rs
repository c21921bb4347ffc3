//! What a client's first message offers to resume a session by.

/// By which means a session is to be resumed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Offer {
    Nothing,
    /// What the server sealed: everything about the session.
    Ticket,
    /// What the server looks up: not longer than the identifier of a session can be.
    Identifier,
}

/// The longest identifier of a session (RFC 5246 §7.4.1.2). What seals a session holds more than that.
const IDENTIFIER_BYTES_MAX: usize = 32;
const SESSION_TICKET: u16 = 35;
const PRE_SHARED_KEY: u16 = 41;
const SUPPORTED_VERSIONS: u16 = 43;

/// Reads a record with a `ClientHello` (RFC 8446 §4.1.2).
pub(crate) fn offer(record: &[u8]) -> Result<Offer, &'static str> {
    read(record).ok_or("the client's first message can't be read")
}

fn read(record: &[u8]) -> Option<Offer> {
    // The headers of the record and of the message, the version, the random octets.
    let mut rest = Reader(record);
    rest.take(5 + 4 + 2 + 32)?;
    let session = rest.vector(1)?;
    rest.vector(2)?;
    rest.vector(1)?;
    let mut extensions = Reader(rest.vector(2)?);
    let (mut ticket, mut key, mut tls13) = (false, None, false);
    while !extensions.0.is_empty() {
        let kind = u16::try_from(extensions.number(2)?).ok()?;
        let body = extensions.vector(2)?;
        match kind {
            SESSION_TICKET => ticket = !body.is_empty(),
            // The first identity of the list (RFC 8446 §4.2.11).
            PRE_SHARED_KEY => key = Some(Reader(Reader(body).vector(2)?).vector(2)?.len()),
            SUPPORTED_VERSIONS => tls13 = body.windows(2).any(|pair| pair == [3, 4]),
            _ => {}
        }
    }
    Some(match key {
        Some(length) if length <= IDENTIFIER_BYTES_MAX => Offer::Identifier,
        Some(_) => Offer::Ticket,
        None if ticket => Offer::Ticket,
        // With TLS 1.3 the field is only there for the sake of old devices on the way (RFC 8446 §D.4).
        None if !session.is_empty() && !tls13 => Offer::Identifier,
        None => Offer::Nothing,
    })
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, octets: usize) -> Option<usize> {
        Some(self.take(octets)?.iter().fold(0, |value, &octet| value << 8 | usize::from(octet)))
    }

    /// What has its length before it, in so many octets.
    fn vector(&mut self, octets: usize) -> Option<&'a [u8]> {
        let length = self.number(octets)?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with this session identifier and these extensions.
    fn record(session: &[u8], extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let with_length = |octets: &[u8]| {
            let mut text = u16::try_from(octets.len()).unwrap().to_be_bytes().to_vec();
            text.extend_from_slice(octets);
            text
        };
        let mut record = vec![0; 5 + 4 + 2 + 32];
        record.push(u8::try_from(session.len()).unwrap());
        record.extend_from_slice(session);
        record.extend(with_length(&[0x13, 0x01]));
        record.extend([1, 0]);
        let mut all = Vec::new();
        for (kind, body) in extensions {
            all.extend(kind.to_be_bytes());
            all.extend(with_length(body));
        }
        record.extend(with_length(&all));
        record
    }

    fn key(length: usize) -> Vec<u8> {
        let identity =
            [u16::try_from(length).unwrap().to_be_bytes().to_vec(), vec![7; length], vec![0; 4]].concat();
        [u16::try_from(identity.len()).unwrap().to_be_bytes().to_vec(), identity].concat()
    }

    #[test]
    fn what_is_offered_is_told_by_the_extensions_and_the_length_of_an_identity() {
        let tls13: (u16, &[u8]) = (43, &[2, 3, 4]);
        let cases: [(Vec<u8>, Offer); 7] = [
            (record(&[], &[]), Offer::Nothing),
            (record(&[1; 32], &[tls13]), Offer::Nothing),
            (record(&[1; 32], &[tls13, (41, &key(32))]), Offer::Identifier),
            (record(&[1; 32], &[tls13, (41, &key(33))]), Offer::Ticket),
            (record(&[], &[(35, &[])]), Offer::Nothing),
            (record(&[1; 32], &[(35, &[9; 100])]), Offer::Ticket),
            (record(&[1; 32], &[]), Offer::Identifier),
        ];
        for (record, expected) in cases {
            assert_eq!(offer(&record), Ok(expected));
        }
    }

    #[test]
    fn a_message_that_is_cut_short_is_refused() {
        let whole = record(&[1; 32], &[(41, &key(40))]);
        for length in 0..whole.len() {
            assert!(offer(&whole[..length]).is_err(), "{length}");
        }
    }
}
