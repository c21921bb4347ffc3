//! A name server on loopback whose records and manners change (RFC 1035).

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{Arc, Mutex},
};

/// Data of a record.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Address(IpAddr),
    Alias(&'static str),
    /// Priority, weight, port and target.
    Service(u16, u16, u16, &'static str),
    /// Questions about the name are not answered.
    Silence,
}

/// How the server behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manners {
    /// It answers.
    #[default]
    Good,
    /// It answers by UDP only that the answer is truncated.
    Truncating,
    /// It says that it has failed.
    Failing,
    /// The same for addresses of IPv6 alone.
    FailingV6,
    /// It sends bytes that are no answer.
    Garbage,
    /// It sends nothing.
    Silent,
    /// It leaves the SOA record away where there are no records.
    WithoutSoa,
    /// It answers with the address of another name.
    OfAnother,
}

#[derive(Debug, Default)]
struct State {
    manners: Manners,
    ttl: u32,
    records: Vec<(&'static str, Data)>,
    by_tcp: usize,
    stopped: bool,
}

/// A running name server. It answers nothing more once this is dropped.
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl NameServer {
    pub(crate) fn start() -> Self {
        let (udp, tcp) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
                break (udp, tcp);
            }
        };
        let this = Self { address: tcp.local_addr().unwrap(), state: Arc::default() };
        let state = Arc::clone(&this.state);
        std::thread::spawn(move || serve_udp(&udp, &state));
        let state = Arc::clone(&this.state);
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                if state.lock().unwrap().stopped {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let state = Arc::clone(&state);
                std::thread::spawn(move || serve_tcp(stream, &state));
            }
        });
        this
    }

    /// Replaces all records. Without any of a name, there is no such name.
    pub(crate) fn set(&self, records: impl IntoIterator<Item = (&'static str, Data)>) {
        self.state.lock().unwrap().records = records.into_iter().collect();
    }

    /// The same, of one name with these addresses.
    pub(crate) fn set_addresses(&self, name: &'static str, addresses: &[IpAddr]) {
        self.set(addresses.iter().map(|address| (name, Data::Address(*address))));
    }

    pub(crate) fn behave(&self, manners: Manners) {
        self.state.lock().unwrap().manners = manners;
    }

    /// The TTL of all records, in seconds; at first 0.
    pub(crate) fn set_ttl(&self, ttl: u32) {
        self.state.lock().unwrap().ttl = ttl;
    }

    /// How many questions have come by TCP.
    pub(crate) fn by_tcp(&self) -> usize {
        self.state.lock().unwrap().by_tcp
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.state.lock().unwrap().stopped = true;
        // Wakes both threads.
        let _ = TcpStream::connect(self.address);
        let _ = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(&[0], self.address));
    }
}

fn serve_udp(udp: &UdpSocket, state: &Mutex<State>) {
    let mut space = [0; 4096];
    while let Ok((count, from)) = udp.recv_from(&mut space) {
        let state = state.lock().unwrap();
        if state.stopped {
            return;
        }
        if let Some(answer) = answer(&space[..count], &state, false) {
            let _ = udp.send_to(&answer, from);
        }
    }
}

fn serve_tcp(mut stream: TcpStream, state: &Mutex<State>) -> io::Result<()> {
    let mut length = [0; 2];
    loop {
        stream.read_exact(&mut length)?;
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut query)?;
        let answer = {
            let mut state = state.lock().unwrap();
            state.by_tcp += 1;
            answer(&query, &state, true)
        };
        let Some(answer) = answer else { return Ok(()) };
        let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
        stream.write_all(&[&length[..], &answer].concat())?;
    }
}

const A: u16 = 1;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const AAAA: u16 = 28;
const SRV: u16 = 33;

/// The answer to a query (RFC 1035 §4.1).
fn answer(query: &[u8], state: &State, tcp: bool) -> Option<Vec<u8>> {
    // The question: a name of labels, then its type and class.
    let (mut end, mut labels) = (12, Vec::new());
    while *query.get(end)? != 0 {
        let length = usize::from(query[end]);
        labels.push(String::from_utf8_lossy(query.get(end + 1..=end + length)?).to_lowercase());
        end += 1 + length;
    }
    let question = query.get(12..end + 5)?;
    let kind = u16::from_be_bytes([query[end + 1], query[end + 2]]);
    let mut owner = labels.join(".");
    let is_silent = |(name, data): &(&str, Data)| *name == owner && matches!(data, Data::Silence);
    if state.records.iter().any(is_silent) {
        return None;
    }
    let (mut code, mut truncated) = (0_u8, false);
    let (mut records, mut authority): (Vec<Vec<u8>>, Vec<u8>) = (Vec::new(), Vec::new());
    match state.manners {
        Manners::Silent => return None,
        Manners::Garbage => return Some([&query[..2], &[0xFF; 40][..]].concat()),
        Manners::Failing => code = 2,
        Manners::FailingV6 if kind == AAAA => code = 2,
        Manners::Truncating if !tcp => truncated = true,
        Manners::OfAnother => {
            records.extend(data_record(
                "another.test",
                &Data::Address([192, 0, 2, 1].into()),
                kind,
                state.ttl,
            ));
        }
        Manners::Good | Manners::FailingV6 | Manners::Truncating | Manners::WithoutSoa => {
            // At most as many aliases as there are records.
            for _ in &state.records {
                let alias = state.records.iter().find_map(|(name, data)| match data {
                    Data::Alias(target) if *name == owner => Some(*target),
                    _ => None,
                });
                let Some(target) = alias else { break };
                records.push(record(&encoded(&owner), CNAME, state.ttl, &encoded(target)));
                target.clone_into(&mut owner);
            }
            let known = state.records.iter().filter(|(name, _)| *name == owner);
            records.extend(known.clone().filter_map(|(_, data)| data_record(&owner, data, kind, state.ttl)));
            if known.count() == 0 {
                code = 3;
            }
            if records.is_empty() && state.manners != Manners::WithoutSoa {
                authority = record(&encoded("test"), SOA, state.ttl, &[&[0, 0][..], &[0; 20]].concat());
            }
        }
    }
    let count = u16::try_from(records.len()).unwrap().to_be_bytes();
    let flags = [0x81 | if truncated { 2 } else { 0 }, 0x80 | code];
    let others = [0, u8::from(!authority.is_empty()), 0, 0];
    let head = [&query[..2], &flags, &[0, 1], &count, &others].concat();
    Some([head, question.to_vec(), records.concat(), authority].concat())
}

fn data_record(owner: &str, data: &Data, kind: u16, ttl: u32) -> Option<Vec<u8>> {
    let owner = encoded(owner);
    match data {
        Data::Address(IpAddr::V4(address)) if kind == A => Some(record(&owner, A, ttl, &address.octets())),
        Data::Address(IpAddr::V6(address)) if kind == AAAA => {
            Some(record(&owner, AAAA, ttl, &address.octets()))
        }
        Data::Service(priority, weight, port, target) if kind == SRV => {
            let numbers = [priority, weight, port].map(|number| number.to_be_bytes());
            Some(record(&owner, SRV, ttl, &[numbers.concat(), encoded(target)].concat()))
        }
        _ => None,
    }
}

fn record(owner: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap().to_be_bytes();
    [owner, &kind.to_be_bytes(), &[0, 1], &ttl.to_be_bytes(), &length, data].concat()
}

fn encoded(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}
