//! A named set of CA certificates that client certificates are verified against, with their revocation lists.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use cardea_clock::Wall;
use rustls::server::VerifierBuilderError;
use rustls::{DistinguishedName, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use x509_parser::revocation_list::CertificateRevocationList;

use super::coverage::{AuthorityFault, Coverage, RevocationListInfo};
use super::list_kind::UnsupportedList;
use super::revocation::Verifier;
use crate::certificate::{damaged, read_chain};
use crate::error::{CertificateError, CertificateProblem, TlsError};
use crate::files::{self, Stamp};

/// The CA certificates of a client authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAuthorityConfig {
    /// The name by which hosts and routes refer to it.
    pub name: String,
    /// PEM file with the root certificates; at most 1 MiB.
    pub roots: PathBuf,
    /// PEM files with revocation lists, at most 1 MiB each. If there are any, every certificate of a client's chain
    /// must be covered by a list that has not expired. If empty, nothing is revoked.
    pub crls: Vec<PathBuf>,
}

/// A client authority, which hosts and routes share. Its files can be reloaded while it is used.
pub struct ClientAuthority {
    config: ClientAuthorityConfig,
    loaded: ArcSwap<Loaded>,
    watched: Mutex<Watched>,
}

struct Loaded {
    verifier: Verifier,
    coverage: Coverage,
    /// Of this set of files in this process, and of no other.
    generation: u64,
}

struct Watched {
    stamps: Vec<Stamp>,
    /// The last reported error; an unchanged one is reported once.
    reported: Option<CertificateError>,
}

/// Counts the reloads of all authorities.
static CHANGES: AtomicU64 = AtomicU64::new(0);

impl ClientAuthority {
    /// A number that changes whenever the files of any authority were reloaded: a valid certificate may have become
    /// invalid.
    #[must_use]
    pub fn changes() -> u64 {
        CHANGES.load(Ordering::Acquire)
    }

    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError::Certificates`] names the file and what is wrong with it. Blocks on the file system.
    pub fn load(config: &ClientAuthorityConfig) -> Result<Arc<Self>, TlsError> {
        let stamps = stamps(config);
        let loaded = Loaded::read(config).map_err(|error| TlsError::Certificates(vec![error]))?;
        Ok(Arc::new(Self {
            config: config.clone(),
            loaded: ArcSwap::from_pointee(loaded),
            watched: Mutex::new(Watched { stamps, reported: None }),
        }))
    }

    /// The configuration that it was loaded with.
    #[must_use]
    pub const fn config(&self) -> &ClientAuthorityConfig {
        &self.config
    }

    /// Reloads the files if they have changed; returns whether they had. Invalid files change nothing. Connections are
    /// checked against the new files from their next request on. Blocks on the file system.
    ///
    /// # Errors
    /// [`TlsError::Certificates`] with the problem; the same problem is returned once.
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.config);
        if stamps == watched.stamps {
            return Ok(false);
        }
        match Loaded::read(&self.config) {
            Ok(loaded) => {
                self.loaded.store(Arc::new(loaded));
                CHANGES.fetch_add(1, Ordering::Release);
                *watched = Watched { stamps, reported: None };
                Ok(true)
            }
            Err(error) if watched.reported.as_ref() == Some(&error) => Ok(false),
            Err(error) => {
                watched.reported = Some(error.clone());
                Err(TlsError::Certificates(vec![error]))
            }
        }
    }

    /// Its revocation lists.
    #[must_use]
    pub fn revocation_lists(&self) -> Vec<RevocationListInfo> {
        self.loaded.load().coverage.lists().to_vec()
    }

    /// What of its files keeps out clients whose certificates should hold.
    #[must_use]
    pub fn faults(&self, now: Wall) -> Vec<AuthorityFault> {
        self.loaded.load().coverage.faults(now)
    }

    /// Changes whenever what is believed does.
    pub(super) fn generation(&self) -> u64 {
        self.loaded.load().generation
    }

    /// The subjects of the roots, which the handshake sends to clients.
    pub(super) fn subjects(&self) -> Vec<DistinguishedName> {
        self.loaded.load().verifier.root_subjects()
    }

    /// Verifies that the first certificate leads to a root, is for clients, valid now and not revoked.
    pub(super) fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), rustls::Error> {
        let (leaf, intermediates) = chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        self.loaded.load().verifier.verify(leaf, intermediates, now)
    }
}

impl Loaded {
    fn read(config: &ClientAuthorityConfig) -> Result<Self, CertificateError> {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        let at = |path: &Path| {
            let path = path.to_owned();
            move |problem| CertificateError { path, problem }
        };
        let mut roots = RootCertStore::empty();
        let certificates = read_chain(&config.roots).map_err(at(&config.roots))?;
        for (certificate, position) in certificates.iter().zip(1..) {
            roots.add(certificate.clone()).map_err(|error| {
                at(&config.roots)(CertificateProblem::Malformed { position, reason: error.to_string() })
            })?;
        }
        let mut crls = Vec::new();
        for path in &config.crls {
            crls.extend(read_crls(path).map_err(at(path))?.into_iter().map(|crl| (path, crl)));
        }
        let mut parsed = Vec::with_capacity(crls.len());
        for (path, crl) in &crls {
            // One by one, so that the error names the file.
            let list = parse_crl(crl).map_err(at(path))?;
            if let Some(kind) = UnsupportedList::of(&list) {
                return Err(at(path)(CertificateProblem::UnsupportedRevocationList(kind)));
            }
            let bad = |error: VerifierBuilderError| CertificateProblem::BadRevocationList(error.to_string());
            Verifier::new(roots.clone(), &[(&list, crl.as_ref())]).map_err(bad).map_err(at(path))?;
            parsed.push((path.as_path(), list, crl.as_ref()));
        }
        // The verifier asks the first list that covers a certificate, and no other: the newest has to come first. Of two that
        // were made in the same second, it has the greater number (RFC 5280 §5.2.3).
        parsed.sort_by(|(_, one, _), (_, other, _)| {
            let age = |list: &CertificateRevocationList<'_>| list.last_update().timestamp();
            age(other).cmp(&age(one)).then_with(|| other.crl_number().cmp(&one.crl_number()))
        });
        let coverage = Coverage::of(&config.roots, &certificates, &parsed);
        let newest_first: Vec<_> = parsed.iter().map(|(_, list, der)| (list, *der)).collect();
        let verifier = Verifier::new(roots, &newest_first).map_err(|error| {
            at(&config.roots)(CertificateProblem::Malformed { position: 1, reason: error.to_string() })
        })?;
        Ok(Self { verifier, coverage, generation: GENERATIONS.fetch_add(1, Ordering::Relaxed) })
    }
}

fn read_crls(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, CertificateProblem> {
    let bytes = files::read(path)?;
    let crls: Vec<_> =
        CertificateRevocationListDer::pem_slice_iter(&bytes).collect::<Result<_, _>>().map_err(damaged)?;
    if crls.is_empty() { Err(CertificateProblem::NoRevocationList) } else { Ok(crls) }
}

fn parse_crl<'a>(
    crl: &'a CertificateRevocationListDer<'_>,
) -> Result<CertificateRevocationList<'a>, CertificateProblem> {
    match x509_parser::parse_x509_crl(crl) {
        Ok(([], parsed)) => Ok(parsed),
        Ok(_) => Err(CertificateProblem::BadRevocationList("surplus bytes after it".to_owned())),
        Err(error) => Err(CertificateProblem::BadRevocationList(error.to_string())),
    }
}

/// The time in the verifier's form. Before 1970 nothing is valid.
pub(crate) fn unix_time(now: Wall) -> UnixTime {
    UnixTime::since_unix_epoch(std::time::Duration::from_secs(
        u64::try_from(now.unix_seconds()).unwrap_or_default(),
    ))
}

fn stamps(config: &ClientAuthorityConfig) -> Vec<Stamp> {
    std::iter::once(&config.roots).chain(&config.crls).map(|path| Stamp::of(path)).collect()
}

/// Two instances are different, because their files may differ.
impl PartialEq for ClientAuthority {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for ClientAuthority {}

impl fmt::Debug for ClientAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAuthority").field("config", &self.config).finish_non_exhaustive()
    }
}
