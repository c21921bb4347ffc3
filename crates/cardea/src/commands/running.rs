//! `cardea reload` and `cardea status`.

use std::path::Path;

use serde::Serialize;

use super::{
    Failure,
    backend::unexpected,
    end, gateway_of,
    text::{Table, facts, printable, time},
    upstream,
};
use crate::{
    admin::{
        Connection,
        protocol::{Answer, Change, Code, Reloaded, Reply, Request, Status, Upstream},
    },
    cli::{Exit, Output, ReloadArgs, StatusArgs},
    config::{Draft, KeyFiles, Severity},
};

/// Runs `cardea reload`.
pub(crate) fn reload(arguments: &ReloadArgs, output: &mut Output) -> Exit {
    let result = carry_out_reload(arguments, output);
    end(result, output)
}

/// Runs `cardea status`.
pub(crate) fn status(arguments: &StatusArgs, output: &mut Output) -> Exit {
    let result = carry_out_status(arguments, output);
    end(result, output)
}

fn carry_out_reload(arguments: &ReloadArgs, output: &mut Output) -> Result<Exit, Failure> {
    let mut gateway = connect(&arguments.common.config)?;
    let reloaded = match gateway.call(&Request::Reload)? {
        Reply::Ok(Answer::Reloaded(reloaded)) => reloaded,
        Reply::Error(refusal) if refusal.code == Code::Configuration => {
            let message = printable_lines(&refusal.message);
            let message = format!("not reloaded, the previous configuration stays in effect:\n{message}");
            return Err(Failure::new(Exit::Usage, message));
        }
        Reply::Error(refusal) => return Err(refusal.into()),
        _ => return Err(unexpected()),
    };
    if arguments.common.json {
        output.json(&reloaded)?;
    } else {
        output.text(&shown(&reloaded))?;
    }
    if reloaded.needs_restart.is_empty() {
        return Ok(Exit::Success);
    }
    output.error(&format!("needs a restart: {}", reloaded.needs_restart.join(", ")));
    Ok(Exit::Refused)
}

fn shown(reloaded: &Reloaded) -> String {
    let mut text =
        format!("reloaded: generation {}, in {} ms\n", reloaded.generation, reloaded.took_milliseconds);
    if reloaded.changes.is_empty() {
        text.push_str("no changes\n");
    }
    for Change { happened, kind, name, keys } in &reloaded.changes {
        let waits = kind == "setting" && reloaded.needs_restart.contains(name);
        let keys = match keys.as_slice() {
            _ if waits => "; it needs a restart".to_owned(),
            [] => String::new(),
            keys => format!(": {}", keys.join(", ")),
        };
        text.push_str(&printable(&format!("{happened} {kind} {name}{keys}")));
        text.push('\n');
    }
    text
}

fn carry_out_status(arguments: &StatusArgs, output: &mut Output) -> Result<Exit, Failure> {
    let mut gateway = connect(&arguments.common.config)?;
    let status = match gateway.call(&Request::Status)? {
        Reply::Ok(Answer::Status(status)) => status,
        Reply::Error(refusal) => return Err(refusal.into()),
        _ => return Err(unexpected()),
    };
    let upstreams = upstream::list(&mut gateway)?;
    if arguments.common.json {
        output.json(&WithUpstreams { status: &status, upstreams: &upstreams })?;
    } else {
        let mut text = described(&status);
        if !upstreams.is_empty() {
            text.push('\n');
            text.push_str(&upstream::table(&upstreams));
        }
        output.text(&text)?;
    }
    Ok(if status.ready { Exit::Success } else { Exit::Refused })
}

/// The status with what is asked for apart from it, since every command asks for the status.
#[derive(Serialize)]
struct WithUpstreams<'a> {
    #[serde(flatten)]
    status: &'a Status,
    upstreams: &'a [Upstream],
}

fn described(status: &Status) -> String {
    let version = match status.revision.as_str() {
        "" => status.version.clone(),
        revision => format!("{} ({revision})", status.version),
    };
    let reload = match (&status.last_reload_error, status.generation) {
        (Some(error), _) => {
            let at = status.last_reload_failed_at.map_or_else(String::new, |at| format!(" at {}", time(at)));
            format!("failed{at}: {}", error.lines().next().unwrap_or_default())
        }
        (None, 1) => "none".to_owned(),
        (None, _) => "succeeded".to_owned(),
    };
    let ready = if status.ready { "yes".to_owned() } else { format!("no: {}", status.reasons.join(", ")) };
    let expiry = match &status.next_certificate_expiry {
        Some(certificate) => format!("{} ({})", time(certificate.not_after), certificate.hosts.join(", ")),
        None => "none".to_owned(),
    };
    let mut text = facts(&[
        ("version", version),
        ("process", status.process_id.to_string()),
        ("uptime", uptime(status.uptime_seconds)),
        ("phase", status.phase.clone()),
        ("ready", ready),
        ("degraded", or_none(status.degraded.join(", "))),
        ("configuration", status.configuration.clone()),
        ("generation", format!("{}, loaded at {}", status.generation, time(status.loaded_at))),
        ("last reload", reload),
        ("needs restart", or_none(status.needs_restart.join(", "))),
        ("connections", status.connections.to_string()),
        ("routes", status.routes.to_string()),
        ("services", status.services.to_string()),
        ("endpoints", format!("{} of {} healthy", status.endpoints_healthy, status.endpoints)),
        ("next expiry", expiry),
    ]);
    let mut listeners = Table::new(&["LISTENER", "ADDRESS", "CONNECTIONS"]);
    for listener in &status.listeners {
        listeners.row([listener.name.clone(), listener.address.clone(), listener.connections.to_string()]);
    }
    text.push('\n');
    text.push_str(&listeners.render());
    if !status.admission.is_empty() {
        let mut limits = Table::new(&["LIMIT", "IN FLIGHT", "OF", "QUEUED", "OLDEST", "REFUSED"]);
        for limit in &status.admission {
            limits.row([
                limit.limit.clone(),
                limit.in_flight.to_string(),
                limit.max_in_flight.to_string(),
                limit.queued.to_string(),
                format!("{} ms", limit.oldest_milliseconds),
                limit.refused.clone(),
            ]);
        }
        text.push('\n');
        text.push_str(&limits.render());
    }
    if !status.key_sets.is_empty() {
        let mut keys = Table::new(&["ISSUER", "KEYS", "USABLE", "FETCHED", "PROBLEM"]);
        for set in &status.key_sets {
            keys.row([
                set.issuer.clone(),
                set.keys.to_string(),
                if set.usable { "yes" } else { "no" }.to_owned(),
                set.age_seconds.map_or_else(|| "-".to_owned(), |age| format!("{} ago", uptime(age))),
                or_none(set.problem.clone().unwrap_or_default()),
            ]);
        }
        text.push('\n');
        text.push_str(&keys.render());
    }
    text
}

fn or_none(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

/// A short time in a readable form.
pub(super) fn seconds(seconds: f64) -> String {
    if seconds < 0.9995 { format!("{:.1}ms", seconds * 1e3) } else { format!("{seconds:.1}s") }
}

/// Seconds in a readable form.
fn uptime(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, ..) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

fn printable_lines(text: &str) -> String {
    text.trim_end().lines().map(printable).collect::<Vec<_>>().join("\n")
}

/// Connects to the gateway that runs with this configuration. Only the path of its admin socket must be readable,
/// because the gateway may be asked when the rest of the file is invalid.
pub(super) fn connect(path: &Path) -> Result<Connection, Failure> {
    let (config, problems) = Draft::read(path, &|name| std::env::var(name).ok(), KeyFiles::Skip).into_parts();
    let Some(config) = config else {
        return Err(Failure::new(Exit::Usage, problems.to_string().trim_end()));
    };
    let Some(socket) = &config.admin.socket else {
        return Err(Failure::new(
            Exit::Usage,
            "admin.socket is off, so there is no connection to the gateway",
        ));
    };
    // Without a file, the gateway at the default socket may be another one.
    if std::fs::metadata(path).is_err() {
        return Err(Failure::new(Exit::Usage, problems.to_string().trim_end()));
    }
    gateway_of(path, socket)?.ok_or_else(|| {
        let mut message = format!(
            "no gateway responds at {}; is it running, and does it use this admin.socket?",
            socket.display()
        );
        if problems.count(Severity::Error) > 0 {
            let problems = printable_lines(&problems.into_errors().to_string());
            message = format!(
                "{message}\nthe configuration has errors, which may affect admin.socket:\n{problems}"
            );
        }
        Failure::new(Exit::Failure, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_wait_for_a_restart_are_marked() {
        let change = |name: &str| Change {
            happened: "changed".to_owned(),
            kind: "setting".to_owned(),
            name: name.to_owned(),
            keys: Vec::new(),
        };
        let reloaded = Reloaded {
            generation: 2,
            took_milliseconds: 1,
            changes: vec![change("limits.connections_max"), change("timeouts.request")],
            needs_restart: vec!["limits.connections_max".to_owned(), "log.level".to_owned()],
        };
        let expected = "reloaded: generation 2, in 1 ms\nchanged setting limits.connections_max; it needs a restart\n\
                        changed setting timeouts.request\n";
        assert_eq!(shown(&reloaded), expected);
    }

    #[test]
    fn durations_are_short() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (61, "1m 1s"), (3_700, "1h 1m"), (90_000, "1d 1h")] {
            assert_eq!(uptime(seconds), text);
        }
    }
}
