//! Identity fields can't be smuggled in with another spelling, or in trailers.

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
        "X~User!Id",
        "Client.Cert",
        "XUserId",
        "X--User-Id",
    ]);
    assert_eq!(strip_named(&mut given, &set), 10);
    assert_eq!(given, fields(&["Accept", "x-user-i", "x-user-idd", "XUserId", "X--User-Id"]));
    assert_eq!(strip_named(&mut given, &set), 0);
    assert!(set.contains(b"X_Role") && !set.contains(b"X-Roles") && !set.is_empty());
    assert!(HeaderNameSet::default().is_empty());
    assert!(HeaderNameSet::new(["a b"]).is_err());
}

#[test]
fn every_punctuation_of_a_token_reads_as_a_hyphen() {
    let set = HeaderNameSet::new(["x-auth-subject"]).unwrap();
    for byte in 0..=u8::MAX {
        let name = [b"X", &[byte][..], b"Auth", &[byte], b"Subject"].concat();
        let is_punctuation = is_token(&name) && !byte.is_ascii_alphanumeric();
        if is_token(&name) {
            assert_eq!(set.contains(&name), is_punctuation, "{}", name.escape_ascii());
            let mut given = Fields::default();
            given.append(&name, b"mallory").unwrap();
            assert_eq!(given.may_have_odd_names(), is_punctuation && byte != b'-', "{}", name.escape_ascii());
        }
    }
}

#[test]
fn names_of_every_length_are_found() {
    let names: Vec<String> = (1..200).map(|len| "x".repeat(len)).collect();
    let set = HeaderNameSet::new(names.iter().step_by(2)).unwrap();
    for (index, name) in names.iter().enumerate() {
        assert_eq!(set.contains(name.as_bytes()), index % 2 == 0, "{}", name.len());
    }
    assert!(!set.contains(b""));
}

#[test]
fn prefixes_stand_for_what_begins_with_them() {
    let set = HeaderNameSet::new(["x-a"]).unwrap().with_prefixes(["X-Forwarded-"]).unwrap();
    let both = HeaderNameSet::new(["x-b"]).unwrap().and(&set);
    for set in [&set, &both] {
        let mut given = fields(&[
            "x-forwarded-ssl",
            "X_Forwarded.Anything",
            "X-Forwarded-",
            "X-Forwarded",
            "X-A",
            "X-Forwarded-For",
        ]);
        strip_named(&mut given, set);
        // A known name is a member only if it is named; others are handled elsewhere.
        assert_eq!(given, fields(&["X-Forwarded", "X-Forwarded-For"]));
    }
    assert!(both.contains(b"x_b") && !set.contains(b"x_b"));
}

#[test]
fn lookalikes_go_and_what_they_look_like_stays() {
    let mut given =
        fields(&["Content-Type", "Content_Type", "X.Forwarded-For", "X_Custom", "user~agent", "X-Custom"]);
    assert_eq!(strip_lookalikes(&mut given), 3);
    assert_eq!(given, fields(&["Content-Type", "X_Custom", "X-Custom"]));

    let names = HeaderNameSet::new(["x-custom"]).unwrap();
    assert_eq!(strip_lookalikes_of(&mut given, &names), 1);
    assert_eq!(given, fields(&["Content-Type", "X-Custom"]));
    // If the configuration names the field with an underscore, the plain name is the lookalike.
    let names = HeaderNameSet::new(["x_custom"]).unwrap();
    given.append(b"X_Custom", b"x").unwrap();
    assert_eq!(strip_lookalikes_of(&mut given, &names), 1);
    assert_eq!(given, fields(&["Content-Type", "X_Custom"]));
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
        "Content.Length",
        "transfer~encoding",
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
    assert_eq!(filter_trailers(&mut trailers), 22);
    assert_eq!(trailers, fields(&["grpc-status", "X-Checksum", "ETag", "Server-Timing"]));
}
