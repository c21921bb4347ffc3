//! Bodies of token requests count as held for messages under way, as those of requests to services do.

use crate::support::{Connection, Folder, Server, folder::Settings, metrics::Metrics, until};

const ENDED: &str = "cardea_streams_ended_total{reason=\"buffers_exhausted\"}";
/// Just below what a token request may have.
const BODY_BYTES: usize = 60 * 1024;

#[test]
fn token_requests_that_are_never_complete_give_way() {
    let more = "\n[limits]\nbuffered_bytes_max = \"4MiB\"\n\n[timeouts]\nrequest_body_idle = \"10m\"\nrequest = \"10m\"\n";
    let folder = Folder::new(&Settings { more: more.to_owned(), ..Settings::with_cheap_hashes() });
    let (id, secret) = {
        let server = Server::start(&folder);
        let created = folder.create_client("honest");
        server.stop();
        created
    };
    let server = Server::start(&folder);
    let mut stalled: Vec<Connection> = Vec::new();
    for _ in 0..150 {
        let mut connection = server.connect();
        let head = format!(
            "POST /oauth2/token HTTP/1.1\r\nHost: gateway.test\r\nContent-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n",
            BODY_BYTES + 1
        );
        // An error: memory was short by then, which is what the test waits for.
        let _ = connection.send(head.as_bytes()).and_then(|()| connection.send(&[b'x'; BODY_BYTES]));
        stalled.push(connection);
    }
    until("some of them to give way", || Metrics::of(&server).get(ENDED).filter(|ended| *ended > 20.0));
    until("the bound to hold", || {
        Metrics::of(&server).get("cardea_buffered_bytes").filter(|held| *held <= 4_800_000.0)
    });
    let answer = until("an honest client to be served", || {
        server.connect().token(&id, &secret).ok().filter(|answer| answer.status == 200)
    });
    assert!(answer.member("access_token").is_some());
    drop(stalled);
    server.stop();
}
