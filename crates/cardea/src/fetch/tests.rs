//! Fetches from well-behaved and from faulty servers.

use std::{fs, time::Duration};

use cardea_clock::{ManualClock, Wall};
use cardea_tls::{CertificateConfig, ServerTls, ServerTlsConfig, authority::Authority};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// Answers one connection with these bytes after it has read the head of a request, and returns that head.
async fn server(answer: impl Into<Vec<u8>>) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = answer.into();
    let task = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        script(tcp, &answer).await
    });
    (address, task)
}

async fn script(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return String::new(),
        }
    }
    // A client may close the connection before everything is sent.
    let _ = stream.write_all(answer).await;
    let _ = stream.shutdown().await;
    String::from_utf8(head).unwrap()
}

fn request<'a>(url: &'a Url, timeout: Duration) -> FetchRequest<'a> {
    FetchRequest {
        url,
        bytes_max: 1_000,
        timeout,
        allow_private_addresses: true,
        danger_allow_http_loopback: true,
        ca_file: None,
    }
}

async fn fetch(url: &str) -> Result<Vec<u8>, FetchError> {
    HttpFetch::new().fetch(request(&url.parse().unwrap(), PATIENCE)).await
}

fn ok(headers: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{headers}\r\n{body}")
}

#[tokio::test]
async fn a_valid_response_is_returned_and_the_request_has_the_required_fields() {
    for answer in [
        ok("Content-Length: 4\r\n", "keys"),
        ok("Transfer-Encoding: chunked\r\n", "2\r\nke\r\n2\r\nys\r\n0\r\n\r\n"),
        ok("Connection: close\r\n", "keys"),
    ] {
        let (address, head) = server(answer).await;
        assert_eq!(fetch(&format!("http://{address}/a/jwks?b=c")).await.unwrap(), b"keys");
        let head = head.await.unwrap().to_lowercase();
        assert!(head.starts_with("get /a/jwks?b=c http/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nhost: {address}\r\n")), "{head}");
        assert!(head.contains("\r\naccept: application/json\r\n"), "{head}");
        assert!(!head.contains("authorization") && !head.contains("cookie"), "{head}");
    }
}

#[tokio::test]
async fn only_status_200_is_an_answer_and_no_redirect_is_followed() {
    let (elsewhere, mut visited) = server(ok("Content-Length: 4\r\n", "keys")).await;
    for (status, expected) in [
        ("301 Moved Permanently", FetchError::Redirect),
        ("302 Found", FetchError::Redirect),
        ("307 Temporary Redirect", FetchError::Redirect),
        ("204 No Content", FetchError::Status(204)),
        ("404 Not Found", FetchError::Status(404)),
        ("500 Oops", FetchError::Status(500)),
    ] {
        let headers = format!("Location: http://{elsewhere}/\r\nContent-Length: 0\r\n");
        let (address, _) = server(format!("HTTP/1.1 {status}\r\n{headers}\r\n")).await;
        assert_eq!(fetch(&format!("http://{address}/")).await.unwrap_err(), expected);
    }
    let followed = tokio::time::timeout(Duration::ZERO, &mut visited).await.is_ok();
    assert!(!followed);
    assert_eq!(fetch(&format!("http://{elsewhere}/")).await.unwrap(), b"keys", "the control");
}

#[tokio::test]
async fn a_body_may_be_as_long_as_allowed_and_no_longer() {
    let body = "k".repeat(1_001);
    for (answer, expected) in [
        (ok("Content-Length: 1000\r\n", &body[..1_000]), Ok(1_000)),
        (ok("Connection: close\r\n", &body[..1_000]), Ok(1_000)),
        (ok("Content-Length: 1001\r\n", &body), Err(FetchError::TooLarge)),
        (ok("Connection: close\r\n", &body), Err(FetchError::TooLarge)),
        (
            ok("Transfer-Encoding: chunked\r\n", &format!("3e9\r\n{body}\r\n0\r\n\r\n")),
            Err(FetchError::TooLarge),
        ),
    ] {
        let (address, _) = server(answer).await;
        let length = fetch(&format!("http://{address}/")).await.map(|body| body.len());
        assert_eq!(length, expected);
    }
}

#[tokio::test]
async fn a_truncated_or_malformed_response_is_an_error() {
    let huge = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(2 * HEAD_BYTES_MAX));
    for answer in [
        ok("Content-Length: 10\r\n", "keys"),
        ok("Transfer-Encoding: chunked\r\n", "4\r\nkeys\r\n"),
        String::new(),
        "SSH-2.0-OpenSSH\r\n\r\n".to_owned(),
        huge,
    ] {
        let (address, _) = server(answer.clone()).await;
        let error = fetch(&format!("http://{address}/")).await.unwrap_err();
        assert!(matches!(error, FetchError::Io(_)), "{error:?}: {answer:.60}");
    }
}

#[tokio::test]
async fn a_silent_server_costs_at_most_the_timeout() {
    // Accepts, reads and stays silent.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let silent = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nke").await.unwrap();
        // Ends when the client disconnects.
        while tcp.read_u8().await.is_ok() {}
    });
    let fetch = HttpFetch::new();
    assert_eq!(fetch.fetch(request(&url, Duration::from_millis(200))).await, Err(FetchError::Timeout));
    silent.await.unwrap();
}

#[tokio::test]
async fn private_addresses_are_refused_before_anything_is_sent() {
    let (address, mut head) = server(ok("Content-Length: 4\r\n", "keys")).await;
    let port = address.port();
    for url in [
        format!("https://127.0.0.1:{port}/"),
        format!("https://localhost:{port}/"),
        format!("https://[::ffff:127.0.0.1]:{port}/"),
        format!("http://127.0.0.1:{port}/"),
    ] {
        let url: Url = url.parse().unwrap();
        let request = FetchRequest { allow_private_addresses: false, ..request(&url, PATIENCE) };
        assert_eq!(HttpFetch::new().fetch(request).await, Err(FetchError::AddressRefused), "{url}");
    }
    for url in [format!("http://127.0.0.1:{port}/"), format!("ftp://127.0.0.1:{port}/")] {
        let url: Url = url.parse().unwrap();
        let request = FetchRequest { danger_allow_http_loopback: false, ..request(&url, PATIENCE) };
        assert_eq!(HttpFetch::new().fetch(request).await, Err(FetchError::AddressRefused), "{url}");
    }
    // Plain HTTP is never used beyond this machine.
    let url: Url = "http://10.255.255.1/".parse().unwrap();
    assert_eq!(HttpFetch::new().fetch(request(&url, PATIENCE)).await, Err(FetchError::AddressRefused));
    assert!(tokio::time::timeout(Duration::ZERO, &mut head).await.is_err(), "nobody came");
    assert_eq!(fetch(&format!("http://{address}/")).await.unwrap(), b"keys", "the control");
}

/// A TLS server with a certificate for `names`, and the file of its authority.
async fn tls_server(folder: &TempDir, names: &[&str]) -> (SocketAddr, PathBuf) {
    let (from, to) = (Wall::from_unix_seconds(0), Wall::from_unix_seconds(4_000_000_000));
    let authority = Authority::new("test", from, to).unwrap();
    let issued = authority.issue(names, from, to).unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("ca.pem"), authority.certificate_pem()).unwrap();
    fs::write(path("chain.pem"), &issued.chain_pem).unwrap();
    fs::write(path("key.pem"), issued.key_pem.as_bytes()).unwrap();
    let certificate = CertificateConfig {
        chain: path("chain.pem"),
        key: path("key.pem"),
        hosts: Vec::new(),
        managed: None,
        trust_domain: "test".to_owned(),
        client_auth: None,
        ocsp: None,
    };
    let settings = ServerTlsConfig {
        certificates: vec![certificate],
        alpn: vec![b"http/1.1".to_vec()],
        ..ServerTlsConfig::default()
    };
    let clock = ManualClock::new(Wall::from_unix_seconds(1_800_000_000)).clock();
    let tls = ServerTls::load(&settings, &clock).unwrap();
    let acceptor = TlsAcceptor::from(tls.config());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            if let Ok(tls) = acceptor.accept(tcp).await {
                script(tls, ok("Content-Length: 4\r\n", "keys").as_bytes()).await;
            }
        }
    });
    (address, path("ca.pem"))
}

#[tokio::test]
async fn the_servers_certificate_must_be_of_a_trusted_authority_and_for_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (address, ca_file) = tls_server(&folder, &["localhost"]).await;
    let other_folder = tempfile::tempdir().unwrap();
    let (_, other_ca) = tls_server(&other_folder, &["localhost"]).await;
    let fetch = HttpFetch::new();
    let get = async |host: &str, ca_file: &Path| {
        let url: Url = format!("https://{host}:{}/", address.port()).parse().unwrap();
        fetch.fetch(FetchRequest { ca_file: Some(ca_file), ..request(&url, PATIENCE) }).await
    };
    assert_eq!(get("localhost", &ca_file).await.unwrap(), b"keys");
    for (host, ca_file) in [("127.0.0.1", &ca_file), ("localhost", &other_ca)] {
        let Err(FetchError::Io(error)) = get(host, ca_file).await else { panic!("{host}") };
        assert!(error.contains("certificate"), "{error}");
    }
    // The file is reloaded after a change.
    let later = SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
    fs::copy(&ca_file, &other_ca).unwrap();
    fs::File::options().write(true).open(&other_ca).unwrap().set_modified(later).unwrap();
    assert_eq!(get("localhost", &other_ca).await.unwrap(), b"keys");
    let Err(FetchError::Io(error)) = get("localhost", Path::new("/nonexistent/ca.pem")).await else {
        panic!()
    };
    assert!(error.contains("/nonexistent/ca.pem"), "{error}");
}
