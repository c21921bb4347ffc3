//! A route that a reload opens to everybody: a request with a token that is not valid any more passes there, and so does what is
//! under way with it. The route `kept` goes on to ask for the token.

use super::*;

const KEPT: &str = "path_prefix = '/kept'\nauth = { issuer = 'main', audiences = ['api'] }";

fn spec(setting: &Setting) -> Spec {
    setting.spec().route("kept", RULES).route("kept", KEPT)
}

fn opened(setting: &Setting) -> Spec {
    spec(setting).route("end", "auth = 'public'")
}

/// The configuration without the issuer.
fn without_issuer(spec: Spec) -> Spec {
    let next = "[[issuer]]\nname = 'next'\nissuer = 'https://next.example'\naudiences = ['api']\n\
        jwks_url = 'https://next.example/keys'";
    spec.without("issuer", "main").with(next).route("kept", "auth.issuer = 'next'")
}

const DISTRUSTED: Ended = ("token no longer accepted", "issuer_changed");

/// What opens the route and ends the validity of the token, and how that ends what still needs it.
const OPENING: [(&str, Act, Ended); 4] = [
    (
        "the issuer is gone from the configuration",
        |setting, gateway| gateway.reload(without_issuer(opened(setting))),
        DISTRUSTED,
    ),
    (
        "the issuer is believed for another audience",
        |setting, gateway| {
            let spec = of_issuer(opened(setting), "audiences = ['api2']");
            gateway.reload(spec.route("kept", "auth.audiences = ['api2']"));
        },
        DISTRUSTED,
    ),
    (
        "the key that signed is gone from the set",
        |setting, gateway| {
            gateway.reload(opened(setting));
            gateway.issuer.rotate();
        },
        DISTRUSTED,
    ),
    (
        "the token expires",
        |setting, gateway| {
            gateway.reload(opened(setting));
            setting.clock.advance(Duration::from_secs(LIFE.unsigned_abs()) + SKEW_DEFAULT);
        },
        ("token expired", "token_expired"),
    ),
];

#[test]
fn what_is_under_way_goes_on_where_its_route_asks_for_no_token_any_more() {
    for (name, act, (text, code)) in OPENING {
        run(async move {
            println!("{name}");
            let setting = Setting::new().await;
            let gateway = spec(&setting).start().await;
            let alice = token(&gateway, "alice", LIFE);
            let mut streams = setting.begin(&gateway, "/end/here", &alice).await;
            let kept = setting.begin(&gateway, "/kept", &alice).await;
            setting.clock.advance(SETTLED);
            act(&setting, &gateway);
            // Their end tells when all were looked at.
            are_ended(&gateway, kept, text, code).await;
            setting.service.all_go_on(&mut streams).await;
            // The control: a new request with the same token.
            streams.extend(setting.begin(&gateway, "/end/here", &alice).await);
            setting.service.all_go_on(&mut streams).await;
            // One that would be refused for its token again.
            gateway.reload(without_issuer(spec(&setting)).route("end", "auth.issuer = 'next'"));
            streams.truncate(Way::ALL.len());
            for stream in streams {
                stream.expect_end(text).await;
            }
        });
    }
}

/// What the service does, it does in the name of the caller that it was told of.
#[test]
fn a_caller_who_is_disabled_ends_with_all_that_was_begun_with_its_tokens() {
    run(async {
        let setting = Setting::new().await;
        let gateway = spec(&setting).start().await;
        let ending = setting.begin(&gateway, "/end/here", &token(&gateway, "alice", LIFE)).await;
        let mut staying = setting.begin(&gateway, "/end/here", &token(&gateway, "bob", LIFE)).await;
        setting.clock.advance(SETTLED);
        gateway.reload(opened(&setting));
        gateway.gateway.model().authenticator.revocations().disable("main", "alice");
        are_ended(&gateway, ending, "token revoked", "token_revoked").await;
        setting.service.all_go_on(&mut staying).await;
    });
}
