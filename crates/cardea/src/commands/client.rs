//! `cardea client`: the clients of the authorization server.

use std::{
    io::{self, Read},
    time::Duration,
};

use serde_json::json;

use super::{
    Failure,
    backend::{Backend, unexpected},
    end,
    import::Clients,
    input, load,
    text::{Table, facts, printable, time},
};
use crate::{
    admin::protocol::{Answer, Client, Request, Sensitive},
    cli::{
        BasicEncoding, ClientArgs, ClientCommand, ClientCreateArgs, ClientRotateArgs, DurationArgument, Exit,
        Output,
    },
    config::display_duration,
};

/// The page size of a list, which continues until there are no more.
const PAGE: u32 = 500;

/// More bytes than a chosen secret may have, so that the authorization server refuses longer ones.
const CHOSEN_BYTES_MAX: usize = 1_024;

/// Runs `cardea client`.
pub(crate) fn run(arguments: &ClientArgs, output: &mut Output) -> Exit {
    let result = carry_out(arguments, output);
    end(result, output)
}

fn carry_out(arguments: &ClientArgs, output: &mut Output) -> Result<Exit, Failure> {
    let config = load(&arguments.common.config)?;
    // Errors of a file are reported before anything is opened.
    let imported = match &arguments.command {
        ClientCommand::Import(import) => Clients::read(import)?,
        _ => Clients::default(),
    };
    let mut backend = Backend::open(&arguments.common.config, &config, output)?;
    let json = arguments.common.json;
    match &arguments.command {
        ClientCommand::Create(new) => {
            let secret = if new.secret_stdin { Some(chosen(io::stdin().lock())?) } else { None };
            let is_chosen = secret.is_some();
            let answer = backend.call(create(new, secret))?;
            if is_chosen { show_created(answer, json, output)? } else { created(answer, json, output)? }
        }
        ClientCommand::Import(_) => imported.import(&mut backend, json, output)?,
        ClientCommand::Rotate(rotate) => {
            let ClientRotateArgs { id, overlap, secret_expires_in } = rotate;
            let request = Request::ClientRotate {
                id: id.clone(),
                overlap_seconds: overlap.0.as_secs(),
                secret_expires_in_seconds: seconds(secret_expires_in.as_ref()),
            };
            let answer = backend.call(request)?;
            created(answer, json, output)?;
            if !json {
                output.error(&format!("note: older secrets work for {} more", display_duration(overlap.0)));
            }
        }
        ClientCommand::List => list(&mut backend, json, output)?,
        ClientCommand::Show(client) => {
            let answer = backend.call(Request::ClientShow { id: client.id.clone() })?;
            show(answer, json, output)?;
        }
        ClientCommand::Disable(client) => {
            let answer = backend.call(Request::ClientDisable { id: client.id.clone() })?;
            show(answer, json, output)?;
            effect(&backend, "all tokens of the client are refused", output);
        }
        ClientCommand::Enable(client) => {
            let answer = backend.call(Request::ClientEnable { id: client.id.clone() })?;
            show(answer, json, output)?;
            effect(&backend, "the client can get new tokens; earlier tokens stay refused", output);
        }
        ClientCommand::Delete(client) => {
            let Answer::Done = backend.call(Request::ClientDelete { id: client.id.clone() })? else {
                return Err(unexpected());
            };
            if json {
                output.json(&json!({ "client_id": client.id, "deleted": true }))?;
            } else {
                output.line(&format!("deleted {}", printable(&client.id)))?;
            }
            effect(&backend, "all tokens of the client are refused", output);
        }
    }
    Ok(Exit::Success)
}

/// Reads a chosen secret.
fn chosen(input: impl Read) -> Result<Sensitive, Failure> {
    let bytes = input::secret(input, CHOSEN_BYTES_MAX)?;
    let text = str::from_utf8(&bytes)
        .map_err(|_| Failure::new(Exit::Usage, "the secret is not text; see: cardea client create --help"))?;
    Ok(Sensitive::new(text))
}

/// Prints a client whose secret was chosen.
fn show_created(answer: Answer, json: bool, output: &mut Output) -> Result<(), Failure> {
    let Answer::Created { client, .. } = answer else { return Err(unexpected()) };
    show(Answer::Client(client), json, output)
}

fn create(new: &ClientCreateArgs, secret: Option<Sensitive>) -> Request {
    let encoding = match new.basic_encoding {
        BasicEncoding::Auto => "auto",
        BasicEncoding::Form => "form-encoded",
        BasicEncoding::Raw => "raw",
    };
    Request::ClientCreate {
        id: new.id.clone(),
        name: new.name.clone(),
        scopes: new.scopes.clone(),
        audiences: new.audiences.clone(),
        token_lifetime_seconds: seconds(new.token_lifetime.as_ref()),
        secret_expires_in_seconds: seconds(new.secret_expires_in.as_ref()),
        basic_encoding: Some(encoding.to_owned()),
        secret,
        remember_secret: new.no_remember.then_some(false),
    }
}

/// Whole seconds, rounded up: a lifetime must not become zero.
fn seconds(duration: Option<&DurationArgument>) -> Option<u64> {
    duration.map(|DurationArgument(duration)| {
        duration.as_secs() + u64::from(duration.as_secs() < u64::MAX && duration.subsec_nanos() > 0)
    })
}

/// Prints a client with its new secret. It is never shown again.
fn created(answer: Answer, json: bool, output: &mut Output) -> Result<(), Failure> {
    let Answer::Created { client, secret } = answer else { return Err(unexpected()) };
    if json {
        output.json(
            &json!({ "client_id": client.client_id, "client_secret": secret.expose(), "client": client }),
        )?;
    } else {
        output.text(&credentials(&client, &secret))?;
    }
    output.error("note: the secret is shown only once, and only its hash is stored; keep it safe");
    Ok(())
}

fn credentials(client: &Client, secret: &Sensitive) -> String {
    let expires = client.secrets.last().and_then(|secret| secret.expires_at);
    facts(&[
        ("client_id", client.client_id.clone()),
        ("client_secret", secret.expose().to_owned()),
        ("expires", expires.map_or_else(|| "never".to_owned(), time)),
    ])
}

fn list(backend: &mut Backend, json: bool, output: &mut Output) -> Result<(), Failure> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let request = Request::ClientList { after: after.take(), limit: Some(PAGE) };
        let Answer::Clients { clients, next } = backend.call(request)? else { return Err(unexpected()) };
        all.extend(clients);
        match next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    if json {
        output.json(&all)?;
        return Ok(());
    }
    if all.is_empty() {
        output.error("there are no clients; create one with: cardea client create NAME");
        return Ok(());
    }
    let mut table = Table::new(&["CLIENT_ID", "NAME", "STATE", "SCOPES", "AUDIENCES", "SECRETS", "CREATED"]);
    for client in all {
        let audiences =
            if client.audiences.is_empty() { "(default)".into() } else { client.audiences.join(" ") };
        let state = if client.enabled { "enabled" } else { "disabled" };
        table.row([
            client.client_id,
            client.name,
            state.to_owned(),
            client.scopes.join(" "),
            audiences,
            client.secrets.len().to_string(),
            time(client.created_at),
        ]);
    }
    output.text(&table.render())?;
    Ok(())
}

fn show(answer: Answer, json: bool, output: &mut Output) -> Result<(), Failure> {
    let Answer::Client(client) = answer else { return Err(unexpected()) };
    if json {
        output.json(&client)?;
        return Ok(());
    }
    let listed = |values: &[String], none: &str| {
        if values.is_empty() { none.to_owned() } else { values.join(" ") }
    };
    let lifetime = client.access_token_lifetime_seconds;
    let state = match client.disabled_at {
        _ if client.enabled => "enabled".to_owned(),
        Some(at) => format!("disabled since {}", time(at)),
        None => "disabled".to_owned(),
    };
    let mut text = facts(&[
        ("client_id", client.client_id.clone()),
        ("name", client.name.clone()),
        ("state", state),
        ("scopes", listed(&client.scopes, "none")),
        ("audiences", listed(&client.audiences, "only the default one")),
        ("grant types", listed(&client.grant_types, "none")),
        (
            "token lifetime",
            lifetime.map_or_else(
                || "the server's".to_owned(),
                |seconds| display_duration(Duration::from_secs(seconds.into())),
            ),
        ),
        ("basic encoding", client.basic_encoding.clone()),
        ("remember secret", if client.remember_secret { "yes" } else { "no" }.to_owned()),
        ("created", time(client.created_at)),
        ("updated", time(client.updated_at)),
        ("revoked through", client.tokens_revoked_through.map_or_else(|| "-".to_owned(), time)),
    ]);
    if !client.secrets.is_empty() {
        let mut table = Table::new(&["SECRET", "ORIGIN", "STORED_AS", "CREATED", "EXPIRES"]);
        for secret in client.secrets {
            let expires = secret.expires_at.map_or_else(|| "never".to_owned(), time);
            table.row([secret.id, secret.provenance, secret.format, time(secret.created_at), expires]);
        }
        text.push('\n');
        text.push_str(&table.render());
    }
    output.text(&text)?;
    Ok(())
}

/// Reports that a change is in effect in the running server.
fn effect(backend: &Backend, what: &str, output: &mut Output) {
    if backend.is_server() {
        output.error(&format!("note: in effect now: {what}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_secret_is_text() {
        assert_eq!(chosen(&b"abc\r\n"[..]).map_err(|_| ()).unwrap().expose(), "abc");
        assert!(chosen(&b"\xff"[..]).is_err());
    }
}
