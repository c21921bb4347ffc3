//! An origin that writes down every byte that reaches it, and what a reader less strict than we are makes of them.

use std::{
    cell::Cell,
    collections::BTreeMap,
    io::{self, BufReader, ErrorKind, Read, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc::{Receiver, Sender, channel},
    },
};

use crate::support::WAIT_MAX;

/// What a connection of ours begins with.
const PROBE: &[u8] = b"probe";

/// How an origin reads `Content-Length`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lengths {
    /// As RFC 9110 §8.6 says.
    Decimal,
    /// As `strtol` with base 0 does: octal after a leading zero, hexadecimal after `0x`.
    Octal,
}

/// A request as the origin understood it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) first: String,
    /// Header fields, then trailer fields.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The chunk-size lines, as they were written.
    pub(crate) chunks: Vec<String>,
}

impl Seen {
    /// The values of a field, by its exact name in any case.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let named = |(found, _): &&(String, String)| found.eq_ignore_ascii_case(name);
        self.fields.iter().filter(named).map(|(_, value)| value.as_str()).collect()
    }

    /// What a CGI-like origin makes of the fields (RFC 3875 §4.1.18): every character of a name that is no letter and
    /// no digit becomes `_`.
    pub(crate) fn environment(&self) -> BTreeMap<String, Vec<&str>> {
        let mut environment = BTreeMap::<String, Vec<&str>>::new();
        for (name, value) in &self.fields {
            environment.entry(variable(name)).or_default().push(value);
        }
        environment
    }

    /// The values of the variable that a field of this name becomes.
    pub(crate) fn folded(&self, name: &str) -> Vec<&str> {
        self.environment().remove(&variable(name)).unwrap_or_default()
    }

    /// The target of the request.
    pub(crate) fn target(&self) -> &str {
        self.first.split(' ').nth(1).unwrap_or_default()
    }

    /// The path as servlet containers serve it: decoded, without path parameters, dot segments resolved after that.
    pub(crate) fn servlet_path(&self) -> String {
        servlet_path(self.target())
    }
}

/// The name of the variable that a field becomes.
pub(crate) fn variable(name: &str) -> String {
    let fold = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("HTTP_{}", name.chars().map(fold).collect::<String>())
}

pub(crate) fn servlet_path(target: &str) -> String {
    let path = target.split('?').next().unwrap_or_default();
    let mut decoded = Vec::new();
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits: Vec<u8> = bytes.by_ref().take(2).collect();
            let digits = std::str::from_utf8(&digits).unwrap_or_default();
            decoded.push(u8::from_str_radix(digits, 16).unwrap_or(b'%'));
        } else {
            decoded.push(byte);
        }
    }
    let mut segments = Vec::new();
    for segment in String::from_utf8_lossy(&decoded).split('/') {
        match segment.split(';').next().unwrap_or_default() {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            plain => segments.push(plain.to_owned()),
        }
    }
    format!("/{}", segments.join("/"))
}

/// All of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    index: usize,
    /// Everything that was received.
    pub(crate) bytes: Vec<u8>,
    /// The requests in it, as this origin reads lengths; what ends within one is left out.
    pub(crate) requests: Vec<Seen>,
    /// What follows them.
    pub(crate) rest: Vec<u8>,
}

impl Record {
    /// The one request, which every reader understands in the same way.
    pub(crate) fn only(&self) -> &Seen {
        self.assert_canonical();
        &self.requests[0]
    }

    /// One request, framed in the one way that no reader can mistake.
    pub(crate) fn assert_canonical(&self) {
        let shown = String::from_utf8_lossy(&self.bytes);
        assert_eq!(self.requests.len(), 1, "not one request: {shown}");
        assert!(self.rest.is_empty(), "surplus bytes reached the origin: {shown}");
        let seen = &self.requests[0];
        let framing = |name: &str| {
            let is_it = |(found, _): &&(String, String)| variable(found) == variable(name);
            let found: Vec<_> = seen.fields.iter().filter(is_it).collect();
            for (spelling, _) in &found {
                assert!(spelling.eq_ignore_ascii_case(name), "a lookalike of {name}: {shown}");
            }
            found.into_iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        let (lengths, codings) = (framing("content-length"), framing("transfer-encoding"));
        assert!(lengths.len() + codings.len() <= 1, "two framings: {shown}");
        for length in lengths {
            let value: u64 = length.parse().unwrap_or_else(|_| panic!("no length: {shown}"));
            assert_eq!(length, value.to_string(), "not the one spelling of a length: {shown}");
            assert_eq!(value, seen.body.len() as u64, "{shown}");
        }
        for coding in codings {
            assert_eq!(coding.to_ascii_lowercase(), "chunked", "{shown}");
        }
        for line in &seen.chunks {
            let size =
                u64::from_str_radix(line, 16).unwrap_or_else(|_| panic!("chunk size {line:?}: {shown}"));
            assert_eq!(line.to_ascii_lowercase(), format!("{size:x}"), "chunk size: {shown}");
        }
        assert_eq!(framing("host").len(), 1, "{shown}");
    }
}

/// A running origin. It answers the first request of each connection and asks to close it, so that nothing is kept back.
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    records: Receiver<Record>,
    taken: Cell<usize>,
    stopped: Arc<AtomicBool>,
}

impl Recorder {
    pub(crate) fn start(lengths: Lengths) -> Self {
        Self::answering(lengths, |_| {
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok".to_vec()
        })
    }

    /// One that answers with whatever bytes `answer` makes of a request.
    pub(crate) fn answering(
        lengths: Lengths,
        answer: impl Fn(&Seen) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stopped = Arc::new(AtomicBool::new(false));
        let (ended, answer) = (Arc::clone(&stopped), Arc::new(answer));
        let (sender, records) = channel();
        std::thread::spawn(move || {
            for (index, stream) in listener.incoming().flatten().enumerate() {
                if ended.load(SeqCst) {
                    return;
                }
                let (sender, answer) = (sender.clone(), Arc::clone(&answer));
                std::thread::spawn(move || record(stream, index, lengths, &*answer, &sender));
            }
        });
        Self { address, records, taken: Cell::new(0), stopped }
    }

    fn next(&self) -> Record {
        self.records.recv_timeout(WAIT_MAX).unwrap_or_else(|_| panic!("nothing reaches the origin"))
    }

    /// As [`Self::take`], of the connection that was opened for what was then refused, if there was one: its request is for
    /// `target`. A request whose body turns out to be malformed is already under way.
    pub(crate) fn take_if_head_of(&self, target: &str) -> Option<Record> {
        // A connection that was opened before the refusal is in the queue of the listener, and this one behind it.
        let mut probe = TcpStream::connect(self.address).unwrap();
        probe.write_all(PROBE).unwrap();
        drop(probe);
        let (mut found, mut probed, mut count) = (None, None, self.taken.get());
        // They may end in another order than they began.
        while probed.is_none_or(|index| count <= index) {
            let record = self.next();
            count += 1;
            if record.bytes == PROBE {
                probed = Some(record.index);
                continue;
            }
            // It may have been given up before anything was sent.
            assert!(record.bytes.is_empty() || String::from_utf8_lossy(&record.bytes).contains(target));
            assert!(found.replace(record).is_none(), "two connections");
        }
        self.taken.set(count);
        found
    }

    /// Waits for the end of the next connection. That it is the next one shows that nothing else has arrived since the
    /// last call: an attack that was refused is followed by a request that is not.
    pub(crate) fn take(&self) -> Record {
        let record = self.next();
        let shown = String::from_utf8_lossy(&record.bytes);
        assert_eq!(record.index, self.taken.get(), "something else reached the origin, too: {shown}");
        self.taken.set(record.index + 1);
        record
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stopped.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// Keeps what is read through it.
struct Recording {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Read for Recording {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.bytes.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

fn record(
    stream: TcpStream,
    index: usize,
    lengths: Lengths,
    answer: &dyn Fn(&Seen) -> Vec<u8>,
    sender: &Sender<Record>,
) {
    let _ = stream.set_read_timeout(Some(WAIT_MAX));
    let Ok(mut write) = stream.try_clone() else { return };
    let mut reader = BufReader::new(Recording { stream, bytes: Vec::new() });
    if let Ok(mut seen) = read_head(&mut reader) {
        // Who expects `100 Continue` sends no body before.
        if !seen.values("expect").is_empty() || read_body(&mut reader, &mut seen, lengths).is_ok() {
            let _ = write.write_all(&answer(&seen));
        }
    }
    let _ = io::copy(&mut reader, &mut io::sink());
    let bytes = reader.into_inner().bytes;
    let mut requests = Vec::new();
    let mut rest = bytes.as_slice();
    loop {
        let mut ahead = rest;
        let Ok(seen) = read_request(&mut ahead, lengths) else { break };
        requests.push(seen);
        rest = ahead;
    }
    let rest = rest.to_vec();
    let _ = sender.send(Record { index, bytes, requests, rest });
}

fn read_request(reader: &mut impl io::BufRead, lengths: Lengths) -> io::Result<Seen> {
    let mut seen = read_head(reader)?;
    read_body(reader, &mut seen, lengths)?;
    Ok(seen)
}

fn read_head(reader: &mut impl io::BufRead) -> io::Result<Seen> {
    let first = read_line(reader)?;
    Ok(Seen { first, fields: read_fields(reader)?, body: Vec::new(), chunks: Vec::new() })
}

fn read_body(reader: &mut impl io::BufRead, seen: &mut Seen, lengths: Lengths) -> io::Result<()> {
    if seen.values("transfer-encoding").iter().any(|value| value.to_ascii_lowercase().contains("chunked")) {
        loop {
            let line = read_line(reader)?;
            let digits: String = line.chars().take_while(char::is_ascii_hexdigit).collect();
            let size = u64::from_str_radix(&digits, 16).map_err(io::Error::other)?;
            seen.chunks.push(line);
            if size == 0 {
                seen.fields.extend(read_fields(reader)?);
                return Ok(());
            }
            read_exactly(reader, size, &mut seen.body)?;
            read_line(reader)?;
        }
    }
    let length = seen.values("content-length").first().map(|value| length(value, lengths));
    read_exactly(reader, length.unwrap_or(0), &mut seen.body)
}

fn length(value: &str, lengths: Lengths) -> u64 {
    let (digits, radix) = match (lengths, value.strip_prefix('0')) {
        (Lengths::Octal, Some(rest)) if rest.starts_with(['x', 'X']) => (&rest[1..], 16),
        (Lengths::Octal, Some(rest)) if !rest.is_empty() => (rest, 8),
        _ => (value, 10),
    };
    let digits: String = digits.chars().take_while(|digit| digit.is_digit(radix)).collect();
    u64::from_str_radix(&digits, radix).unwrap_or(0)
}

fn read_exactly(reader: &mut impl io::BufRead, count: u64, into: &mut Vec<u8>) -> io::Result<()> {
    let before = into.len() as u64;
    reader.take(count).read_to_end(into)?;
    if into.len() as u64 - before == count { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

fn read_fields(reader: &mut impl io::BufRead) -> io::Result<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Ok(fields);
        }
        let (name, value) = line.split_once(':').ok_or(ErrorKind::InvalidData)?;
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
}

fn read_line(reader: &mut impl io::BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    let line = line.strip_suffix(b"\n").ok_or(ErrorKind::UnexpectedEof)?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    Ok(line.iter().map(|&byte| char::from(byte)).collect())
}

#[test]
fn the_origins_read_as_those_do_that_were_fooled() {
    assert_eq!((length("0200", Lengths::Decimal), length("0200", Lengths::Octal)), (200, 128));
    assert_eq!((length("200", Lengths::Octal), length("0x10", Lengths::Octal)), (200, 16));
    assert_eq!((length("0", Lengths::Octal), length("+5", Lengths::Octal)), (0, 0));
    for name in ["X-Auth-Subject", "x.auth!subject", "X_AUTH~SUBJECT"] {
        assert_eq!(variable(name), "HTTP_X_AUTH_SUBJECT");
    }
    for (target, path) in
        [("/a;x/b;y?c", "/a/b"), ("/a/%2e%2e;/b%3Bx", "/b"), ("//a/./b/", "/a/b"), ("/..;/..;a/c", "/c")]
    {
        assert_eq!(servlet_path(target), path, "{target}");
    }
    let mut bytes =
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 010\r\n\r\n12345678GET / HTTP/1.1\r\n\r\nx"
            .as_slice();
    let first = read_request(&mut bytes, Lengths::Octal).unwrap();
    assert_eq!((first.body.as_slice(), first.target()), (&b"12345678"[..], "/a"));
    assert_eq!(read_request(&mut bytes, Lengths::Octal).unwrap().first, "GET / HTTP/1.1");
    assert_eq!(bytes, b"x");
}
