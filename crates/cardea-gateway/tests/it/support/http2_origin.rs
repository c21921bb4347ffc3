//! An origin of HTTP/2: the `h2` crate, so that nothing of the gateway is on both ends, or frames as they stand.

use std::{future::Future, io, sync::Arc};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Origin, certificates::Certificates};

/// Serves a connection with `respond` for each request, side by side, until the gateway closes it.
pub(crate) async fn serve<S, F, R>(stream: S, builder: h2::server::Builder, respond: F) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Fn(Request<RecvStream>, SendResponse<Bytes>) -> R,
    R: Future<Output = Result<(), h2::Error>> + Send + 'static,
{
    let mut connection = builder.handshake::<_, Bytes>(stream).await.map_err(io::Error::other)?;
    while let Some(accepted) = connection.accept().await {
        let (request, answer) = accepted.map_err(io::Error::other)?;
        tokio::spawn(respond(request, answer));
    }
    Ok(())
}

/// An origin without TLS that responds to each request like this.
pub(crate) async fn origin<F, R>(respond: F) -> Origin
where
    F: Fn(Request<RecvStream>, SendResponse<Bytes>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<(), h2::Error>> + Send + 'static,
{
    origin_with(h2::server::Builder::new(), respond).await
}

/// The same with other settings.
pub(crate) async fn origin_with<F, R>(builder: h2::server::Builder, respond: F) -> Origin
where
    F: Fn(Request<RecvStream>, SendResponse<Bytes>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<(), h2::Error>> + Send + 'static,
{
    Origin::start(move |visit| serve(visit.into_stream(), builder.clone(), respond.clone())).await
}

/// The same over TLS, as `a.example`. It takes the first of these protocols that the gateway offers.
pub(crate) async fn secure_origin<F, R>(
    certificates: &Arc<Certificates>,
    alpn: &'static [&'static str],
    respond: F,
) -> Origin
where
    F: Fn(Request<RecvStream>, SendResponse<Bytes>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<(), h2::Error>> + Send + 'static,
{
    let certificates = Arc::clone(certificates);
    Origin::start(move |visit| {
        let acceptor = certificates.acceptor_of(alpn);
        let respond = respond.clone();
        async move {
            let mut stream = acceptor.accept(visit.into_stream()).await?;
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                return serve(stream, h2::server::Builder::new(), respond).await;
            }
            let mut space = [0; 4096];
            loop {
                // The requests of these tests have no bodies.
                let count = stream.read(&mut space).await?;
                if count == 0 {
                    return Ok(());
                }
                let is_upgrade = String::from_utf8_lossy(&space[..count]).contains("websocket");
                let answer: &[u8] = if is_upgrade {
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
                } else {
                    b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhttp/1"
                };
                stream.write_all(answer).await?;
            }
        }
    })
    .await
}

/// A response with this body.
pub(crate) fn answer(answer: &mut SendResponse<Bytes>, status: u16, body: &str) -> Result<(), h2::Error> {
    let head = Response::builder().status(status).body(()).unwrap();
    let mut stream = answer.send_response(head, body.is_empty())?;
    if !body.is_empty() {
        stream.send_data(Bytes::copy_from_slice(body.as_bytes()), true)?;
    }
    Ok(())
}

/// All of a body, and its trailers.
pub(crate) async fn read(body: &mut RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        bytes.extend_from_slice(&chunk);
        body.flow_control().release_capacity(chunk.len())?;
    }
    Ok((bytes, body.trailers().await?))
}

/// Keys of a service that is reached by HTTP/2 without TLS.
pub(crate) const HTTP2: &str = "[[service]]\nname = \"main\"\nprotocol = \"http2\"\n";

/// The types of frames.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;

/// Flags of a frame.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A head with these fields, as literals that are not indexed.
pub(crate) fn head(stream: u32, end_stream: bool, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    frame(HEADERS, END_HEADERS | u8::from(end_stream), stream, &block)
}

/// Frames that a test reads and writes itself.
pub(crate) struct Frames<S> {
    pub(crate) stream: S,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    /// Begins a connection with these settings.
    pub(crate) async fn begin(mut stream: S, settings: &[u8]) -> io::Result<Self> {
        stream.write_all(&frame(SETTINGS, 0, 0, settings)).await?;
        stream.write_all(&frame(SETTINGS, 1, 0, b"")).await?;
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await?;
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        Ok(Self { stream })
    }

    pub(crate) async fn next(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.stream.read_exact(&mut payload).await?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Ok(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The next frame of this type.
    pub(crate) async fn next_of(&mut self, kind: u8) -> io::Result<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.kind == kind {
                return Ok(frame);
            }
        }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await
    }

    /// Reads until the gateway closes the connection.
    pub(crate) async fn closed(&mut self) -> io::Result<()> {
        while self.next().await.is_ok() {}
        Ok(())
    }
}
