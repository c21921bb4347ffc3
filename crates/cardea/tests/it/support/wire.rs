//! HTTP/1.1 messages as bytes, for the client and the origin alike: just enough, and strict about ends.

use std::io::{self, BufRead, ErrorKind, Read};

/// The first line and the fields of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) first: String,
    fields: Vec<(String, String)>,
}

impl Head {
    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let named = |(found, _): &&(String, String)| found.eq_ignore_ascii_case(name);
        self.fields.iter().find(named).map(|(_, value)| value.as_str())
    }
}

/// Reads a head; `None` where the peer has closed before its first byte.
pub(crate) fn read_head(reader: &mut impl BufRead) -> io::Result<Option<Head>> {
    let mut first = None;
    let mut fields = Vec::new();
    loop {
        let Some(line) = read_line(reader)? else {
            return if first.is_none() { Ok(None) } else { Err(ErrorKind::UnexpectedEof.into()) };
        };
        if first.is_none() {
            first = Some(line);
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.to_owned(), value.trim().to_owned()));
        } else if line.is_empty() {
            return Ok(first.map(|first| Head { first, fields }));
        } else {
            return Err(io::Error::other(format!("no field: {line:?}")));
        }
    }
}

/// Reads a body to its end and gives it away in pieces. An end that comes too early is an error.
pub(crate) fn read_body(
    reader: &mut impl BufRead,
    head: &Head,
    mut piece: impl FnMut(&[u8]),
) -> io::Result<()> {
    let is_chunked =
        head.field("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
    if is_chunked {
        loop {
            let line = read_line(reader)?.ok_or(ErrorKind::UnexpectedEof)?;
            let size = u64::from_str_radix(line.split(';').next().unwrap_or_default(), 16)
                .map_err(|_| io::Error::other(format!("no chunk size: {line:?}")))?;
            if size == 0 {
                while !read_line(reader)?.ok_or(ErrorKind::UnexpectedEof)?.is_empty() {}
                return Ok(());
            }
            read_exactly(reader, size, &mut piece)?;
            if read_line(reader)?.is_none_or(|line| !line.is_empty()) {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
    match head.field("content-length") {
        Some(length) => read_exactly(reader, length.parse().map_err(io::Error::other)?, &mut piece),
        None if head.first.starts_with("HTTP/") => {
            Err(io::Error::other("a response whose end can't be known"))
        }
        None => Ok(()),
    }
}

fn read_exactly(reader: &mut impl BufRead, mut left: u64, piece: &mut impl FnMut(&[u8])) -> io::Result<()> {
    while left > 0 {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let count = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        piece(&buffer[..count]);
        reader.consume(count);
        left -= count as u64;
    }
    Ok(())
}

/// A line without its end; `None` where there is nothing more.
fn read_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    if reader.take(64 * 1024).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    match line.strip_suffix(b"\r\n") {
        Some(line) => Ok(Some(String::from_utf8_lossy(line).into_owned())),
        None => Err(ErrorKind::UnexpectedEof.into()),
    }
}
