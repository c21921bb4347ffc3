//! `cardea demo --check`: runs all steps once and reports the result of each.

use std::time::Duration;

use anyhow::{Context as _, Result};
use cardea_issuer::TokenRequest;
use serde::Serialize;

use super::{Demo, client::Answer, setting};
use crate::cli::Output;

/// A step and its result.
#[derive(Debug, Serialize)]
struct Step {
    step: &'static str,
    expected: String,
    found: String,
    held: bool,
}

/// Runs the steps; returns whether all succeeded.
pub(super) async fn check(demo: &Demo, json: bool, output: &mut Output) -> Result<bool> {
    let mut trip = Trip { steps: Vec::new() };
    trip.go(demo).await?;
    let held = trip.steps.iter().all(|step| step.held);
    if json {
        output.json(&trip.steps)?;
        return Ok(held);
    }
    for step in &trip.steps {
        let mark = if step.held { "ok    " } else { "FAILED" };
        output.line(&format!("{mark} {}: {}", step.step, step.found))?;
        if !step.held {
            output.line(&format!("       expected {}", step.expected))?;
        }
    }
    let count = trip.steps.iter().filter(|step| step.held).count();
    output.line(&format!("{count} of {} steps succeeded", trip.steps.len()))?;
    Ok(held)
}

struct Trip {
    steps: Vec<Step>,
}

impl Trip {
    fn note(
        &mut self,
        step: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
        held: bool,
    ) {
        self.steps.push(Step { step, expected: expected.into(), found: found.into(), held });
    }

    /// Records whether a response has this status, and this reason code if given.
    fn answer(&mut self, step: &'static str, answer: &Answer, status: u16, code: Option<&str>) {
        let held =
            answer.status == status && code.is_none_or(|code| answer.member("code").as_deref() == Some(code));
        let expected = code.map_or_else(|| status.to_string(), |code| format!("{status} {code}"));
        self.note(step, expected, answer.summary(), held);
    }

    async fn go(&mut self, demo: &Demo) -> Result<()> {
        let http = &demo.http;
        let answer = http.get("/", None).await?;
        self.note("start page without a token", "200", answer.status.to_string(), answer.status == 200);

        let answer = demo.token(None).await?;
        let token = answer.member("access_token").unwrap_or_default();
        // The token itself is not printed.
        let found =
            format!("{} token_type={}", answer.status, answer.member("token_type").unwrap_or_default());
        self.note("token issued", "200 with a token", found, answer.status == 200 && !token.is_empty());

        let answer = http.get("/api", Some(&token)).await?;
        let subject = demo.created.client.client_id.as_str();
        let told = answer.body.contains(subject) && answer.member("origin").is_some();
        let found = answer.summary();
        self.note(
            "call with the token",
            "200 with the origin's body and the caller",
            found,
            answer.status == 200 && told,
        );

        let answer = http.get("/api", None).await?;
        let plain = answer.challenge.as_deref() == Some("Bearer");
        self.answer("call without a token", &answer, 401, Some("credentials_missing"));
        self.note("challenge without an error code", "Bearer", answer.challenge.unwrap_or_default(), plain);

        let expired = expired_token(demo).await?;
        let answer = http.get("/api", Some(&expired)).await?;
        self.answer("expired token", &answer, 401, Some("token_expired"));

        let answer = http.get("/change", Some(&token)).await?;
        self.answer("wrong scope", &answer, 403, Some("insufficient_scope"));

        let answer = http.get("/api", Some(&forged(&token))).await?;
        self.answer("forged signature", &answer, 401, Some("signature_invalid"));

        let other = demo.token(Some(&format!("&resource={}", setting::OTHER_RESOURCE))).await?;
        let other = other.member("access_token").unwrap_or_default();
        let answer = http.get("/api", Some(&other)).await?;
        self.answer("token for another audience, on this route", &answer, 401, None);
        let answer = http.get("/other", Some(&other)).await?;
        self.answer("token for another audience, on its own route", &answer, 200, None);

        for path in ["/x/../api", "/%61pi", "//api", "/./api", "/x/%2e%2e/api"] {
            let answer = http.get(path, None).await?;
            let held = answer.status == 401;
            self.note("another spelling of the path", "401", format!("{path}: {}", answer.status), held);
        }

        let answer = http.get("/down", None).await?;
        let held = matches!(answer.status, 502 | 503);
        self.note("origin down", "502 or 503", answer.summary(), held);

        demo.origins.stop("eu");
        let answer = http.get("/api", Some(&token)).await?;
        let held = answer.status == 200 && answer.member("region").as_deref() == Some("us");
        self.note(
            "the region's origins stopped: the other region serves",
            "200 from us",
            answer.summary(),
            held,
        );

        let issuer = demo.server.provided.issuer.as_ref().context("no authorization server")?;
        issuer.disable_client(subject, demo.server.gateway.clock.precise()).await?;
        let answer = http.get("/api", Some(&token)).await?;
        self.answer("disabled client's token", &answer, 401, Some("token_revoked"));
        let answer = demo.token(None).await?;
        let held = answer.status == 401 && answer.member("error").as_deref() == Some("invalid_client");
        self.note("disabled client asks for a token", "401 invalid_client", answer.summary(), held);
        Ok(())
    }
}

/// A token that expired: issued by the same server two hours ago.
async fn expired_token(demo: &Demo) -> Result<String> {
    let issuer = demo.server.provided.issuer.as_ref().context("no authorization server")?;
    let mut then = demo.server.gateway.clock.precise();
    then.wall = then.wall.saturating_sub(Duration::from_secs(2 * 3_600));
    let form = format!(
        "grant_type=client_credentials&client_id={}&client_secret={}",
        demo.created.client.client_id,
        demo.created.secret.expose()
    );
    let request = TokenRequest {
        authorization: &[],
        content_type: Some(b"application/x-www-form-urlencoded"),
        query_present: false,
        body: form.as_bytes(),
    };
    let reply = issuer.token(request, then).await;
    let body: serde_json::Value = serde_json::from_str(&reply.body)?;
    body.get("access_token").and_then(|token| token.as_str()).map(str::to_owned).context("no expired token")
}

/// The same token with an invalid signature: its first character is changed, so that it stays well-formed.
fn forged(token: &str) -> String {
    let at = token.rfind('.').map_or(0, |dot| dot + 1);
    let (signed, signature) = token.split_at(at);
    let first = if signature.starts_with('A') { 'B' } else { 'A' };
    let rest: String = signature.chars().skip(1).collect();
    format!("{signed}{first}{rest}")
}
