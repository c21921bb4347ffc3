//! Destinations inside the program: what they are asked, and who answers in their place.

use std::sync::Arc;

use cardea_gateway::builtin::{BuiltIn, BuiltInFuture, BuiltInRequest, BuiltInResponse, ErrorFormat};
use cardea_http::{Method, ResponseHead};

use crate::support::{Harness, Origin, Spec, get, run};

/// Answers with what it was sent.
#[derive(Debug)]
pub(crate) struct Echo(pub(crate) ErrorFormat);

impl BuiltIn for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn methods(&self) -> Option<&'static [Method]> {
        Some(&[Method::Post])
    }

    fn body_bytes_max(&self) -> Option<u64> {
        Some(8)
    }

    fn status(&self) -> Option<u16> {
        None
    }

    fn error_format(&self) -> ErrorFormat {
        self.0
    }

    fn answer<'a>(&'a self, request: BuiltInRequest<'a>) -> BuiltInFuture<'a> {
        Box::pin(async move {
            let query = request.query.map(String::from_utf8_lossy);
            let text = format!("{:?} {query:?} {:?}", request.source, String::from_utf8_lossy(request.body));
            let body = text.into_bytes().into();
            Ok(BuiltInResponse { head: ResponseHead::new(418), body, reason: Some("echoed"), offence: None })
        })
    }
}

async fn echo(format: ErrorFormat) -> Harness {
    let spec = Spec::to(&Origin::ok().await)
        .without("route", "public")
        .without("route", "api")
        .route("public", "builtin = 'token'")
        .route("api", "path_prefix = '/api'\nauth = { issuer = 'main' }\nbuiltin = 'token'");
    Spec { builtin: Some(Arc::new(Echo(format))), ..spec }.start().await
}

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn a_built_in_gets_the_request_and_its_reason_is_logged() {
    run(async {
        let gateway = echo(ErrorFormat::Problem).await;
        let mut client = gateway.client().await;
        let response = client.exchange(post("/?a=b", "12345678")).await;
        assert_eq!(response.status, 418);
        assert_eq!(response.text(), "Some(127.0.0.1) Some(\"a=b\") \"12345678\"");
        let second = client.exchange(post("/", "")).await;
        assert_eq!(second.text(), "Some(127.0.0.1) None \"\"", "the connection goes on");
        let log = gateway.log(2).await;
        assert!(log.iter().all(|line| line.to_string().contains("echoed")), "{log:?}");
    });
}

#[test]
fn a_built_in_gets_only_authorized_requests_and_sets_the_error_format() {
    run(async {
        for (format, content_type, error) in [
            (ErrorFormat::Problem, "application/problem+json", None),
            (ErrorFormat::Oauth, "application/json", Some("invalid_request")),
        ] {
            let gateway = echo(format).await;
            for (request, status, code) in [
                (get("/"), 405, "method_not_allowed"),
                (post("/", "123456789"), 413, "request_body_too_large"),
                (post("/api", ""), 401, "credentials_missing"),
            ] {
                let response = gateway.client().await.exchange(request).await;
                assert_eq!((response.status, &*response.code()), (status, code));
                assert_eq!(response.header("content-type"), Some(content_type), "{code}");
                let document: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
                assert_eq!(document["error"].as_str(), error, "{code}");
            }
        }
    });
}
