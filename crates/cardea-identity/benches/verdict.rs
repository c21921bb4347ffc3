//! The cost of the check that each request makes of a cached verdict, compared with the same check on the system
//! clocks: `cargo bench -p cardea-identity`. Verification itself is compared with other implementations in
//! `bench/micro`.
#![expect(clippy::disallowed_methods, reason = "compares with the clocks of the system")]
#![expect(clippy::expect_used, reason = "a bench whose token is refused has nothing to measure")]

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bench_measure::Suite;
use cardea_clock::{Clock, CoarseClock, PERIOD_DEFAULT, Wall};
use cardea_identity::{
    Authenticator, BearerCredentials, ConnectionTokenCache, IssuerConfig, KeySource, LocalKeys, NoFetch,
    Verdict, VerdictSource, bearer_credentials,
};
use nix::time::{ClockId, clock_gettime};
use serde_json::json;

const ISSUER: &str = "https://id.example";
/// Checks per call: a single one is near the cost of measuring.
const CHECKS: u64 = 64;

fn main() {
    bench_measure::run(benches);
}

fn benches(suite: &mut Suite) {
    let coarse = CoarseClock::start(PERIOD_DEFAULT).expect("a thread can be started");
    let clock = coarse.clock();
    let (authenticator, signer) = authenticator();
    let now = clock.precise();
    let token = signer.token(300);
    let verdict = at_once(authenticator.verify(token.as_bytes(), now)).expect("the token is good");
    assert!(authenticator.is_current(&verdict, now), "the verdict is current");

    // The whole check of the validity window, with four ways to read the time.
    suite.case_of("verdict-window", CHECKS, |case| {
        case.counted("cardea", || repeat(|| black_box(&*verdict).is_valid_at(clock.now())));
        case.counted("cardea-wall-alone", || repeat(|| is_within(black_box(&verdict), clock.wall())));
        case.timed("clock-gettime-realtime-coarse", || {
            repeat(|| is_within(black_box(&verdict), kernel_coarse()))
        });
        case.timed("system-time", || repeat(|| is_within(black_box(&verdict), system_time())));
    });
    // With the issuer's epoch and the revocations.
    suite.case_of("verdict-current", CHECKS, |case| {
        case.counted("cardea", || repeat(|| authenticator.is_current(black_box(&verdict), clock.now())));
    });
    suite.case_of("verdict-current-shared", CHECKS, |case| {
        case.on_threads("cardea", || {
            || repeat(|| authenticator.is_current(black_box(&verdict), clock.now()))
        });
    });
    for bytes in [300, 1024, 4096] {
        let field = format!("Bearer {}", signer.token(bytes));
        // The cost of a request whose connection had the same token before.
        suite.case_of(&format!("verdict-connection-hit-{bytes}"), CHECKS, |case| {
            let mut slot = filled(&authenticator, &field, &clock);
            case.counted("cardea", || {
                repeat(|| recall(&authenticator, black_box(&field), &mut slot, &clock))
            });
        });
        suite.case_of(&format!("verdict-connection-hit-{bytes}-shared"), CHECKS, |case| {
            case.on_threads("cardea", || {
                let mut slot = filled(&authenticator, &field, &clock);
                let (authenticator, field, clock) = (&authenticator, &field, &clock);
                move || repeat(|| recall(authenticator, black_box(field), &mut slot, clock))
            });
        });
        // The cost if another connection had the token, or this one had another since: a connection that carries the
        // requests of many callers in turn.
        suite.case_of(&format!("verdict-cache-hit-{bytes}"), CHECKS, |case| {
            let fields = [0; 2].map(|_| format!("Bearer {}", signer.token(bytes)));
            let mut slot = filled(&authenticator, &fields[0], &clock);
            drop(filled(&authenticator, &fields[1], &clock));
            case.counted("cardea", || {
                repeat_in_turn(&fields, |field| find(&authenticator, field, &mut slot, &clock))
            });
        });
        suite.case_of(&format!("verdict-cache-hit-{bytes}-shared"), CHECKS, |case| {
            case.on_threads("cardea", || {
                // Tokens of one issuer and many callers, as on the connections of a gateway.
                let fields = [0; 2].map(|_| format!("Bearer {}", signer.token(bytes)));
                let mut slot = filled(&authenticator, &fields[0], &clock);
                drop(filled(&authenticator, &fields[1], &clock));
                let (authenticator, clock) = (&authenticator, &clock);
                move || repeat_in_turn(&fields, |field| find(authenticator, field, &mut slot, clock))
            });
        });
    }
}

fn credentials(field: &str) -> BearerCredentials<'_> {
    bearer_credentials(std::iter::once(field.as_bytes())).ok().flatten().expect("the field is good")
}

/// A connection's token cache after its first request.
fn filled(authenticator: &Authenticator, field: &str, clock: &Clock) -> ConnectionTokenCache {
    let mut slot = ConnectionTokenCache::new();
    // The first request verifies; the others hit the cache.
    assert_ne!(ask(authenticator, field, &mut slot, clock), Some(VerdictSource::Connection));
    assert_eq!(ask(authenticator, field, &mut slot, clock), Some(VerdictSource::Connection));
    slot
}

/// The calls of a request: identify, then put back.
fn ask(
    authenticator: &Authenticator,
    field: &str,
    slot: &mut ConnectionTokenCache,
    clock: &Clock,
) -> Option<VerdictSource> {
    let identified = at_once(authenticator.identify(credentials(field), slot, clock.now()));
    let (verdict, source) = identified.ok()?;
    slot.put_back(black_box(verdict));
    Some(source)
}

fn recall(
    authenticator: &Authenticator,
    field: &str,
    slot: &mut ConnectionTokenCache,
    clock: &Clock,
) -> bool {
    ask(authenticator, field, slot, clock) == Some(VerdictSource::Connection)
}

/// The same on a connection that had another token last.
fn find(authenticator: &Authenticator, field: &str, slot: &mut ConnectionTokenCache, clock: &Clock) -> bool {
    ask(authenticator, field, slot, clock) == Some(VerdictSource::Cache)
}

/// Runs the check [`CHECKS`] times and counts how often it allows.
fn repeat(mut check: impl FnMut() -> bool) -> u64 {
    (0..CHECKS).map(|_| u64::from(check())).sum()
}

/// The same with alternating tokens.
fn repeat_in_turn(fields: &[String; 2], mut check: impl FnMut(&str) -> bool) -> u64 {
    let [one, two] = fields;
    (0..CHECKS / 2).map(|_| u64::from(check(black_box(two))) + u64::from(check(black_box(one)))).sum()
}

fn is_within(verdict: &Verdict, now: Wall) -> bool {
    verdict.not_before <= now && now < verdict.not_after
}

fn system_time() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall::from_unix_nanos(0).saturating_add(since)
}

fn kernel_coarse() -> Wall {
    let nanos = clock_gettime(ClockId::CLOCK_REALTIME_COARSE)
        .map_or(0, |time| time.tv_sec().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec()));
    Wall::from_unix_nanos(nanos)
}

struct Signer(EcdsaKeyPair);

impl Signer {
    /// A new token of about that many bytes.
    fn token(&self, bytes: usize) -> String {
        let header = json!({"alg": "ES256", "typ": "at+jwt", "kid": "1"}).to_string();
        let claims = |padding: usize| {
            json!({
                "iss": ISSUER, "aud": "api", "sub": "alice", "exp": 4_102_444_800_i64, "x": "x".repeat(padding),
            })
            .to_string()
        };
        let written = |claims: &str| {
            let base64url = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
            let input = format!("{}.{}", base64url(header.as_bytes()), base64url(claims.as_bytes()));
            let signature = self.0.sign(&SystemRandom::new(), input.as_bytes()).expect("the key signs");
            format!("{input}.{}", base64url(signature.as_ref()))
        };
        let least = written(&claims(0)).len();
        written(&claims(bytes.saturating_sub(least) * 3 / 4))
    }
}

/// One issuer with a key.
fn authenticator() -> (Authenticator, Signer) {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key is made");
    let point = pair.public_key().as_ref();
    let (x, y) = point.split_at(point.len() / 2 + 1);
    let x = x.get(1..).unwrap_or_default();
    let base64url = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let jwk = json!({"kty": "EC", "crv": "P-256", "kid": "1", "x": base64url(x), "y": base64url(y)});
    let keys = LocalKeys::new();
    keys.publish(json!({"keys": [jwk]}).to_string().as_bytes()).expect("the key set is good");
    let config = IssuerConfig {
        name: "main".to_owned(),
        issuer: ISSUER.to_owned(),
        audiences: vec!["api".to_owned()],
        keys: KeySource::Local(keys),
        ..IssuerConfig::default()
    };
    let authenticator =
        Authenticator::new(vec![config], None, Arc::new(NoFetch)).expect("the issuer is good");
    (authenticator, Signer(pair))
}

/// The result of a future that must not wait, because its key is known.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the keys are local"),
    }
}
