//! Tokens that a service does not need do not reach it, in whatever part of a request they are.

use super::lab::{Lab, Request, Way};
use crate::support::client::HOST;

const ROUTES: &str = r#"
[[route]]
name = "open"
path_prefix = "/"
auth = "public"
service = "origin"

[[route]]
name = "forwarded"
path = "/forwarded"
auth = { issuer = "own", scopes = ["read"] }
service = "origin"

[[route]]
name = "kept"
path = "/kept"
auth = { issuer = "own", scopes = ["read"] }
service = "origin"
forward_authorization = false
"#;

#[test]
fn a_token_can_be_withheld_from_a_service() {
    let lab = Lab::new(ROUTES);
    let (token, id) = lab.token();
    let credentials = format!("Bearer {token}");
    for way in Way::ALL {
        let request = |path: &str| Request::get(HOST, path).with("Authorization", &credentials);
        let record = lab.reach(way, &request("/forwarded")).expect("the control");
        assert_eq!(record.only().values("authorization"), [&credentials], "{way:?}");
        let trailers = [("Authorization".to_owned(), credentials.clone())];
        for request in
            [request("/kept"), request("/kept").streamed(b"body", &trailers), request("/kept").sized(b"body")]
        {
            let record = lab.reach(way, &request).unwrap_or_else(|| panic!("{way:?}: it is let in"));
            assert_eq!(record.only().folded("x-auth-subject"), [&id], "{way:?}");
            assert!(!String::from_utf8_lossy(&record.bytes).contains(&token), "{way:?}: {request:?}");
        }
        // What is not the token that was verified is no way in.
        let two = request("/kept").with("Authorization", "Bearer x");
        assert!(lab.reach(way, &two).is_none(), "{way:?}");
        assert!(lab.reach(way, &Request::get(HOST, "/kept").with("Authorization_", &credentials)).is_none());
    }
    lab.finish("/");
}
