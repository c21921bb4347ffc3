//! `cardea certificates`: the certificates of the running gateway, and the renewal of those from an authority.

use std::path::Path;

use super::{
    Failure,
    backend::unexpected,
    end, gateway_of, load,
    text::{Table, time},
};
use crate::{
    admin::{
        Connection,
        protocol::{Answer, Certificate, Reply, Request},
    },
    cli::{CertificatesArgs, CertificatesCommand, Exit, Output},
    config::Config,
};

/// Runs `cardea certificates`.
pub(crate) fn run(arguments: &CertificatesArgs, output: &mut Output) -> Exit {
    let result = carry_out(arguments, output);
    end(result, output)
}

fn carry_out(arguments: &CertificatesArgs, output: &mut Output) -> Result<Exit, Failure> {
    let config = load(&arguments.common.config)?;
    let mut gateway = connect(&arguments.common.config, &config)?;
    let mut call = |request| match gateway.call(&request)? {
        Reply::Ok(answer) => Ok::<_, Failure>(answer),
        Reply::Error(refusal) => Err(refusal.into()),
        Reply::Progress { .. } => Err(unexpected()),
    };
    if let Some(CertificatesCommand::Renew(renew)) = &arguments.command {
        let Answer::Done = call(Request::CertificateRenew { host: renew.host.clone() })? else {
            return Err(unexpected());
        };
        output.error(
            "note: the certificate is being ordered, which takes some seconds; see: cardea certificates",
        );
        return Ok(Exit::Success);
    }
    let Answer::Certificates(certificates) = call(Request::CertificateList)? else {
        return Err(unexpected());
    };
    if arguments.common.json {
        output.json(&certificates)?;
        return Ok(Exit::Success);
    }
    output.text(&table(&certificates))?;
    for certificate in &certificates {
        if let Some(problem) = &certificate.problem {
            let hosts = certificate.hosts.join(", ");
            output.error(&super::text::printable(&format!("{hosts}: {problem}")));
        }
    }
    Ok(Exit::Success)
}

fn connect(path: &Path, config: &Config) -> Result<Connection, Failure> {
    let Some(socket) = &config.admin.socket else {
        let message =
            "admin.socket is off, so there is no connection to the gateway; see the metrics instead";
        return Err(Failure::new(Exit::Usage, message));
    };
    gateway_of(path, socket)?.ok_or_else(|| {
        let message = format!("no gateway responds at {}; start it first", socket.display());
        Failure::new(Exit::Failure, message)
    })
}

fn table(certificates: &[Certificate]) -> String {
    let mut table =
        Table::new(&["HOSTS", "SOURCE", "LISTENERS", "STATE", "EXPIRES", "NEXT_ORDER", "FAILURES"]);
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    for certificate in certificates {
        table.row([
            certificate.hosts.join(","),
            certificate.source.clone(),
            or_none(certificate.listeners.join(",")),
            certificate.state.as_str().to_owned(),
            certificate.not_after.map_or_else(|| "-".to_owned(), time),
            match certificate.next_attempt_at {
                None => "-".to_owned(),
                Some(0) => "now".to_owned(),
                Some(at) => time(at),
            },
            certificate.failures.to_string(),
        ]);
    }
    table.render()
}
