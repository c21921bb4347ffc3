//! Requests as an attacker writes them: nothing is checked, and each goes over HTTP/1.1 as well as over HTTP/2.

/// The body of a request.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    None,
    /// Announced by a length, which is written like this.
    Sized(Vec<u8>, String),
    /// Chunked in HTTP/1.1, without a length in HTTP/2; with trailers.
    Streamed(Vec<u8>, Vec<(String, String)>),
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    /// `Host`, or `:authority`.
    pub(crate) authority: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Body,
}

impl Request {
    pub(crate) fn get(authority: &str, target: &str) -> Self {
        Self {
            method: "GET".to_owned(),
            target: target.to_owned(),
            authority: authority.to_owned(),
            fields: Vec::new(),
            body: Body::None,
        }
    }

    pub(crate) fn method(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }

    pub(crate) fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    pub(crate) fn all(mut self, fields: &[(String, String)]) -> Self {
        self.fields.extend_from_slice(fields);
        self
    }

    /// With a body of which the length says what it is.
    pub(crate) fn sized(self, body: &[u8]) -> Self {
        let length = body.len().to_string();
        self.announced(body, &length)
    }

    /// With a body and whatever is written as its length.
    pub(crate) fn announced(mut self, body: &[u8], length: &str) -> Self {
        self.body = Body::Sized(body.to_vec(), length.to_owned());
        "POST".clone_into(&mut self.method);
        self
    }

    /// With a body of unknown length, and these trailers.
    pub(crate) fn streamed(mut self, body: &[u8], trailers: &[(String, String)]) -> Self {
        self.body = Body::Streamed(body.to_vec(), trailers.to_vec());
        "POST".clone_into(&mut self.method);
        self
    }

    /// The bytes in HTTP/1.1.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", self.method, self.target, self.authority);
        for (name, value) in &self.fields {
            text += &format!("{name}: {value}\r\n");
        }
        let body = match &self.body {
            Body::None => Vec::new(),
            Body::Sized(body, length) => {
                text += &format!("Content-Length: {length}\r\n");
                body.clone()
            }
            Body::Streamed(body, trailers) => {
                text += "Transfer-Encoding: chunked\r\n";
                let mut chunks = format!("{:x}\r\n", body.len()).into_bytes();
                if !body.is_empty() {
                    chunks.extend_from_slice(body);
                    chunks.extend_from_slice(b"\r\n0\r\n");
                }
                for (name, value) in trailers {
                    chunks.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
                }
                chunks.extend_from_slice(b"\r\n");
                chunks
            }
        };
        text += "\r\n";
        [text.into_bytes(), body].concat()
    }
}
