//! Values written as text: durations, sizes, addresses, prefixes. Each has one syntax, one error with a remedy, and one
//! schema.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use cardea_gateway::model::Prefix;
use cardea_upstream::Address;

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

/// The longest Unix socket path that every system supports (`sun_path` has 108 octets with its NUL, unix(7)).
const SOCKET_PATH_BYTES_MAX: usize = 107;

const DURATION_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Parses a duration: a whole number and a unit.
pub fn parse_duration(text: &str) -> Result<Duration, TextError> {
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = DURATION_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let milliseconds =
        number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    milliseconds.map(Duration::from_millis).ok_or_else(|| {
        TextError::new(
            "is not a duration",
            r#"write a whole number and a unit, as in "500ms", "10s", "5m", "1h" or "7d""#,
        )
    })
}

/// Formats a duration in the largest unit that divides it; fractions of a millisecond are not representable.
pub fn display_duration(duration: Duration) -> String {
    let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let whole = |factor: u64| milliseconds != 0 && milliseconds.is_multiple_of(factor);
    let (unit, factor) =
        DURATION_UNITS.iter().rev().find(|(_, factor)| whole(*factor)).copied().unwrap_or(("ms", 1));
    format!("{}{unit}", milliseconds / factor)
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
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor)).ok_or_else(
        || {
            TextError::new(
                "is not a size",
                r#"write a whole number and a unit, as in "512B", "64KiB", "1MiB" or "10MB""#,
            )
        },
    )
}

/// Formats a size in the largest unit that divides it.
pub(super) fn display_size(size: u64) -> String {
    let whole = |factor: u64| size != 0 && size.is_multiple_of(factor);
    let (unit, factor) =
        SIZE_UNITS.iter().rev().find(|(_, factor)| whole(*factor)).copied().unwrap_or(("B", 1));
    format!("{}{unit}", size / factor)
}

/// Parses an address prefix, `10.0.0.0/8`; an address is a prefix of full length.
pub(super) fn parse_prefix(text: &str) -> Result<Prefix, TextError> {
    let wrong = || {
        TextError::new(
            "is not an address prefix",
            r#"write an address and how many of its bits count, as in "10.0.0.0/8" or "fd00::/8""#,
        )
    };
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let width: u8 = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => width,
        Some(bits) if bits.len() <= 3 && bits.bytes().all(|byte| byte.is_ascii_digit()) => {
            bits.parse().ok().filter(|&bits| bits <= width).ok_or_else(wrong)?
        }
        Some(_) => return Err(wrong()),
    };
    let first = first_address(address, bits);
    if first != address {
        let remedy = format!(r#"write "{first}/{bits}" for the range, or "{address}" for the one address"#);
        return Err(TextError::new("has bits set beyond its prefix", remedy));
    }
    Ok(Prefix { address, bits })
}

fn first_address(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
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

/// Parses the address of an endpoint.
pub(super) fn parse_address(text: &str) -> Result<Address, TextError> {
    if let Some(path) = text.strip_prefix("unix:") {
        return socket_path(path).map(Address::Unix);
    }
    let wrong = |remedy: &str| TextError::new("is not an endpoint's address", remedy);
    if text.contains("://") {
        return Err(wrong(
            r#"write host and port alone, as in "10.0.0.1:8080"; TLS is switched on by the service's tls table"#,
        ));
    }
    let remedy =
        r#"write "10.0.0.1:8080", "[fd00::1]:8080", "orders.internal:8080" or "unix:/run/orders.sock""#;
    if let Ok(address) = text.parse::<SocketAddr>() {
        return if address.port() == 0 { Err(wrong(remedy)) } else { Ok(Address::Tcp(address)) };
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong(remedy))?;
    let port = port.parse().ok().filter(|&port| port != 0).ok_or_else(|| wrong(remedy))?;
    if !is_dns_name(host) {
        return Err(wrong(remedy));
    }
    Ok(Address::Name { host: host.to_ascii_lowercase(), port })
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

/// Whether a text is a host name (RFC 1123 §2.1), without a final dot. `_` is allowed too, because internal names use
/// it.
pub(super) fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    // A last label of digits would be read as an IPv4 address (RFC 1123 §2.1).
    let numeric = text.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    !numeric && text.len() <= 253 && text.split('.').all(label)
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

/// The permissions of a Unix socket, in octal.
pub(super) fn parse_file_mode(text: &str) -> Result<u32, TextError> {
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if digits && mode <= 0o777 => Ok(mode),
        _ => Err(TextError::new("is not a file mode", r#"write permissions in octal, as in "0660""#)),
    }
}

/// The formats of text in the configuration: their names in the schema, and their checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Duration,
    Rate,
    Size,
    Prefix,
    BindAddress,
    Address,
    Name,
    FileMode,
}

impl Format {
    pub(super) fn of_schema(name: &str) -> Option<Self> {
        Some(match name {
            "cardea-duration" => Self::Duration,
            "cardea-rate" => Self::Rate,
            "cardea-size" => Self::Size,
            "cardea-prefix" => Self::Prefix,
            "cardea-bind-address" => Self::BindAddress,
            "cardea-address" => Self::Address,
            "cardea-name" => Self::Name,
            "cardea-file-mode" => Self::FileMode,
            _ => return None,
        })
    }

    /// The name in the reference.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Duration => "duration",
            Self::Rate => "rate",
            Self::Size => "size",
            Self::Prefix => "address prefix",
            Self::BindAddress => "address to listen on",
            Self::Address => "address",
            Self::Name => "name",
            Self::FileMode => "file mode",
        }
    }

    /// What to write in quotes if a number or another value was written.
    pub(super) fn example(self) -> &'static str {
        match self {
            Self::Duration => "10s",
            Self::Rate => "100/s",
            Self::Size => "64KiB",
            Self::Prefix => "10.0.0.0/8",
            Self::BindAddress => "0.0.0.0:8443",
            Self::Address => "10.0.0.1:8080",
            Self::Name => "main",
            Self::FileMode => "0660",
        }
    }

    pub(super) fn check(self, text: &str) -> Result<(), TextError> {
        match self {
            Self::Duration => parse_duration(text).map(drop),
            Self::Rate => parse_rate(text).map(drop),
            Self::Size => parse_size(text).map(drop),
            Self::Prefix => parse_prefix(text).map(drop),
            Self::BindAddress => text.parse::<BindAddress>().map(drop),
            Self::Address => parse_address(text).map(drop),
            Self::Name => check_name(text),
            Self::FileMode => parse_file_mode(text).map(drop),
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
