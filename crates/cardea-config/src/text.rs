//! Values written as text: durations, sizes, addresses, prefixes. Each has one syntax, one error with a remedy, and one
//! schema.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use cardea_env::{Network, NetworkError};
use cardea_upstream::{Address, AddressError, DnsName, Position, Target};

/// The problem of a text, and its remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextError {
    /// The problem, which follows the quoted text: `"10" is not a duration`.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

impl TextError {
    fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: remedy.into() }
    }
}

/// The port of name servers (RFC 1035 §4.2).
const DNS_PORT: u16 = 53;

/// The longest Unix socket path that every system supports (`sun_path` has 108 octets with its NUL, unix(7)).
const SOCKET_PATH_BYTES_MAX: usize = 107;

const DURATION_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A whole number and a unit, in the smallest unit.
fn parse_quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Formats a quantity in the largest unit that divides it; the first unit is the smallest.
fn display_quantity(quantity: u64, units: &[(&str, u64)]) -> String {
    let divides = |factor: u64| factor == 1 || (quantity != 0 && quantity.is_multiple_of(factor));
    let unit = units.iter().rev().find(|(_, factor)| divides(*factor));
    unit.map_or_else(String::new, |(unit, factor)| format!("{}{unit}", quantity / factor))
}

/// Parses a duration: a whole number and a unit.
pub fn parse_duration(text: &str) -> Result<Duration, TextError> {
    parse_quantity(text, &DURATION_UNITS).map(Duration::from_millis).ok_or_else(|| {
        TextError::new(
            "is not a duration",
            r#"write a whole number and a unit, as in "500ms", "10s", "5m", "1h" or "7d""#,
        )
    })
}

/// Formats a duration; fractions of a millisecond are not representable.
pub fn display_duration(duration: Duration) -> String {
    display_quantity(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX), &DURATION_UNITS)
}

/// How many in each time: `100/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    /// At least 1.
    pub(crate) count: u64,
    /// A second, a minute, an hour or a day.
    pub(crate) per: Duration,
}

const RATE_UNITS: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];

/// Reads a rate: a whole number, a slash and a unit.
pub(super) fn parse_rate(text: &str) -> Result<Rate, TextError> {
    let parsed = text.split_once('/').and_then(|(count, unit)| {
        let (_, seconds) = RATE_UNITS.iter().find(|(name, _)| *name == unit)?;
        let is_number = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        let count = count.parse().ok().filter(|count| is_number && *count > 0)?;
        Some(Rate { count, per: Duration::from_secs(*seconds) })
    });
    parsed.ok_or_else(|| {
        TextError::new(
            "is not a rate",
            r#"write a whole number above 0, a slash and a unit, as in "100/s", "600/m", "1000/h" or "10000/d""#,
        )
    })
}

/// Writes a rate.
pub(super) fn display_rate(rate: Rate) -> String {
    let unit =
        RATE_UNITS.iter().find(|(_, seconds)| *seconds == rate.per.as_secs()).map_or("s", |(unit, _)| unit);
    format!("{}/{unit}", rate.count)
}

const SIZE_UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KB", 1000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
];

/// Parses a size in octets: a whole number and a unit.
pub(super) fn parse_size(text: &str) -> Result<u64, TextError> {
    parse_quantity(text, &SIZE_UNITS).ok_or_else(|| {
        TextError::new(
            "is not a size",
            r#"write a whole number and a unit, as in "512B", "64KiB", "1MiB" or "10MB""#,
        )
    })
}

/// Formats a size.
pub(super) fn display_size(size: u64) -> String {
    display_quantity(size, &SIZE_UNITS)
}

/// Parses an address prefix, `10.0.0.0/8`; an address is a prefix of full length.
pub(super) fn parse_prefix(text: &str) -> Result<Network, TextError> {
    let (address, bits) = text.split_once('/').unwrap_or((text, ""));
    // An IPv4-mapped address is the IPv4 address (RFC 4291 §2.5.5.2).
    if let Some(mapped) = address.parse::<Ipv6Addr>().ok().and_then(|address| address.to_ipv4_mapped()) {
        return match bits {
            "" | "128" => parse_prefix(&mapped.to_string()),
            _ => Err(TextError::new("contains IPv4 addresses", "write it in IPv4, as in \"10.0.0.0/8\"")),
        };
    }
    text.parse().map_err(|error| match error {
        NetworkError::HostBits { network } => TextError::new(
            "has bits set beyond its prefix",
            format!(r#"write "{network}" for the range, or "{address}" for the one address"#),
        ),
        _ => TextError::new(
            "is not an address prefix",
            r#"write an address and how many of its bits count, as in "10.0.0.0/8" or "fd00::/8""#,
        ),
    })
}

/// A listening address: an IP address with a port, or a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BindAddress {
    /// An address and a port; port 0 selects a free one.
    Tcp(SocketAddr),
    /// The path of a Unix stream socket.
    Unix(PathBuf),
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for BindAddress {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return socket_path(path).map(Self::Unix);
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            let remedy = match text.parse::<u16>() {
                Ok(port) => {
                    format!(r#"write "0.0.0.0:{port}" for every IPv4 address, "[::]:{port}" for every one"#)
                }
                Err(_) => r#"write "0.0.0.0:8443", "[::]:8443" or "unix:/run/cardea/http.sock""#.to_owned(),
            };
            TextError::new("is not an address to listen on", remedy)
        })
    }
}

/// Parses the address of an endpoint, or its name.
pub(super) fn parse_address(text: &str) -> Result<Target, TextError> {
    if let Some(path) = text.strip_prefix("unix:") {
        return socket_path(path).map(|path| Target::Address(Address::Unix(path)));
    }
    let wrong = |remedy: &str| TextError::new("is not an endpoint's address", remedy);
    if text.contains("://") {
        return Err(wrong(
            r#"write host and port alone, as in "10.0.0.1:8080"; TLS is switched on by the service's tls table"#,
        ));
    }
    text.parse().map_err(|_: AddressError| {
        wrong(r#"write "10.0.0.1:8080", "[fd00::1]:8080", "orders.internal:8080" or "unix:/run/orders.sock""#)
    })
}

/// Parses the name of a service in the DNS.
pub(super) fn parse_srv(text: &str) -> Result<Arc<DnsName>, TextError> {
    DnsName::service(text).map(Arc::new).ok_or_else(|| {
        TextError::new(
            "is not the name of SRV records",
            r#"write "_service._protocol.domain", as in "_http._tcp.example.com""#,
        )
    })
}

/// Parses the address of a name server.
pub(super) fn parse_name_server(text: &str) -> Result<SocketAddr, TextError> {
    let alone = || text.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT));
    match text.parse::<SocketAddr>().or_else(|_| alone()) {
        Ok(address) if address.port() != 0 => Ok(address),
        _ => Err(TextError::new(
            "is not the address of a name server",
            r#"write an IP address, as in "10.0.0.53", or one with a port, as in "10.0.0.53:5353" or "[fd00::53]:5353""#,
        )),
    }
}

fn socket_path(path: &str) -> Result<PathBuf, TextError> {
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        return Err(TextError::new(
            "is not the path of a Unix socket",
            r#"write an absolute path, as in "unix:/run/cardea/http.sock""#,
        ));
    }
    if path.len() > SOCKET_PATH_BYTES_MAX {
        let remedy = format!("shorten the path to {SOCKET_PATH_BYTES_MAX} octets");
        return Err(TextError::new(format!("has a path of {} octets", path.len()), remedy));
    }
    Ok(PathBuf::from(path))
}

/// Whether a text is a token (RFC 9110 §5.6.2): field names, methods.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Checks a name, which appears in logs, metrics and commands.
pub(super) fn check_name(text: &str) -> Result<(), TextError> {
    let fits = text.len() <= 64
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if fits {
        return Ok(());
    }
    Err(TextError::new(
        "is not a name",
        "use up to 64 letters, digits, - _ and . and begin with a letter or a digit",
    ))
}

/// A position in decimal degrees: latitude, then longitude.
pub(super) fn parse_position(text: &str) -> Result<Position, TextError> {
    let degrees = |text: &str| {
        let text = text.trim();
        let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'.'));
        text.parse::<f64>().ok().filter(|_| is_decimal)
    };
    text.split_once(',')
        .and_then(|(latitude, longitude)| Position::new(degrees(latitude)?, degrees(longitude)?))
        .ok_or_else(|| {
            TextError::new(
                "is not a position",
                r#"write latitude and longitude in decimal degrees, as in "53.35, -6.26"; south and west are negative"#,
            )
        })
}

/// The permissions of a Unix socket, in octal.
pub(super) fn parse_file_mode(text: &str) -> Result<u32, TextError> {
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if digits && mode <= 0o777 => Ok(mode),
        _ => Err(TextError::new("is not a file mode", r#"write permissions in octal, as in "0660""#)),
    }
}

/// The formats of text in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Duration,
    Rate,
    Size,
    Prefix,
    BindAddress,
    Address,
    Srv,
    NameServer,
    Name,
    FileMode,
    Position,
}

/// Each format: its name in the schema, its name in the reference, and what to write in quotes if a number or another
/// value was written.
const FORMATS: [(Format, &str, &str, &str); 11] = [
    (Format::Duration, "cardea-duration", "duration", "10s"),
    (Format::Rate, "cardea-rate", "rate", "100/s"),
    (Format::Size, "cardea-size", "size", "64KiB"),
    (Format::Prefix, "cardea-prefix", "address prefix", "10.0.0.0/8"),
    (Format::BindAddress, "cardea-bind-address", "address to listen on", "0.0.0.0:8443"),
    (Format::Address, "cardea-address", "address", "10.0.0.1:8080"),
    (Format::Srv, "cardea-srv", "name of SRV records", "_http._tcp.example.com"),
    (Format::NameServer, "cardea-name-server", "address of a name server", "10.0.0.53"),
    (Format::Name, "cardea-name", "name", "main"),
    (Format::FileMode, "cardea-file-mode", "file mode", "0660"),
    (Format::Position, "cardea-position", "position", "53.35, -6.26"),
];

impl Format {
    pub(super) fn of_schema(name: &str) -> Option<Self> {
        FORMATS.iter().find(|(_, schema, ..)| *schema == name).map(|(format, ..)| *format)
    }

    fn texts(self) -> (&'static str, &'static str) {
        let row = FORMATS.iter().find(|(format, ..)| *format == self);
        row.map_or(("text", ""), |(.., title, example)| (title, example))
    }

    /// The name in the reference.
    pub(super) fn title(self) -> &'static str {
        self.texts().0
    }

    /// What to write in quotes if a number or another value was written.
    pub(super) fn example(self) -> &'static str {
        self.texts().1
    }

    pub(super) fn check(self, text: &str) -> Result<(), TextError> {
        match self {
            Self::Duration => parse_duration(text).map(drop),
            Self::Rate => parse_rate(text).map(drop),
            Self::Size => parse_size(text).map(drop),
            Self::Prefix => parse_prefix(text).map(drop),
            Self::BindAddress => text.parse::<BindAddress>().map(drop),
            Self::Address => parse_address(text).map(drop),
            Self::Srv => parse_srv(text).map(drop),
            Self::NameServer => parse_name_server(text).map(drop),
            Self::Name => check_name(text),
            Self::FileMode => parse_file_mode(text).map(drop),
            Self::Position => parse_position(text).map(drop),
        }
    }

    /// The measure that a limit applies to; `None` if there is none.
    pub(super) fn measure(self, text: &str) -> Option<u128> {
        match self {
            Self::Duration => parse_duration(text).ok().map(|duration| duration.as_millis()),
            Self::Size => parse_size(text).ok().map(u128::from),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
