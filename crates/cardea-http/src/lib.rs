//! HTTP messages, framing, normalisation and the HTTP/1.1 codec: pure, without input or output.
