//! The HTTP/2 codec against the `h2` crate as the peer, in both roles, over a pipe in memory of any size.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cardea_http::h2::{Client, Config, Connection, ConnectionError, Event, Received, Role, Server};
use cardea_http::{Fields, Known, Method, RequestHead, ResponseHead};
use http::HeaderMap;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const NOW: Duration = Duration::from_secs(1);

/// What a message is made of.
#[derive(Debug, Clone, Default, PartialEq)]
struct Message {
    fields: Vec<(String, Vec<u8>)>,
    content: Vec<u8>,
    trailers: Option<Vec<(String, Vec<u8>)>>,
}

#[derive(Debug, Clone)]
struct Case {
    messages: Vec<Message>,
    pipe: usize,
    read: usize,
    config: Config,
    peer_window: u32,
    peer_table: u32,
}

fn fields_of(list: &[(String, Vec<u8>)], fields: &mut Fields) {
    for (name, value) in list {
        fields.append(name.as_bytes(), value).unwrap();
    }
}

/// Without those that the exchange adds.
fn list_of(fields: &Fields) -> Vec<(String, Vec<u8>)> {
    let is_ours = |name: &[u8]| name.starts_with(b"x-") || name.eq_ignore_ascii_case(b"accept");
    let text = |name: &[u8]| String::from_utf8(name.to_ascii_lowercase()).unwrap();
    fields
        .iter()
        .filter(|field| is_ours(field.name))
        .map(|field| (text(field.name), field.value.to_vec()))
        .collect()
}

fn map_of(list: &[(String, Vec<u8>)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, http::HeaderValue::from_bytes(value).unwrap());
    }
    map
}

/// A map has no order among names.
fn sorted(mut list: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    list.sort();
    list
}

fn list_of_map(map: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let pairs = map.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
    sorted(pairs.filter(|(name, _)| name.starts_with("x-") || name == "accept").collect())
}

/// An end of a connection with its socket, and the messages of its streams in both directions.
struct End<R: Role> {
    connection: Connection<R>,
    socket: DuplexStream,
    read: usize,
    input: Vec<u8>,
    incoming: BTreeMap<u32, Message>,
    /// Those that are complete.
    ended: Vec<u32>,
    outgoing: BTreeMap<u32, Message>,
}

impl<R: Role> End<R> {
    fn new(connection: Connection<R>, socket: DuplexStream, read: usize) -> Self {
        let (incoming, outgoing) = (BTreeMap::new(), BTreeMap::new());
        Self { connection, socket, read, input: vec![], incoming, ended: vec![], outgoing }
    }

    /// Handles all input. `take` calls `receive` with the head of the role.
    fn handle(
        &mut self,
        mut take: impl for<'a> FnMut(
            &mut Connection<R>,
            &'a [u8],
        ) -> Result<(Received<'a>, Fields), ConnectionError>,
    ) {
        loop {
            let (received, fields) = take(&mut self.connection, &self.input).unwrap();
            let is_idle = received.taken == 0 && received.event.is_none();
            match received.event {
                Some(Event::Head { stream, end_stream, .. }) => {
                    let message = Message { fields: list_of(&fields), ..Message::default() };
                    assert!(self.incoming.insert(stream, message).is_none());
                    if end_stream {
                        self.ended.push(stream);
                    }
                }
                Some(Event::Data { stream, bytes, end_stream }) => {
                    self.incoming.get_mut(&stream).unwrap().content.extend_from_slice(bytes);
                    let len = bytes.len();
                    self.connection.release(stream, len);
                    if end_stream {
                        self.ended.push(stream);
                    }
                }
                Some(Event::Trailers { stream }) => {
                    self.incoming.get_mut(&stream).unwrap().trailers = Some(list_of(&fields));
                    self.ended.push(stream);
                }
                Some(Event::GoAway { .. }) | None => {}
                Some(other) => panic!("{other:?}"),
            }
            self.input.drain(..received.taken);
            if is_idle {
                return;
            }
        }
    }

    fn send(&mut self) {
        while let Some(stream) = self.connection.next_turn() {
            let message = self.outgoing.get_mut(&stream).unwrap();
            let has_trailers = message.trailers.is_some();
            let sent = self.connection.send_data(stream, &message.content, !has_trailers).unwrap();
            message.content.drain(..sent);
            if !message.content.is_empty() {
                self.connection.want_turn(stream);
            } else if let Some(trailers) = message.trailers.take() {
                let mut fields = Fields::default();
                fields_of(&trailers, &mut fields);
                self.connection.send_trailers(stream, &fields).unwrap();
            }
        }
    }

    /// Reads or writes once. False at the end of the input.
    async fn progress(&mut self) -> bool {
        let mut space = vec![0; self.read];
        let (mut reader, mut writer) = tokio::io::split(&mut self.socket);
        let output = self.connection.output();
        tokio::select! {
            count = reader.read(&mut space) => {
                let count = count.unwrap_or(0);
                self.input.extend_from_slice(&space[..count]);
                count > 0
            }
            count = writer.write(output), if !output.is_empty() => {
                let count = count.unwrap_or(0);
                self.connection.sent(count);
                count > 0
            }
        }
    }
}

/// Our server sends back what it gets.
async fn serve(socket: DuplexStream, case: Case) {
    let server = Connection::<Server>::new(Arc::new(case.config), NOW);
    let mut end = End::new(server, socket, case.read);
    loop {
        let mut head = RequestHead::default();
        end.handle(|server, input| {
            let received = server.receive(NOW, input, &mut head)?;
            Ok((received, head.fields.clone()))
        });
        for stream in std::mem::take(&mut end.ended) {
            let message = end.incoming.remove(&stream).unwrap();
            let mut head = ResponseHead::new(200);
            fields_of(&message.fields, &mut head.fields);
            let is_empty = message.content.is_empty() && message.trailers.is_none();
            end.connection.send_response(stream, &head, is_empty).unwrap();
            if !is_empty {
                end.connection.want_turn(stream);
                end.outgoing.insert(stream, message);
            }
        }
        end.send();
        if !end.progress().await {
            return;
        }
    }
}

/// The crate as a client of our server.
async fn through_our_server(case: Case) {
    let (ours, theirs) = tokio::io::duplex(case.pipe);
    let server = tokio::spawn(serve(ours, case.clone()));
    let (client, connection) = h2::client::Builder::new()
        .initial_window_size(case.peer_window)
        .header_table_size(case.peer_table)
        .handshake::<_, Bytes>(theirs)
        .await
        .unwrap();
    let driver = tokio::spawn(connection);
    let mut exchanges = Vec::new();
    for message in case.messages.clone() {
        let mut client = client.clone().ready().await.unwrap();
        let mut request = http::Request::post("https://a.example/b").body(()).unwrap();
        *request.headers_mut() = map_of(&message.fields);
        let is_empty = message.content.is_empty() && message.trailers.is_none();
        let (response, stream) = client.send_request(request, is_empty).unwrap();
        exchanges.push(tokio::spawn(async move {
            let send = async {
                if !is_empty {
                    send_content(stream, &message).await;
                }
            };
            let receive = async {
                let (parts, body) = response.await.unwrap().into_parts();
                assert_eq!(parts.status, 200);
                receive_content(&parts.headers, body).await
            };
            let ((), found) = tokio::join!(send, receive);
            check(&found, &message);
        }));
    }
    for exchange in exchanges {
        exchange.await.unwrap();
    }
    drop(client);
    driver.await.unwrap().unwrap();
    server.await.unwrap();
}

fn check(found: &Message, sent: &Message) {
    assert_eq!(sorted(found.fields.clone()), sorted(sent.fields.clone()));
    assert_eq!(found.content, sent.content);
    assert_eq!(found.trailers.clone().map(sorted), sent.trailers.clone().map(sorted));
}

async fn send_content(mut stream: h2::SendStream<Bytes>, message: &Message) {
    let mut rest = Bytes::from(message.content.clone());
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let count = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await.unwrap().unwrap();
        let is_last = count >= rest.len() && message.trailers.is_none();
        stream.send_data(rest.split_to(count.min(rest.len())), is_last).unwrap();
    }
    match &message.trailers {
        Some(trailers) => stream.send_trailers(map_of(trailers)).unwrap(),
        None if message.content.is_empty() => stream.send_data(Bytes::new(), true).unwrap(),
        None => {}
    }
}

async fn receive_content(headers: &HeaderMap, mut body: h2::RecvStream) -> Message {
    let mut found = Message { fields: list_of_map(headers), ..Message::default() };
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        found.content.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    found.trailers = body.trailers().await.unwrap().as_ref().map(list_of_map);
    found
}

/// The crate as a server that sends back what it gets.
async fn serve_by_the_crate(socket: DuplexStream, case: Case) {
    let mut connection = h2::server::Builder::new()
        .initial_window_size(case.peer_window)
        .header_table_size(case.peer_table)
        .max_concurrent_streams(3)
        .handshake::<_, Bytes>(socket)
        .await
        .unwrap();
    while let Some(accepted) = connection.accept().await {
        // The other side closes the pipe when it is done.
        let Ok((request, mut respond)) = accepted else { return };
        tokio::spawn(async move {
            let (parts, body) = request.into_parts();
            assert_eq!(
                (parts.method, parts.uri.to_string()),
                (http::Method::PUT, "https://a.example/c".to_owned())
            );
            let message = receive_content(&parts.headers, body).await;
            let mut response = http::Response::new(());
            *response.headers_mut() = map_of(&message.fields);
            let is_empty = message.content.is_empty() && message.trailers.is_none();
            let stream = respond.send_response(response, is_empty).unwrap();
            if !is_empty {
                send_content(stream, &message).await;
            }
        });
    }
}

/// Our client against a server of the crate.
async fn through_our_client(case: Case) {
    let (ours, theirs) = tokio::io::duplex(case.pipe);
    let server = tokio::spawn(serve_by_the_crate(theirs, case.clone()));
    let client = Connection::<Client>::new(Arc::new(case.config), NOW);
    let mut end = End::new(client, ours, case.read);
    let mut waiting: Vec<Message> = case.messages.iter().rev().cloned().collect();
    let mut sent = BTreeMap::new();
    let mut done = 0;
    while done < case.messages.len() {
        // Not before the settings of the peer are there.
        while end.connection.peer_settings().streams_max == 3 && end.connection.can_open() {
            let Some(message) = waiting.pop() else { break };
            let mut head = RequestHead::default();
            head.method = Method::Put;
            head.set_target(b"/c");
            head.fields.append_known(Known::Host, b"a.example").unwrap();
            fields_of(&message.fields, &mut head.fields);
            let is_empty = message.content.is_empty() && message.trailers.is_none();
            let stream = end.connection.open(&head, None, is_empty).unwrap();
            if !is_empty {
                end.connection.want_turn(stream);
            }
            end.outgoing.insert(stream, message.clone());
            sent.insert(stream, message);
        }
        end.send();
        assert!(end.progress().await);
        let mut head = ResponseHead::default();
        end.handle(|client, input| {
            let received = client.receive(NOW, input, &mut head)?;
            Ok((received, head.fields.clone()))
        });
        for stream in std::mem::take(&mut end.ended) {
            check(&end.incoming.remove(&stream).unwrap(), &sent.remove(&stream).unwrap());
            done += 1;
        }
    }
    assert_eq!(end.connection.active_streams(), 0);
    drop(end);
    server.await.unwrap();
}

fn field() -> impl Strategy<Value = (String, Vec<u8>)> {
    let name = prop_oneof![Just("accept".to_owned()), "x-[a-d]{1,3}"];
    let value =
        prop_oneof!["[ -~]{0,40}".prop_map(|text| text.trim().as_bytes().to_vec()), Just(vec![0xFF; 3])];
    (name, value)
}

fn message() -> impl Strategy<Value = Message> {
    let list = || proptest::collection::vec(field(), 1..6);
    let content = prop_oneof![Just(0_usize), 1..100_usize, 60_000..150_000_usize];
    (list(), content, proptest::option::of(list())).prop_map(|(fields, len, trailers)| Message {
        fields,
        content: (0..len).map(|at| (at % 251) as u8).collect(),
        trailers,
    })
}

fn case() -> impl Strategy<Value = Case> {
    let windows = prop_oneof![Just(1000_u32), Just(65_535), Just(200_000)];
    let sizes = (prop_oneof![50..200_usize, Just(70_000)], prop_oneof![1..64_usize, Just(20_000)]);
    let tables = prop_oneof![Just(0_u32), Just(100), Just(4096)];
    (proptest::collection::vec(message(), 1..8), sizes, windows.clone(), windows, tables.clone(), tables)
        .prop_map(|(messages, (pipe, read), window, peer_window, table, peer_table)| {
            let config = Config { stream_window: window, header_table_bytes: table, ..Config::default() };
            Case { messages, pipe, read, config, peer_window, peer_table }
        })
}

fn run(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn clients_of_the_crate_get_what_they_sent(case in case()) {
        run(through_our_server(case));
    }

    #[test]
    fn servers_of_the_crate_get_what_was_sent(case in case()) {
        run(through_our_client(case));
    }
}
