//! `cardea token verify`: verifies a token as the gateway would, and prints every check.

use std::sync::Arc;

use anyhow::Context as _;
use cardea_clock::{Clock, CoarseClock, PERIOD_DEFAULT, Wall};
use cardea_identity::{
    AccessRequirement, Alternative, Authenticator, Check, IssuerConfig, KeySource, LocalKeys, TokenError,
    Verdict,
};
use cardea_issuer::{AuthorizationServer, RevocationSink};
use serde::Serialize;
use serde_json::json;
use tokio::runtime;

use super::{
    super::{load, text::printable},
    Failure, read,
};
use crate::{
    cli::{Exit, Output, TokenVerifyArgs},
    config::{self, Auth, Built, Config, Foundation, Route},
    fetch::HttpFetch,
    server::{self, Provided},
};

/// A printed check.
#[derive(Serialize)]
struct Line {
    name: &'static str,
    passed: bool,
    expected: String,
    found: String,
}

impl From<Check> for Line {
    fn from(check: Check) -> Self {
        let Check { name, passed, expected, found } = check;
        Self { name, passed, expected, found }
    }
}

/// Runs `cardea token verify`.
pub(super) fn verify(arguments: &TokenVerifyArgs, output: &mut Output) -> Result<Exit, Failure> {
    let config = load(&arguments.config.config)?;
    let route = arguments.route.as_deref().map(|name| route(&config, name)).transpose()?;
    let token = read(&arguments.token)?;
    let clock = CoarseClock::start(PERIOD_DEFAULT).context("starting the clock")?;
    let clock = clock.clock();
    let runtime =
        runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let result = runtime.block_on(async {
        let authenticator = authenticator(&config, &clock, output).await?;
        let checks = authenticator.explain(token.as_bytes(), clock.precise()).await;
        let verdict = authenticator.verify(token.as_bytes(), clock.precise()).await;
        if matches!(verdict, Err(TokenError::KeysUnavailable)) {
            tell_keys(&authenticator, &clock, output);
        }
        Ok::<_, Failure>((checks, verdict))
    });
    // A name resolution in progress would delay the exit.
    runtime.shutdown_background();
    let (checks, verdict) = result?;

    let mut lines: Vec<Line> = checks.into_iter().map(Line::from).collect();
    if let (Ok(verdict), Some(route)) = (&verdict, route) {
        lines.push(required(&config, route, verdict)?);
    }
    let valid = verdict.is_ok() && lines.iter().all(|line| line.passed);
    print(&lines, valid, arguments, output)?;
    Ok(match verdict {
        Err(error) if error.is_gateway_fault() => Exit::Failure,
        _ if valid => Exit::Success,
        _ => Exit::Refused,
    })
}

fn route<'c>(config: &'c Config, name: &str) -> Result<&'c Route, Failure> {
    config.routes.iter().map(|route| &route.value).find(|route| route.name == name).ok_or_else(|| {
        let names: Vec<&str> = config.routes.iter().map(|route| route.name.as_str()).take(20).collect();
        let message = format!("there is no route {name:?}; the routes are: {}", names.join(", "));
        Failure::new(Exit::Usage, message)
    })
}

/// The authenticator of the gateway.
async fn authenticator(
    config: &Config,
    clock: &Clock,
    output: &mut Output,
) -> Result<Arc<Authenticator>, Failure> {
    Ok(Arc::clone(&built(config, clock, output).await?.model.authenticator))
}

/// The model of the gateway: keys and revocations of the built-in server come from the database, others are fetched
/// when a token needs them.
pub(in super::super) async fn built(
    config: &Config,
    clock: &Clock,
    output: &mut Output,
) -> Result<Built, Failure> {
    let local_keys = LocalKeys::new();
    let mut issuer = None;
    let is_used = config.issuers.iter().any(|issuer| matches!(issuer.keys, KeySource::Local(_)));
    if let (Some(settings), true) = (&config.authorization_server, is_used) {
        if settings.database.exists() {
            let server = server::open_issuer(settings, clock.precise()).await?;
            local_keys.publish(server.key_set().as_bytes()).context("the authorization server's key set")?;
            issuer = Some(Arc::new(server));
        } else {
            // Inspecting a token must not create a database.
            let database = settings.database.display();
            output.error(&format!(
                "note: {database} does not exist, so the authorization server has no keys yet"
            ));
        }
    }
    let fetch = Arc::new(HttpFetch::new());
    let foundation = Foundation {
        clock: clock.clone(),
        fetch,
        local_keys,
        provider: Arc::new(Provided { issuer: issuer.clone(), acme: None }),
        names: Arc::default(),
        workers: 1,
        tolerates_certificates: true,
    };
    let built = config::build(config, &foundation, None).map_err(|problems| {
        let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failure::new(Exit::Usage, text.join("\n"))
    })?;
    if let Some(server) = issuer {
        tell_revocations(&server, config, &built.model.authenticator, clock).await?;
    }
    Ok(built)
}

async fn tell_revocations(
    server: &AuthorizationServer,
    config: &Config,
    authenticator: &Arc<Authenticator>,
    clock: &Clock,
) -> Result<(), Failure> {
    let local = config.issuers.iter().filter(|issuer| matches!(issuer.keys, KeySource::Local(_)));
    let issuers = local.map(|issuer| issuer.name.clone()).collect();
    let revoked = Revoked { authenticator: Arc::clone(authenticator), issuers };
    server.set_revocation_sink(Arc::new(revoked), clock.precise()).await.context("reading revocations")?;
    server.close().await;
    Ok(())
}

/// Reports why keys are not available.
fn tell_keys(authenticator: &Authenticator, clock: &Clock, output: &mut Output) {
    for set in authenticator.key_sets(clock.precise()) {
        if let (false, Some(error)) = (set.usable, &set.last_error) {
            output.error(&format!("the keys of issuer {:?} could not be fetched: {error}", set.issuer));
        }
    }
}

fn required(config: &Config, route: &Route, verdict: &Verdict) -> Result<Line, Failure> {
    let Auth::AccessRequirement(alternatives) = &route.auth else {
        let expected = format!("nothing: route {:?} is public", route.name);
        return Ok(Line {
            name: "route",
            passed: true,
            expected,
            found: "a token, which is not required".into(),
        });
    };
    let issuers: Vec<IssuerConfig> = config.issuers.iter().map(|issuer| issuer.value.clone()).collect();
    let requirement = AccessRequirement::resolve(alternatives.clone(), &issuers)
        .with_context(|| format!("route {:?}", route.name))?;
    let result = requirement.check(verdict);
    let expected: Vec<String> = requirement.alternatives.iter().map(wanted).collect();
    let caller = &verdict.caller;
    let mut found = format!(
        "issuer {:?}, audiences {:?}, scopes {:?}, roles {:?}",
        caller.issuer_name, caller.audiences, caller.scopes, caller.roles
    );
    if let Err(error) = &result {
        found = format!("{found} ({error})");
    }
    Ok(Line { name: "route", passed: result.is_ok(), expected: expected.join(", or "), found })
}

fn wanted(alternative: &Alternative) -> String {
    let mut text =
        format!("issuer {:?}, one of the audiences {:?}", alternative.issuer, alternative.audiences);
    if !alternative.scopes.is_empty() {
        text.push_str(&format!(", all of the scopes {:?}", alternative.scopes));
    }
    if !alternative.roles.is_empty() {
        text.push_str(&format!(", one of the roles {:?}", alternative.roles));
    }
    text
}

fn print(
    lines: &[Line],
    valid: bool,
    arguments: &TokenVerifyArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    if arguments.json {
        let document = json!({ "valid": valid, "route": arguments.route, "checks": lines });
        output.json(&document)?;
        return Ok(());
    }
    let width = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Line { name, passed, expected, found } in lines {
        let mark = if *passed { "ok  " } else { "FAIL" };
        let indent = " ".repeat(width);
        text.push_str(&format!("{mark}  {name:width$}  expected  {}\n", printable(expected)));
        text.push_str(&format!("      {indent}  found     {}\n", printable(found)));
    }
    let failed = lines.iter().find(|line| !line.passed);
    let end = match (failed, &arguments.route) {
        (Some(line), _) => format!("refused: the check {:?} failed\n", line.name),
        (None, _) if !valid => "refused\n".to_owned(),
        (None, Some(route)) => format!("the token is valid for route {}\n", printable(route)),
        (None, None) => "the token is valid; use --route to check the requirements of a route\n".to_owned(),
    };
    text.push_str(&end);
    output.text(&text)?;
    Ok(())
}

/// Takes over the revocations of the built-in authorization server.
struct Revoked {
    authenticator: Arc<Authenticator>,
    issuers: Vec<String>,
}

impl RevocationSink for Revoked {
    fn disabled(&self, client_id: &str, _forget_after: Wall) {
        for issuer in &self.issuers {
            self.authenticator.revocations().disable(issuer, client_id);
        }
    }

    fn enabled(&self, client_id: &str, revoked_through: Wall, forget_after: Wall) {
        for issuer in &self.issuers {
            let through = Wall::from_unix_seconds(revoked_through.unix_seconds());
            self.authenticator.revocations().revoke(issuer, client_id, through, forget_after);
        }
    }

    fn deleted(&self, client_id: &str, forget_after: Wall) {
        for issuer in &self.issuers {
            self.authenticator.revocations().revoke(issuer, client_id, forget_after, forget_after);
        }
    }
}
