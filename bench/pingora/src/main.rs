//! The least that a proxy on Pingora is: one origin, the fields that tell it about the client, and a bound on the
//! requests at a time where the bench asks for one.
#![forbid(unsafe_code)]

use std::env;
use std::error::Error;

use async_trait::async_trait;
use pingora_core::Result;
use pingora_core::listeners::tls::TlsSettings;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_limits::inflight::{Guard, Inflight};
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

const VIA: &str = "1.1 pingora";
const USAGE: &str = "usage: bench-pingora LISTEN-ADDRESS ORIGIN-ADDRESS WORKERS REQUESTS-MAX \
                     [CERTIFICATE-FILE KEY-FILE h1|h2]";
/// Idle connections to the origin, for as many clients as a bench has.
const POOL_SIZE: usize = 4096;

struct Proxy {
    peer: HttpPeer,
    scheme: &'static str,
    /// 0: as many as come.
    requests_max: isize,
    requests: Inflight,
}

#[async_trait]
impl ProxyHttp for Proxy {
    /// Counts the request for as long as it lasts.
    type CTX = Option<Guard>;

    fn new_ctx(&self) -> Self::CTX {
        None
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Self::CTX) -> Result<bool> {
        if self.requests_max == 0 {
            return Ok(false);
        }
        let (guard, count) = self.requests.incr("origin", 1);
        if count > self.requests_max {
            session.respond_error(503).await?;
            return Ok(true);
        }
        *ctx = Some(guard);
        Ok(false)
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut Self::CTX) -> Result<Box<HttpPeer>> {
        Ok(Box::new(self.peer.clone()))
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        _: &mut Self::CTX,
    ) -> Result<()> {
        if let Some(address) = session.client_addr().and_then(|address| address.as_inet()) {
            request.insert_header("X-Forwarded-For", address.ip().to_string())?;
        }
        if let Some(host) = request.headers.get("Host").cloned() {
            request.insert_header("X-Forwarded-Host", host)?;
        }
        request.insert_header("X-Forwarded-Proto", self.scheme)?;
        request.insert_header("Via", VIA)
    }

    async fn response_filter(
        &self,
        _: &mut Session,
        response: &mut ResponseHeader,
        _: &mut Self::CTX,
    ) -> Result<()> {
        response.insert_header("Via", VIA)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (listen, origin, workers, requests_max, tls) = match arguments.as_slice() {
        [listen, origin, workers, most] => (listen, origin, workers, most, None),
        [listen, origin, workers, most, chain, key, codec] => {
            (listen, origin, workers, most, Some((chain, key, codec == "h2")))
        }
        _ => return Err(USAGE.into()),
    };
    let configuration = ServerConf {
        threads: workers.parse()?,
        upstream_keepalive_pool_size: POOL_SIZE,
        // What is under way when a bench ends it is of no use to anyone.
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, configuration);
    server.bootstrap();
    let proxy = Proxy {
        peer: HttpPeer::new(origin.as_str(), false, String::new()),
        scheme: if tls.is_some() { "https" } else { "http" },
        requests_max: requests_max.parse()?,
        requests: Inflight::new(),
    };
    let mut service = http_proxy_service(&server.configuration, proxy);
    match tls {
        None => service.add_tcp(listen),
        Some((chain, key, h2)) => {
            let mut settings = TlsSettings::intermediate(chain, key)?;
            if h2 {
                settings.enable_h2();
            }
            service.add_tls_with_settings(listen, None, settings);
        }
    }
    server.add_service(service);
    server.run_forever()
}
