//! The negotiated parameters of a handshake, for attributes, logs and metrics.

use std::sync::Arc;

use rustls::crypto::hash::HashAlgorithm;
use rustls::{
    CipherSuite, HandshakeKind, NamedGroup, ProtocolVersion, ServerConnection, SupportedCipherSuite,
};

use crate::client_auth::ClientCertificate;

/// The negotiated parameters of a handshake. The names are few and static, so they can be metric labels; `sni` is
/// chosen by the client and can't. The signature scheme is missing, because rustls doesn't expose it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeFacts {
    /// The protocol version: `TLSv1.2` or `TLSv1.3`.
    pub protocol: &'static str,
    /// The name in the IANA registry, such as `TLS_AES_128_GCM_SHA256`.
    pub cipher_suite: &'static str,
    /// The hash of the cipher suite, in the spelling of the suite's name: `SHA256` or `SHA384`.
    pub cipher_hash: &'static str,
    /// The name in the IANA registry, such as `X25519MLKEM768`; empty if a TLS 1.2 session was resumed, which has no
    /// key exchange.
    pub key_exchange_group: &'static str,
    /// The server name that the client sent, in lower case and without a trailing dot.
    pub sni: Option<Box<str>>,
    /// `h2`, `http/1.1`, or `other`; `None` if the client offered no protocol.
    pub alpn: Option<&'static str>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// The client's certificate; [`ClientCertificate::holds`] tells whether it is still valid.
    pub client_certificate: Option<Arc<ClientCertificate>>,
}

impl HandshakeFacts {
    /// The facts of `connection` except the client certificate. `None` during the handshake, unless the client sends
    /// early data: then all of them are known.
    #[must_use]
    pub(crate) fn of(connection: &mut ServerConnection) -> Option<Self> {
        if connection.is_handshaking() && connection.early_data().is_none() {
            return None;
        }
        let sni = connection.server_name().map(|name| name.strip_suffix('.').unwrap_or(name));
        Some(Self {
            protocol: protocol(connection.protocol_version()?),
            cipher_suite: cipher_suite(connection.negotiated_cipher_suite()?.suite()),
            cipher_hash: cipher_hash(connection.negotiated_cipher_suite()?),
            key_exchange_group: connection
                .negotiated_key_exchange_group()
                .map_or("", |group| key_group(group.name())),
            sni: sni.map(Into::into),
            alpn: connection.alpn_protocol().map(|protocol| match protocol {
                b"h2" => "h2",
                b"http/1.1" => "http/1.1",
                _ => "other",
            }),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            client_certificate: None,
        })
    }
}

fn protocol(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::TLSv1_3 => "TLSv1.3",
        ProtocolVersion::TLSv1_2 => "TLSv1.2",
        _ => "other",
    }
}

/// rustls uses other names for TLS 1.3 suites than the registry.
fn cipher_suite(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        suite => suite.as_str().unwrap_or("other"),
    }
}

fn cipher_hash(suite: SupportedCipherSuite) -> &'static str {
    let common = match suite {
        SupportedCipherSuite::Tls12(suite) => &suite.common,
        SupportedCipherSuite::Tls13(suite) => &suite.common,
    };
    match common.hash_provider.algorithm() {
        HashAlgorithm::SHA256 => "SHA256",
        HashAlgorithm::SHA384 => "SHA384",
        _ => "other",
    }
}

fn key_group(group: NamedGroup) -> &'static str {
    match group {
        NamedGroup::X25519MLKEM768 => "X25519MLKEM768",
        NamedGroup::X25519 => "x25519",
        NamedGroup::secp256r1 => "secp256r1",
        NamedGroup::secp384r1 => "secp384r1",
        _ => "other",
    }
}
