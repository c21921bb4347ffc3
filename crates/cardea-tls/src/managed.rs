//! A certificate that is set at run time instead of read from files.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use cardea_clock::Wall;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::certificate::{UsableKey, check_chain, parse_chain, usable_key};
use crate::config::CertificateConfig;
use crate::error::{CertificateError, CertificateProblem};

/// A slot for a certificate with its key, empty at first.
/// [`ServerTls::reload_if_changed`](crate::ServerTls::reload_if_changed) takes over its content as it does with changed
/// files.
pub struct ManagedCertificate {
    name: PathBuf,
    hosts: Vec<String>,
    material: ArcSwapOption<Material>,
    /// Counts the changes of the content.
    version: AtomicU64,
}

pub(crate) struct Material {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: UsableKey,
    validity: Validity,
}

/// The validity of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The start of validity.
    pub not_before: Wall,
    /// The end of validity.
    pub not_after: Wall,
}

impl ManagedCertificate {
    /// An empty slot for a certificate for all of `hosts`; messages call it `name`.
    #[must_use]
    pub fn new(name: impl Into<PathBuf>, hosts: Vec<String>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            hosts,
            material: ArcSwapOption::empty(),
            version: AtomicU64::new(0),
        })
    }

    /// The content for a listener.
    #[must_use]
    pub fn config(self: &Arc<Self>, trust_domain: &str) -> CertificateConfig {
        CertificateConfig {
            chain: self.name.clone(),
            key: self.name.clone(),
            hosts: self.hosts.clone(),
            managed: Some(Arc::clone(self)),
            trust_domain: trust_domain.to_owned(),
            client_auth: None,
            ocsp: None,
        }
    }

    /// The configured hosts.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Stores a certificate: a chain in PEM, the leaf first, and its key in PKCS #8. A certificate that can't be served
    /// at `now` changes nothing.
    ///
    /// # Errors
    /// The problem: the chain, the key, a mismatch of both, or a host that isn't covered.
    pub fn put(self: &Arc<Self>, chain: &[u8], key: &[u8], now: Wall) -> Result<Validity, CertificateError> {
        let at = |problem| CertificateError { path: self.name.clone(), problem };
        let material = self.check(chain, key, now).map_err(at)?;
        let validity = material.validity;
        self.material.store(Some(Arc::new(material)));
        self.version.fetch_add(1, Ordering::Release);
        Ok(validity)
    }

    /// The validity of the present certificate; `None` if the slot is empty.
    #[must_use]
    pub fn validity(&self) -> Option<Validity> {
        self.material.load().as_ref().map(|material| material.validity)
    }

    pub(crate) fn material(&self) -> Option<Arc<Material>> {
        self.material.load_full()
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn check(self: &Arc<Self>, chain: &[u8], key: &[u8], now: Wall) -> Result<Material, CertificateProblem> {
        let chain = parse_chain(chain)?;
        let key = usable_key(PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.to_vec())))?;
        let facts = check_chain(&chain, key.0.as_ref(), &self.config(""), now)?;
        let validity = Validity { not_before: facts.not_before, not_after: facts.not_after };
        Ok(Material { chain, key, validity })
    }
}

/// Equal if it is the same slot, whatever its content.
impl PartialEq for ManagedCertificate {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for ManagedCertificate {}

impl fmt::Debug for ManagedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagedCertificate")
            .field("hosts", &self.hosts)
            .field("validity", &self.validity())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
