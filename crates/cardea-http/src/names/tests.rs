//! Identity fields cannot be smuggled in under another spelling, nor in trailers.

use super::*;

fn fields(lines: &[&str]) -> Fields {
    let mut fields = Fields::default();
    for line in lines {
        fields.append(line.as_bytes(), b"x").unwrap();
    }
    fields
}

#[test]
fn every_spelling_of_a_name_in_the_set_is_removed() {
    let set = HeaderNameSet::new(["X-User-Id", "Client-Cert", "x_role"]).unwrap();
    let mut given = fields(&[
        "X-User-Id",
        "x-user-id",
        "X_USER_ID",
        "x-user_id",
        "Accept",
        "x-user-i",
        "client_cert",
        "CLIENT-CERT",
        "X-Role",
        "x-user-idd",
        "x.user.id",
    ]);
    assert_eq!(strip_named(&mut given, &set), 7);
    assert_eq!(given, fields(&["Accept", "x-user-i", "x-user-idd", "x.user.id"]));
    assert_eq!(strip_named(&mut given, &set), 0);
    assert!(set.contains(b"X_Role") && !set.contains(b"X-Roles") && !set.is_empty());
    assert!(HeaderNameSet::default().is_empty());
    assert!(HeaderNameSet::new(["a b"]).is_err());
}

#[test]
fn trailers_keep_what_is_harmless_alone() {
    let mut trailers = fields(&[
        "grpc-status",
        "X-Checksum",
        "ETag",
        "Server-Timing",
        "Content-Length",
        "Transfer-Encoding",
        "Host",
        "content_length",
        "Authorization",
        "Cookie",
        "Set-Cookie",
        "Content-Foo",
        "Content_Type",
        "Trailer",
        "TE",
        "Cache-Control",
        "Range",
        "X-Forwarded-For",
        "x_forwarded_for",
        "Connection",
        "Expect",
        "Location",
        "If-None-Match",
        "Client-Cert",
    ]);
    assert_eq!(filter_trailers(&mut trailers), 20);
    assert_eq!(trailers, fields(&["grpc-status", "X-Checksum", "ETag", "Server-Timing"]));
}
