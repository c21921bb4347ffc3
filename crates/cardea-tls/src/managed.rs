//! A certificate that comes from no file: whoever manages it fills it, and listeners serve what is in it.

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

/// A place for a certificate with its key, empty at first. [`ServerTls::reload_if_changed`](crate::ServerTls::reload_if_changed)
/// takes what was put there, as it takes changed files.
pub struct ManagedCertificate {
    name: PathBuf,
    hosts: Vec<String>,
    material: ArcSwapOption<Material>,
    /// Counts what was put here.
    version: AtomicU64,
}

pub(crate) struct Material {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: UsableKey,
    validity: Validity,
}

/// When a certificate may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// When it becomes valid.
    pub not_before: Wall,
    /// When it expires.
    pub not_after: Wall,
}

impl ManagedCertificate {
    /// A place for a certificate for all of `hosts`; messages call it `name`.
    #[must_use]
    pub fn new(name: impl Into<PathBuf>, hosts: Vec<String>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            hosts,
            material: ArcSwapOption::empty(),
            version: AtomicU64::new(0),
        })
    }

    /// What a listener needs to serve it.
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

    /// Its hosts.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Puts a certificate here: a chain in PEM, the leaf first, and its key in PKCS #8. What can't be served at `now`
    /// changes nothing.
    ///
    /// # Errors
    /// What is wrong: the chain, the key, that they don't belong together, or a host that isn't covered.
    pub fn put(self: &Arc<Self>, chain: &[u8], key: &[u8], now: Wall) -> Result<Validity, CertificateError> {
        let at = |problem| CertificateError { path: self.name.clone(), problem };
        let material = self.check(chain, key, now).map_err(at)?;
        let validity = material.validity;
        self.material.store(Some(Arc::new(material)));
        self.version.fetch_add(1, Ordering::Release);
        Ok(validity)
    }

    /// When what is here may be used; none where nothing is.
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

/// The same place, not the same content.
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
