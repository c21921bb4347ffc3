//! The TLS client for upstreams and for fetching key sets.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;

use crate::certificate::read_chain;
use crate::config::{ClientTlsConfig, Roots};
use crate::error::{CertificateProblem, TlsError};
use crate::provider;

/// A client configuration that verifies servers against the chosen roots. It stores the sessions of up to 256 servers
/// for resumption, so create it once and share it. Blocks on the file system.
///
/// # Errors
/// [`TlsError::Roots`] names the problem of the file; [`TlsError::SystemRoots`] if the system has none.
pub fn client_config(config: &ClientTlsConfig) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = match &config.roots {
        Roots::System => system_roots()?,
        Roots::File(path) => Arc::new(with_file(RootCertStore::empty(), path)?),
        Roots::SystemAnd(path) => Arc::new(with_file(system_roots()?.as_ref().clone(), path)?),
    };
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
        .build()
        .map_err(|error| TlsError::Settings(rustls::Error::General(error.to_string())))?;
    let mut client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(config.min_version.versions())?
        .with_webpki_verifier(verifier)
        .with_no_client_auth();
    client.alpn_protocols.clone_from(&config.alpn);
    Ok(Arc::new(client))
}

/// The name that a server's certificate must have: a DNS name or an IP address. The brackets of IPv6 and a trailing dot
/// are removed. No port.
///
/// # Errors
/// [`TlsError::ServerName`] if it is neither.
pub fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let bare = host.strip_suffix('.').unwrap_or(host);
    let bare = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(bare);
    ServerName::try_from(bare.to_owned()).map_err(|_| TlsError::ServerName(host.to_owned()))
}

/// The system's roots, read once. A failure is not cached, so that installing them takes effect at the next attempt.
fn system_roots() -> Result<Arc<RootCertStore>, TlsError> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(Arc::clone(roots));
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // System stores contain certificates that can't be parsed any more; browsers skip them too.
    let (_, skipped) = roots.add_parsable_certificates(found.certs);
    if skipped > 0 {
        tracing::debug!(skipped, "some root certificates of the system can't be used");
    }
    if roots.is_empty() {
        let reason =
            found.errors.first().map_or_else(|| "its store is empty".to_owned(), ToString::to_string);
        return Err(TlsError::SystemRoots(reason));
    }
    Ok(Arc::clone(ROOTS.get_or_init(|| Arc::new(roots))))
}

fn with_file(mut roots: RootCertStore, path: &Path) -> Result<RootCertStore, TlsError> {
    let at = |problem| TlsError::Roots { path: path.to_owned(), problem };
    for (certificate, position) in read_chain(path).map_err(at)?.into_iter().zip(1..) {
        roots
            .add(certificate)
            .map_err(|error| at(CertificateProblem::Malformed { position, reason: error.to_string() }))?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests;
