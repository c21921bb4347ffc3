//! Requests as bytes, and what is read of responses.

use std::fs;
use std::io::{self, ErrorKind};

/// Of a response.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// Requests that are sent in turn.
pub(crate) struct Requests(Vec<Vec<u8>>);

impl Requests {
    pub(crate) fn get(path: &str) -> Self {
        Self(vec![format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()])
    }

    /// Client-credentials grants, the clients and their secrets from a file.
    pub(crate) fn grants(file: &str, kept: bool) -> io::Result<Self> {
        let text = fs::read_to_string(file)?;
        let requests: Vec<_> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(id, secret)| grant(id, secret, kept))
            .collect();
        if requests.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("{file}: no clients")));
        }
        Ok(Self(requests))
    }

    pub(crate) fn of(&self, index: u32) -> &[u8] {
        &self.0[index as usize % self.0.len()]
    }
}

fn grant(id: &str, secret: &str, kept: bool) -> Vec<u8> {
    let body = format!("grant_type=client_credentials&client_id={id}&client_secret={secret}");
    let connection = if kept { "" } else { "Connection: close\r\n" };
    format!(
        "POST /oauth2/token HTTP/1.1\r\nHost: localhost\r\n{connection}Content-Type: \
         application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The head of a response.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Of head and body.
    pub(crate) bytes: usize,
    pub(crate) closes: bool,
}

/// The response that begins `read`; nothing where its head is not complete.
pub(crate) fn response(read: &[u8]) -> io::Result<Option<Response>> {
    let malformed = || io::Error::from(ErrorKind::InvalidData);
    let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") else {
        return if read.len() > RESPONSE_BYTES_MAX { Err(malformed()) } else { Ok(None) };
    };
    let head = str::from_utf8(&read[..end]).map_err(|_| malformed())?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(malformed)?;
    let field = |name: &str| {
        head.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
    };
    let length = field("content-length").and_then(|(_, length)| length.trim().parse::<usize>().ok());
    let bytes = end + 4 + length.ok_or_else(malformed)?;
    let closes = field("connection").is_some_and(|(_, value)| value.trim().eq_ignore_ascii_case("close"));
    Ok(Some(Response { status, bytes, closes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_read_once_its_head_is_complete() {
        let whole = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(response(&whole[..20]).unwrap(), None);
        let expected = Response { status: 503, bytes: whole.len(), closes: true };
        assert_eq!(response(whole).unwrap(), Some(expected));
        assert!(response(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
