//! What of an authority's files keeps out clients whose certificates should hold, or is likely to be a mistake.
//!
//! Nothing is loosened here: who verifies refuses such clients, and this says why.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cardea_clock::Wall;
use rustls_pki_types::CertificateDer;
use thiserror::Error;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::OID_X509_EXT_ISSUER_DISTRIBUTION_POINT;
use x509_parser::parse_x509_certificate;
use x509_parser::revocation_list::CertificateRevocationList;

use super::distinguished_name;
use crate::signed::{PublicKey, Signed};

/// The difference between the clocks of an authority and of this machine that is no fault.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(60);

/// A revocation list that is in force: no newer one supersedes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevocationListInfo {
    /// Its file.
    pub path: PathBuf,
    /// Whose it is.
    pub issuer: String,
    /// When it was made.
    pub this_update: Wall,
    /// From when on it counts for nothing, so that the clients that it covers are refused.
    pub next_update: Wall,
}

/// A fault of an authority's files. Clients are refused by most of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Error)]
#[error("{}: {problem}", path.display())]
pub struct AuthorityFault {
    /// The file that has to be changed.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: AuthorityProblem,
}

/// What is wrong with an authority's file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum AuthorityProblem {
    /// A certificate that vouches for nobody.
    #[error(
        "certificate {position} (\"{subject}\") is not a CA certificate, so it can't issue client certificates"
    )]
    NotAnAuthority {
        /// Its place in the file, from 1.
        position: usize,
        /// Whose it is.
        subject: String,
    },
    /// A list whose time has run out.
    #[error("the revocation list of \"{issuer}\" has expired; every client that it covers is refused")]
    ListExpired {
        /// Whose list it is.
        issuer: String,
    },
    /// A list in the name of an authority that has not signed it.
    #[error(
        "the revocation list of \"{issuer}\" is not signed by certificate {position} of that name; every client with a certificate that it issued is refused"
    )]
    ListNotSigned {
        /// Whose name is on it.
        issuer: String,
        /// The place of the authority's certificate in its file, from 1.
        position: usize,
    },
    /// A list from the future, which is asked before all lists that were made until then.
    #[error(
        "the date of the revocation list of \"{issuer}\" is in the future; no list with an earlier date is used"
    )]
    ListFromTheFuture {
        /// Whose list it is.
        issuer: String,
    },
    /// No list is about what an authority has issued.
    #[error(
        "no revocation list is of \"{subject}\" (certificate {position}); every client with a certificate that it issued is refused"
    )]
    NoList {
        /// The authority's place in the file, from 1.
        position: usize,
        /// Whose it is.
        subject: String,
    },
}

impl AuthorityProblem {
    /// Whether clients are refused by it.
    #[must_use]
    pub const fn refuses_clients(&self) -> bool {
        !matches!(self, Self::ListFromTheFuture { .. })
    }

    /// What to do about it.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NotAnAuthority { .. } => {
                "use the certificate of the authority that issues the clients' certificates"
            }
            Self::ListExpired { .. } => "replace the file with the authority's current list",
            Self::ListNotSigned { .. } => "replace the file with the list of the authority in ca_file",
            Self::ListFromTheFuture { .. } => {
                "replace the file with the authority's current list; check the clocks of the authority and of this machine"
            }
            Self::NoList { .. } => {
                "add the authority's list to crl_files, or remove its certificate from ca_file"
            }
        }
    }
}

/// What was found out about an authority's files when they were read.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    lists: Vec<RevocationListInfo>,
    /// Those that do not depend on the time.
    faults: Vec<AuthorityFault>,
}

impl Coverage {
    /// `lists` with their files, the newest first, as they are asked. What can't be parsed here is left to who verifies.
    pub(super) fn of(
        roots_path: &Path,
        roots: &[CertificateDer<'_>],
        lists: &[(&Path, CertificateRevocationList<'_>, &[u8])],
    ) -> Self {
        let mut coverage = Self::default();
        let in_force = || {
            let asked = |&(at, (_, list, _)): &(usize, &(_, CertificateRevocationList<'_>, _))| {
                !lists[..at].iter().any(|(_, newer, _)| supersedes(newer, list))
            };
            lists.iter().enumerate().filter(asked).map(|(_, list)| list)
        };
        for (path, list, _) in in_force() {
            coverage.lists.push(RevocationListInfo {
                path: path.to_path_buf(),
                issuer: distinguished_name::text(list.issuer()),
                this_update: Wall::from_unix_seconds(list.last_update().timestamp()),
                next_update: list
                    .next_update()
                    .map_or(Wall::MAX, |time| Wall::from_unix_seconds(time.timestamp())),
            });
        }
        let parsed: Vec<_> = roots
            .iter()
            .zip(1..)
            .filter_map(|(der, position)| Some((parse_x509_certificate(der).ok()?.1, position)))
            .collect();
        for (root, position) in &parsed {
            let subject = distinguished_name::text(root.subject());
            let problem = if vouches_for_nobody(root) {
                AuthorityProblem::NotAnAuthority { position: *position, subject }
            } else if !lists.is_empty() && !lists.iter().any(|(_, list, _)| is_of(list, root)) {
                AuthorityProblem::NoList { position: *position, subject }
            } else {
                continue;
            };
            coverage.faults.push(AuthorityFault { path: roots_path.to_owned(), problem });
        }
        for (path, list, der) in in_force() {
            // Certificates of one name may have several keys, and the list is asked about the clients of each.
            let named = parsed.iter().filter(|(root, _)| is_of(list, root));
            for (_, position) in named.filter(|(root, _)| !is_signed_by(der, root)) {
                let problem = AuthorityProblem::ListNotSigned {
                    issuer: distinguished_name::text(list.issuer()),
                    position: *position,
                };
                coverage.faults.push(AuthorityFault { path: path.to_path_buf(), problem });
            }
        }
        coverage
    }

    pub(super) fn lists(&self) -> &[RevocationListInfo] {
        &self.lists
    }

    /// All faults at a time.
    pub(super) fn faults(&self, now: Wall) -> Vec<AuthorityFault> {
        let by_time = self.lists.iter().filter_map(|list| {
            let issuer = || list.issuer.clone();
            let problem = if list.next_update <= now {
                AuthorityProblem::ListExpired { issuer: issuer() }
            } else if list.this_update > now.saturating_add(CLOCK_DIFFERENCE) {
                AuthorityProblem::ListFromTheFuture { issuer: issuer() }
            } else {
                return None;
            };
            Some(AuthorityFault { path: list.path.clone(), problem })
        });
        self.faults.iter().cloned().chain(by_time).collect()
    }
}

/// Whether no certificate of a client can lead to it. One that is its own issuer may be a client's that was put there itself.
fn vouches_for_nobody(root: &X509Certificate<'_>) -> bool {
    let is_self_issued = root.subject().as_raw() == root.issuer().as_raw();
    let constraints = root.basic_constraints().ok().flatten();
    !is_self_issued && constraints.is_none_or(|constraints| !constraints.value.ca) && root.version.0 == 2
}

/// Whether `newer`, which is asked first, covers the certificates that `list` does. Lists may be split by the kinds of
/// certificates and by distribution points (RFC 5280 §5.2.5); such a list is asked beside a complete one.
fn supersedes(newer: &CertificateRevocationList<'_>, list: &CertificateRevocationList<'_>) -> bool {
    newer.issuer().as_raw() == list.issuer().as_raw() && scope(newer) == scope(list)
}

fn scope<'l>(list: &'l CertificateRevocationList<'_>) -> Option<&'l [u8]> {
    let mut extensions = list.extensions().iter();
    let point = extensions.find(|extension| extension.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT)?;
    Some(point.value)
}

fn is_of(list: &CertificateRevocationList<'_>, root: &X509Certificate<'_>) -> bool {
    list.issuer().as_raw() == root.subject().as_raw()
}

fn is_signed_by(list: &[u8], root: &X509Certificate<'_>) -> bool {
    let (Some(signed), Some(key)) = (Signed::of(list), PublicKey::of(root)) else { return false };
    signed.is_by(key)
}
