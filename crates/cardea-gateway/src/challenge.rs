//! Answers to the challenges of certificate authorities: HTTP-01 (RFC 8555 §8.3) and TLS-ALPN-01 (RFC 8737).
//!
//! There are some for seconds, once in weeks. While there are none, a load says so, and a request or a handshake that looks
//! like a challenge is like any other.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwapOption;
use cardea_http::{Known, Method, ResponseHead};
use rustls::{ServerConfig, server::ClientHello};

use crate::{
    exchange::Exchange,
    response::{Response, ResponseBody},
};

/// Where HTTP-01 asks; the token follows.
const PATH_PREFIX: &[u8] = b"/.well-known/acme-challenge/";

/// The answers that are held ready. Shared by all listeners.
#[derive(Debug, Default)]
pub struct Challenges {
    has_http: AtomicBool,
    has_tls: AtomicBool,
    table: ArcSwapOption<ChallengeAnswers>,
}

/// All answers of one moment.
#[derive(Default)]
pub struct ChallengeAnswers {
    /// By the token: the host that it is good for, in lower case, and the key authorization.
    pub http: HashMap<String, (String, String)>,
    /// By the host, in lower case: the configuration of the handshake.
    pub tls: HashMap<String, Arc<ServerConfig>>,
}

impl fmt::Debug for ChallengeAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = self.http.values().map(|(host, _)| host).chain(self.tls.keys()).collect();
        f.debug_struct("ChallengeAnswers").field("hosts", &hosts).finish_non_exhaustive()
    }
}

impl Challenges {
    /// Holds these answers ready, and no others.
    pub fn set(&self, answers: ChallengeAnswers) {
        let (has_http, has_tls) = (!answers.http.is_empty(), !answers.tls.is_empty());
        let any = has_http || has_tls;
        self.table.store(any.then(|| Arc::new(answers)));
        self.has_http.store(has_http, Relaxed);
        self.has_tls.store(has_tls, Relaxed);
    }

    /// Whether a client's greeting must be read before the handshake is answered.
    pub(crate) fn has_tls(&self) -> bool {
        self.has_tls.load(Relaxed)
    }

    /// The configuration of the handshake where the client asks for the answer to a challenge that there is.
    pub(crate) fn handshake(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        if !cardea_tls::acme::asks_for_challenge(hello) {
            return None;
        }
        let table = self.table.load();
        let host = hello.server_name()?;
        // RFC 8737 §3 has the name in lower case, as our own are; others need not be found.
        table.as_ref()?.tls.get(host).cloned()
    }

    /// The response where the request asks for the answer to a challenge that there is: by GET or HEAD, over a connection
    /// without TLS, at exactly its path on exactly its host.
    pub(crate) fn response(&self, exchange: &Exchange) -> Option<Response> {
        if !self.has_http.load(Relaxed) {
            return None;
        }
        let token = std::str::from_utf8(exchange.path.strip_prefix(PATH_PREFIX)?).ok()?;
        let connection = exchange.connection.as_ref()?;
        let is_read = matches!(exchange.head.method, Method::Get | Method::Head);
        if connection.listener.tls.is_some() || !is_read || exchange.query.is_some() {
            return None;
        }
        let table = self.table.load();
        let (host, answer) = table.as_ref()?.http.get(token)?;
        if exchange.authority.as_ref()?.host() != host {
            return None;
        }
        let mut head = ResponseHead::new(200);
        head.fields.set_known(Known::ContentType, b"application/octet-stream").ok()?;
        head.fields.set_known(Known::CacheControl, b"no-store").ok()?;
        Some(Response::new(head, ResponseBody::text(answer.as_str())))
    }
}
