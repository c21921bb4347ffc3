//! The TCP admin listener: metrics, health and readiness. It is read only, and refuses requests of web pages.

use std::{collections::VecDeque, convert::Infallible, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use cardea_gateway::{
    accepting::{self, Failed, Reserve},
    record::metrics,
};
use http::{Method, Request, Response, StatusCode, Version, header, uri::Authority};
use http_body_util::Full;
use hyper::{body::Body, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
};

use super::{AdminState, Ready};

/// The most connections. A further one closes the oldest: responses are fast, and idle clients must not block readiness
/// checks.
const CONNECTIONS_MAX: usize = 64;

/// The largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The most header fields of a request.
const FIELDS_MAX: usize = 64;

/// The timeout of a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest life of a connection. Scrapers open another one.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(60);

/// How long a running response may take after that, or after the listener was stopped.
const LAST_RESPONSE: Duration = Duration::from_secs(5);

const INDEX: &str = "\
/metrics  metrics in the Prometheus text format
/health   200 while the process runs
/choice/SERVICE  the endpoint of a service that a request would get now, step by step, in JSON
/ready    200 while the gateway should get new connections, else 503 with the reasons; also lists what is degraded
";

/// The response to requests with another host name.
const MISDIRECTED: &str = "\
Host must be an IP address of this machine, localhost, or a name in admin.hosts.
If this is a name of your gateway, add it: [admin] hosts = [\"…\"]
";

type Answer = Response<Full<Bytes>>;

/// Serves until `stop` ends. Then it accepts nothing more, and returns when running responses are finished.
pub(crate) async fn serve(listener: TcpListener, state: Arc<AdminState>, stop: impl Future<Output = ()>) {
    let bound = listener.local_addr().map(|address| address.ip()).ok();
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    // In the order of their start.
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    let mut stop = std::pin::pin!(stop);
    let mut reserve = Reserve::default();
    reserve.fill();
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => {
                open.retain(|connection| !connection.is_finished());
                reserve.fill();
                continue;
            }
        };
        match accepted {
            Ok((tcp, _)) => {
                if open.len() >= CONNECTIONS_MAX
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                open.push_back(connections.spawn(connection(
                    tcp,
                    bound,
                    Arc::clone(&state),
                    stopped.clone(),
                )));
            }
            Err(error) => match state.gateway().failed_to_accept("admin", &listener, &error) {
                Failed::OfOneConnection => {}
                Failed::Short if reserve.give() => {}
                Failed::Short => {
                    close_oldest(&mut open, &mut connections).await;
                    reserve.fill();
                }
                Failed::Pause => {
                    tokio::select! {
                        Some(_) = connections.join_next() => {
                            open.retain(|connection| !connection.is_finished());
                        }
                        () = accepting::pause() => {}
                    }
                    reserve.fill();
                }
            },
        }
    }
    drop(listener);
    let _ = stopping.send(true);
    while connections.join_next().await.is_some() {}
}

/// Closes the oldest connection, whose descriptor another one needs. The only one is given a moment, since its request may be on
/// the way.
async fn close_oldest(open: &mut VecDeque<AbortHandle>, connections: &mut JoinSet<()>) {
    if open.len() < 2 {
        tokio::select! {
            Some(_) = connections.join_next() => return open.retain(|connection| !connection.is_finished()),
            () = accepting::pause() => {}
        }
    }
    if let Some(oldest) = open.pop_front() {
        oldest.abort();
        connections.join_next().await;
        open.retain(|connection| !connection.is_finished());
    }
}

async fn connection(
    tcp: TcpStream,
    bound: Option<IpAddr>,
    state: Arc<AdminState>,
    mut stopped: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(answer(&request, bound, state).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(FIELDS_MAX)
        .serve_connection(TokioIo::new(tcp), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        result = &mut connection => return ended(result),
        () = tokio::time::sleep(CONNECTION_LIFETIME) => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    connection.as_mut().graceful_shutdown();
    if let Ok(result) = tokio::time::timeout(LAST_RESPONSE, connection).await {
        ended(result);
    }
}

fn ended(result: Result<(), hyper::Error>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a connection to the admin listener ended");
    }
}

async fn answer<B: Body>(request: &Request<B>, bound: Option<IpAddr>, state: Arc<AdminState>) -> Answer {
    if let Err((status, text)) = admit(request, bound, &state) {
        return plain(status, text);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        answer.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    if !request.body().is_end_stream() {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "requests with a body are refused\n");
    }
    match request.uri().path() {
        "/" => plain(StatusCode::OK, INDEX),
        "/health" => plain(StatusCode::OK, "alive\n"),
        "/ready" => {
            let Ready { reasons, degraded } = state.readiness();
            let ready = reasons.is_empty();
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            let document = serde_json::json!({ "ready": ready, "reasons": reasons, "degraded": degraded });
            respond(status, "application/json", format!("{document}\n"))
        }
        "/metrics" => {
            // Rendering ten thousand series takes milliseconds, in which a worker could serve requests.
            let render = move || {
                let mut text = String::new();
                state.registry().render(&mut text);
                text
            };
            match tokio::task::spawn_blocking(render).await {
                Ok(text) => respond(StatusCode::OK, metrics::CONTENT_TYPE, text),
                Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "the metrics can't be rendered\n"),
            }
        }
        path => match path.strip_prefix("/choice/") {
            Some(service) => choice(&state, service),
            None => plain(StatusCode::NOT_FOUND, "not found; see /\n"),
        },
    }
}

/// Which endpoint of a service a request would get now, and why.
fn choice(state: &AdminState, service: &str) -> Answer {
    match super::choice::explain(state.gateway(), service, None).map(|choice| serde_json::to_string(&choice))
    {
        Ok(Ok(json)) => respond(StatusCode::OK, "application/json", format!("{json}\n")),
        Ok(Err(_)) => plain(StatusCode::INTERNAL_SERVER_ERROR, "the choice can't be written\n"),
        Err(_) => plain(StatusCode::NOT_FOUND, "there is no such service\n"),
    }
}

/// Refuses requests of web pages. They can map a name of their own to this address (DNS rebinding), which is then in
/// `Host`; cross-origin requests have `Origin` or `Sec-Fetch-Site`.
fn admit<B>(
    request: &Request<B>,
    bound: Option<IpAddr>,
    state: &AdminState,
) -> Result<(), (StatusCode, &'static str)> {
    let (uri, headers) = (request.uri(), request.headers());
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()),
        // For simple health checkers; browsers do not use HTTP/1.0.
        (None, _) if request.version() == Version::HTTP_10 => Some(Authority::from_static("localhost")),
        _ => return Err((StatusCode::BAD_REQUEST, "exactly one Host is required\n")),
    };
    let is_ours = |authority: &Authority| is_ours(authority, bound, &|name| state.is_host(name));
    if !host.as_ref().is_some_and(is_ours) || !uri.authority().is_none_or(is_ours) {
        return Err((StatusCode::MISDIRECTED_REQUEST, MISDIRECTED));
    }
    let site = headers.get("sec-fetch-site").map(header::HeaderValue::as_bytes);
    let crosses = site.is_some_and(|site| site != b"none" && site != b"same-origin");
    if headers.contains_key(header::ORIGIN) || crosses {
        return Err((StatusCode::FORBIDDEN, "requests from web pages are refused\n"));
    }
    Ok(())
}

/// Whether a request for this authority is accepted, whatever its port: the port may be forwarded.
fn is_ours(authority: &Authority, bound: Option<IpAddr>, is_listed: &dyn Fn(&str) -> bool) -> bool {
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(ip) => {
            let ip = ip.to_canonical();
            // Bound to all addresses: any address may be ours, and DNS can't change a literal address.
            ip.is_loopback()
                || bound.is_some_and(|bound| bound.is_unspecified() || bound.to_canonical() == ip)
        }
        Err(_) => {
            let name = host.strip_suffix('.').unwrap_or(host);
            name.eq_ignore_ascii_case("localhost") || is_listed(name)
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    respond(status, "text/plain; charset=utf-8", text)
}

fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, header::HeaderValue::from_static(value));
    }
    if status.is_client_error() {
        // A refused request may have a body, which is not read.
        headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    }
    answer
}

#[cfg(test)]
mod tests;
