//! The written forms of values whose types belong to the libraries: text with its own syntax, or one of several words.
//!
//! A field of the raw form has the type that the program uses, and names its written form: `#[serde(with =
//! "As::<Size>")]`. The schema follows from that.

use std::{fmt, marker::PhantomData, net::SocketAddr, num::NonZeroU32, sync::Arc, time::Duration};

use cardea_env::Network;
use cardea_gateway::{
    client_certificate::ClientCertificateForward,
    model::{HeaderEncoding, Protocol, TarpitAction, ThrottleReport},
};
use cardea_guard::Priority;
use cardea_http::{ForwardedHeader, ForwardedPolicy};
use cardea_identity::{Algorithm, ClaimPath};
use cardea_issuer::SigningAlgorithm;
use cardea_tls::{MinVersion, acme::RequestedKey};
use cardea_upstream::{Balance, CheckMethod, CheckProtocol, DnsName, Position, StatusSet, Target};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value};

use super::{
    model::BuiltIn,
    text::{
        BindAddress, Rate, TextError, display_duration, display_rate, display_size, parse_address,
        parse_duration, parse_file_mode, parse_name_server, parse_position, parse_prefix, parse_rate,
        parse_size, parse_srv,
    },
};

/// The written form of a value.
pub(crate) trait Form {
    /// The type that the program uses.
    type Value;

    /// Serialises a default.
    fn write<S: Serializer>(value: &Self::Value, serializer: S) -> Result<S::Ok, S::Error>;
    /// Deserialises a value.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self::Value, D::Error>;
    /// The schema that files are checked against.
    fn schema() -> Schema;
}

/// For `#[serde(with = "As::<…>")]`.
pub(crate) struct As<F>(PhantomData<F>);

impl<F: Form> As<F> {
    pub(crate) fn serialize<S: Serializer>(value: &F::Value, serializer: S) -> Result<S::Ok, S::Error> {
        F::write(value, serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<F::Value, D::Error> {
        F::read(deserializer)
    }
}

impl<F: Form> JsonSchema for As<F> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        std::any::type_name::<F>().into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        F::schema()
    }
}

/// A value with its written form.
pub(crate) struct Written<F: Form>(pub(crate) F::Value);

impl<F: Form<Value: fmt::Debug>> fmt::Debug for Written<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<F: Form> Serialize for Written<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        F::write(&self.0, serializer)
    }
}

impl<'de, F: Form> Deserialize<'de> for Written<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        F::read(deserializer).map(Self)
    }
}

impl<F: Form> JsonSchema for Written<F> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        As::<F>::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        F::schema()
    }
}

/// A value in a list or an option of such, borrowed to be written.
struct Item<'v, F: Form>(&'v F::Value);

impl<F: Form> Serialize for Item<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        F::write(self.0, serializer)
    }
}

/// An optional key.
impl<F: Form> Form for Option<F> {
    type Value = Option<F::Value>;

    fn write<S: Serializer>(value: &Self::Value, serializer: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(Item::<F>).serialize(serializer)
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self::Value, D::Error> {
        F::read(deserializer).map(Some)
    }

    fn schema() -> Schema {
        F::schema()
    }
}

impl<F: Form> Form for Vec<F> {
    type Value = Vec<F::Value>;

    fn write<S: Serializer>(value: &Self::Value, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(value.iter().map(Item::<F>))
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self::Value, D::Error> {
        let items = Vec::<Written<F>>::deserialize(deserializer)?;
        Ok(items.into_iter().map(|item| item.0).collect())
    }

    fn schema() -> Schema {
        json_schema!({ "type": "array", "items": F::schema() })
    }
}

/// Forms that are text: their name in the schema, their parser and their writer.
macro_rules! text_forms {
    ($($(#[$doc:meta])* $form:ty: $value:ty, $format:literal, $pattern:literal; $read:expr, $write:expr;)*) => {
        $(
            $(#[$doc])*
            impl Form for $form {
                type Value = $value;

                fn write<S: Serializer>(value: &$value, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.serialize_str(&$write(value))
                }

                fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$value, D::Error> {
                    let text = String::deserialize(deserializer)?;
                    $read(&text).map_err(|error: TextError| D::Error::custom(error.message))
                }

                fn schema() -> Schema {
                    text_schema($format, $pattern)
                }
            }
        )*
    };
}

/// A size in octets, as the type `T`.
pub(crate) struct Size<T>(PhantomData<T>);
/// Permissions in octal.
pub(crate) struct FileMode;
/// The name of SRV records.
pub(crate) struct Srv;
/// The address of a name server, with or without its port.
pub(crate) struct NameServer;

text_forms! {
    Duration: Self, "cardea-duration", "^[0-9]+(ms|s|m|h|d)$";
        parse_duration, |value: &Self| display_duration(*value);
    Rate: Self, "cardea-rate", "^[0-9]+/[smhd]$"; parse_rate, |value: &Self| display_rate(*value);
    Size<u64>: u64, "cardea-size", "^[0-9]+([KMGT]i?)?B$"; parse_size, |value: &u64| display_size(*value);
    Size<usize>: usize, "cardea-size", "^[0-9]+([KMGT]i?)?B$";
        |text: &str| parse_size(text).map(|size| usize::try_from(size).unwrap_or(usize::MAX)),
        |value: &usize| display_size(*value as u64);
    FileMode: u32, "cardea-file-mode", "^[0-7]{3,4}$"; parse_file_mode, |mode: &u32| format!("{mode:04o}");
    Network: Self, "cardea-prefix", ""; parse_prefix, ToString::to_string;
    BindAddress: Self, "cardea-bind-address", ""; str::parse::<Self>, ToString::to_string;
    Position: Self, "cardea-position", ""; parse_position, ToString::to_string;
    Target: Self, "cardea-address", ""; parse_address, ToString::to_string;
    Srv: Arc<DnsName>, "cardea-srv", ""; parse_srv, ToString::to_string;
    NameServer: SocketAddr, "cardea-name-server", ""; parse_name_server, ToString::to_string;
    ClaimPath: Self, "", ""; |path: &str| Ok(Self::from(path)), ToString::to_string;
}

fn text_schema(format: &str, pattern: &str) -> Schema {
    let mut schema = json_schema!({ "type": "string" });
    for (key, value) in [("format", format), ("pattern", pattern)] {
        if !value.is_empty() {
            schema.insert(key.to_owned(), value.into());
        }
    }
    schema
}

/// A text as it is.
impl Form for String {
    type Value = Self;

    fn write<S: Serializer>(value: &Self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(value)
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// A number as it is.
impl Form for u32 {
    type Value = Self;

    fn write<S: Serializer>(value: &Self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(*value)
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }

    fn schema() -> Schema {
        json_schema!({ "type": "integer" })
    }
}

/// A number; 0 means no limit.
pub(crate) struct ZeroForNone;

impl Form for ZeroForNone {
    type Value = Option<NonZeroU32>;

    fn write<S: Serializer>(value: &Self::Value, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(value.map_or(0, NonZeroU32::get))
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self::Value, D::Error> {
        u32::deserialize(deserializer).map(NonZeroU32::new)
    }

    fn schema() -> Schema {
        json_schema!({ "type": "integer" })
    }
}

/// A list of statuses from `MIN` to 599. The default is that of errors.
pub(crate) struct Statuses<const MIN: u16 = 400>;

impl<const MIN: u16> Form for Statuses<MIN> {
    type Value = StatusSet;

    fn write<S: Serializer>(value: &Self::Value, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((0..=u16::MAX).filter(|status| value.contains(*status)))
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self::Value, D::Error> {
        Vec::<u16>::deserialize(deserializer).map(StatusSet::new)
    }

    fn schema() -> Schema {
        json_schema!({
            "type": "array", "items": { "type": "integer", "minimum": MIN, "maximum": 599 }
        })
    }
}

/// A number of threads: `"auto"`, which is 0 in the program, or a number of at most `MAX`.
pub(crate) struct Threads<const MAX: usize>;

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ThreadsText {
    Count(usize),
    Word(String),
}

impl<const MAX: usize> Form for Threads<MAX> {
    type Value = usize;

    fn write<S: Serializer>(value: &usize, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            0 => serializer.serialize_str("auto"),
            count => count.serialize(serializer),
        }
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
        match ThreadsText::deserialize(deserializer)? {
            ThreadsText::Word(word) if word == "auto" => Ok(0),
            ThreadsText::Count(count) if (1..=MAX).contains(&count) => Ok(count),
            _ => Err(D::Error::custom("neither \"auto\" nor a number")),
        }
    }

    fn schema() -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string", "enum": ["auto"] },
                { "type": "integer", "minimum": 1, "maximum": MAX },
            ]
        })
    }
}

/// A number of requests in flight, or `adaptive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InFlight {
    Number(u32),
    Adaptive,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum InFlightText {
    Number(u32),
    Word(String),
}

impl Form for InFlight {
    type Value = Self;

    fn write<S: Serializer>(value: &Self, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Self::Number(number) => number.serialize(serializer),
            Self::Adaptive => serializer.serialize_str("adaptive"),
        }
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match InFlightText::deserialize(deserializer)? {
            InFlightText::Number(number) => Ok(Self::Number(number)),
            InFlightText::Word(word) if word == "adaptive" => Ok(Self::Adaptive),
            InFlightText::Word(_) => Err(D::Error::custom("neither \"adaptive\" nor a number")),
        }
    }

    fn schema() -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "integer", "minimum": 1, "maximum": 10_000_000 },
                { "type": "string", "enum": ["adaptive"] },
            ]
        })
    }
}

/// The words of a choice: the text, its value, and its description in the reference. `@opens` marks a word that admits
/// more callers than the others; messages never suggest it.
macro_rules! words {
    ($($form:ty { $($(#[doc = $doc:literal])* $(@$opens:ident)? $word:literal => $value:path,)* })*) => {
        $(
            impl Form for $form {
                type Value = Self;

                fn write<S: Serializer>(value: &Self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.serialize_str(match value { $($value => $word,)* })
                }

                fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    match String::deserialize(deserializer)?.as_str() {
                        $($word => Ok($value),)*
                        other => Err(D::Error::custom(format!("{other:?} is none of the words"))),
                    }
                }

                fn schema() -> Schema {
                    choice(&[$(($word, &[$($doc),*], !stringify!($($opens)?).is_empty())),*])
                }
            }
        )*
    };
}

/// The schema of a choice: a list of words, or each with its description.
fn choice(words: &[(&str, &[&str], bool)]) -> Schema {
    if words.iter().all(|(_, lines, opens)| lines.is_empty() && !opens) {
        let words: Vec<&str> = words.iter().map(|(word, ..)| *word).collect();
        return json_schema!({ "type": "string", "enum": words });
    }
    let described = words.iter().map(|(word, lines, opens)| {
        let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
        let mut schema = Map::new();
        schema.insert("description".to_owned(), Value::from(lines.join("\n")));
        schema.insert("type".to_owned(), Value::from("string"));
        schema.insert("const".to_owned(), Value::from(*word));
        if *opens {
            schema.insert("x-opens".to_owned(), Value::from(true));
        }
        Value::Object(schema)
    });
    json_schema!({ "oneOf": described.collect::<Vec<_>>() })
}

words! {
    ForwardedPolicy {
        /// Replaced by the gateway's own values. Correct for the outermost proxy.
        "set" => ForwardedPolicy::Set,
        /// The peer's address is appended to the received addresses, whoever sent them. For origins that know which of
        /// them to trust.
        "append" => ForwardedPolicy::Append,
        /// Kept as received; missing fields are set. Only safe if nobody can connect but `trusted_proxies` that set all
        /// of them.
        @opens "trust" => ForwardedPolicy::Trust,
        /// Removed, and not set.
        "off" => ForwardedPolicy::Off,
    }
    ForwardedHeader {
        /// `X-Forwarded-For`, `-Proto` and `-Host`, which most origins read.
        "x-forwarded" => ForwardedHeader::XForwarded,
        /// `Forwarded` (RFC 7239).
        "forwarded" => ForwardedHeader::Forwarded,
    }
    Balance {
        /// Of two random endpoints, the one with the smaller product of requests in flight and response time. The
        /// response time follows peaks at once and counts errors as long responses.
        "peak-ewma" => Balance::PeakEwma,
        /// Of two random endpoints, the one with fewer requests in flight.
        "least-requests" => Balance::LeastRequests,
        /// Each endpoint in turn.
        "round-robin" => Balance::RoundRobin,
    }
    Protocol {
        /// HTTP/1.1.
        "http1" => Protocol::Http1,
        /// With `tls`, what the endpoint chooses of HTTP/2 and HTTP/1.1 (ALPN); without, HTTP/1.1.
        "auto" => Protocol::Auto,
        /// HTTP/2 alone: without `tls`, the endpoint has to expect it (prior knowledge).
        "http2" => Protocol::Http2,
    }
    CheckProtocol {
        /// No checks.
        "off" => CheckProtocol::Off,
        /// A connection, with the TLS handshake if the service uses TLS.
        "tcp" => CheckProtocol::Tcp,
        /// A request of HTTP/1.1 over such a connection.
        "http" => CheckProtocol::Http,
    }
    CheckMethod {
        "GET" => CheckMethod::Get,
        "HEAD" => CheckMethod::Head,
        "OPTIONS" => CheckMethod::Options,
    }
    HeaderEncoding {
        /// As UTF-8, or as Latin-1 if they are not valid UTF-8.
        "utf-8" => HeaderEncoding::Utf8,
        /// As Latin-1, one character per byte.
        "latin-1" => HeaderEncoding::Latin1,
    }
    Priority {
        /// Before all others.
        "critical" => Priority::Critical,
        /// Before `normal`.
        "high" => Priority::High,
        /// The usual priority.
        "normal" => Priority::Normal,
        /// After all others.
        "low" => Priority::Low,
    }
    TarpitAction {
        /// It is sent at once: there is no tarpit.
        "off" => TarpitAction::Off,
        /// It is sent late.
        "hold" => TarpitAction::Hold,
        /// Its head is sent at once, and its body one octet a second.
        "drip" => TarpitAction::Drip,
        /// It is not sent: the connection is closed, or the HTTP/2 stream reset.
        "drop" => TarpitAction::Drop,
    }
    ThrottleReport {
        /// None.
        "never" => ThrottleReport::Never,
        /// Those to requests that it refuses.
        "refused" => ThrottleReport::Refused,
        /// Those to all requests that it counts.
        "always" => ThrottleReport::Always,
    }
    MinVersion {
        /// TLS 1.2, with forward secrecy and authenticated encryption only.
        "1.2" => MinVersion::Tls12,
        /// TLS 1.3.
        "1.3" => MinVersion::Tls13,
    }
    Algorithm {
        "RS256" => Algorithm::Rs256,
        "RS384" => Algorithm::Rs384,
        "RS512" => Algorithm::Rs512,
        "PS256" => Algorithm::Ps256,
        "PS384" => Algorithm::Ps384,
        "PS512" => Algorithm::Ps512,
        "ES256" => Algorithm::Es256,
        "ES384" => Algorithm::Es384,
        "ES512" => Algorithm::Es512,
        "EdDSA" => Algorithm::EdDsa,
    }
    SigningAlgorithm {
        /// ECDSA on P-256: small, fast, and supported by all clients.
        "ES256" => SigningAlgorithm::Es256,
        /// RSA with 2048 bits, for clients that support nothing else.
        "RS256" => SigningAlgorithm::Rs256,
        /// Ed25519.
        "EdDSA" => SigningAlgorithm::EdDsa,
    }
    RequestedKey {
        /// ECDSA on P-256: small, fast, and supported by all clients.
        "ecdsa-p256" => RequestedKey::EcdsaP256,
        /// ECDSA on P-384.
        "ecdsa-p384" => RequestedKey::EcdsaP384,
        /// RSA with 2048 bits, for clients that support nothing else.
        "rsa-2048" => RequestedKey::Rsa2048,
    }
    BuiltIn {
        /// The token endpoint of the authorization server.
        "token" => BuiltIn::Token,
        /// The key set of the authorization server.
        "jwks" => BuiltIn::KeySet,
        /// The metadata of the authorization server (RFC 8414).
        "oauth_metadata" => BuiltIn::OauthMetadata,
        /// The same metadata at the path of OpenID Connect Discovery.
        "openid_configuration" => BuiltIn::OpenidConfiguration,
        /// The authorization endpoint of the authorization server, which refuses all requests.
        "authorize" => BuiltIn::Authorize,
        /// Answers 200 while the process runs, 503 while it drains.
        "health" => BuiltIn::Health,
    }
    ClientCertificateForward {
        /// No certificate.
        "none" => ClientCertificateForward::Nothing,
        /// The client's certificate, in `Client-Cert`.
        "leaf" => ClientCertificateForward::Leaf,
        /// Also the rest of the client's chain, in `Client-Cert-Chain`.
        "chain" => ClientCertificateForward::Chain,
    }
}
