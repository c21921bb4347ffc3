//! Three small origins in two regions. They answer with their name and the identity headers that they received.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result};
use cardea_gateway::workers;
use http_body_util::Full;
use hyper::{Request, Response, body::Bytes, body::Incoming, header::CONTENT_TYPE, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};

/// One origin.
pub(super) struct Origin {
    pub(super) region: &'static str,
    pub(super) address: SocketAddr,
    task: JoinHandle<()>,
}

/// All of them.
pub(super) struct Origins {
    list: Vec<Origin>,
    nobody: SocketAddr,
}

impl Origins {
    pub(super) async fn start() -> Result<Self> {
        let mut list = Vec::new();
        for (name, region) in [("eu-1", "eu"), ("eu-2", "eu"), ("us-1", "us")] {
            let listener = TcpListener::bind("127.0.0.1:0").await.context("an origin's port")?;
            let address = listener.local_addr()?;
            let task = workers::spawn(serve(listener, name, region));
            list.push(Origin { region, address, task });
        }
        // A free port that nobody listens on.
        let nobody = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        Ok(Self { list, nobody })
    }

    pub(super) fn list(&self) -> &[Origin] {
        &self.list
    }

    /// The address of a service that is down.
    pub(super) fn nobody(&self) -> SocketAddr {
        self.nobody
    }

    /// Stops the origins of `region`.
    pub(super) fn stop(&self, region: &str) {
        self.list.iter().filter(|origin| origin.region == region).for_each(|origin| origin.task.abort());
    }
}

async fn serve(listener: TcpListener, name: &'static str, region: &'static str) {
    // Connections end with the origin.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        connections.spawn(async move {
            let answer = service_fn(move |request| answer(request, name, region));
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(120))
                .serve_connection(TokioIo::new(stream), answer)
                .await;
            if let Err(error) = served {
                tracing::debug!(origin = name, %error, "a connection to an origin ended");
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    request: Request<Incoming>,
    name: &'static str,
    region: &'static str,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let body = json!({
        "origin": name,
        "region": region,
        "method": request.method().as_str(),
        "path": request.uri().path(),
        "caller": { "issuer": header("x-auth-issuer"), "subject": header("x-auth-subject"), "scopes": header("x-auth-scopes") },
        "forwarded_for": header("x-forwarded-for"),
        "request_id": header("x-request-id"),
    });
    let mut response = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    Ok(response)
}
