//! What of an authority's files keeps out clients whose certificates should hold.
//!
//! Nothing is loosened here: who verifies refuses such clients, and this says why.

use std::path::{Path, PathBuf};

use cardea_clock::Wall;
use rustls_pki_types::CertificateDer;
use thiserror::Error;
use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;
use x509_parser::revocation_list::CertificateRevocationList;

use super::distinguished_name;
use crate::signed::{PublicKey, Signed};

/// A revocation list that is in force.
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

/// A fault of an authority's files, by which clients are refused.
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
    #[error("certificate {position} (\"{subject}\") is not an authority's, so that it vouches for no client")]
    NotAnAuthority {
        /// Its place in the file, from 1.
        position: usize,
        /// Whose it is.
        subject: String,
    },
    /// A list whose time has run out.
    #[error(
        "the revocation list of \"{issuer}\" has expired, so that every client that it covers is refused"
    )]
    ListExpired {
        /// Whose list it is.
        issuer: String,
    },
    /// A list in the name of an authority that has not signed it.
    #[error(
        "the revocation list of \"{issuer}\" is not signed by the certificate of that name, so that every client that it covers is refused"
    )]
    ListNotSigned {
        /// Whose name is on it.
        issuer: String,
    },
    /// No list is about what an authority has issued.
    #[error(
        "no revocation list is of \"{subject}\" (certificate {position}), so that every client with a certificate that it issued is refused"
    )]
    NoList {
        /// The authority's place in the file, from 1.
        position: usize,
        /// Whose it is.
        subject: String,
    },
}

impl AuthorityProblem {
    /// What to do about it.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NotAnAuthority { .. } => {
                "put the certificate of the authority there that issues the clients' certificates"
            }
            Self::ListExpired { .. } => "replace the file by the authority's current list",
            Self::ListNotSigned { .. } => "replace the file by the list of the authority in ca_file",
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
    /// `lists` with their files. What can't be parsed here is left to who verifies.
    pub(super) fn of(
        roots_path: &Path,
        roots: &[CertificateDer<'_>],
        lists: &[(&Path, CertificateRevocationList<'_>, &[u8])],
    ) -> Self {
        let mut coverage = Self::default();
        for (path, list, _) in lists {
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
        for (path, list, der) in lists {
            let mut named = parsed.iter().filter(|(root, _)| is_of(list, root)).peekable();
            if named.peek().is_some() && !named.any(|(root, _)| is_signed_by(der, root)) {
                let problem =
                    AuthorityProblem::ListNotSigned { issuer: distinguished_name::text(list.issuer()) };
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
        let expired = self.lists.iter().filter(|list| list.next_update <= now).map(|list| AuthorityFault {
            path: list.path.clone(),
            problem: AuthorityProblem::ListExpired { issuer: list.issuer.clone() },
        });
        self.faults.iter().cloned().chain(expired).collect()
    }
}

/// Whether no certificate of a client can lead to it. One that is its own issuer may be a client's that was put there itself.
fn vouches_for_nobody(root: &X509Certificate<'_>) -> bool {
    let is_self_issued = root.subject().as_raw() == root.issuer().as_raw();
    let constraints = root.basic_constraints().ok().flatten();
    !is_self_issued && constraints.is_none_or(|constraints| !constraints.value.ca) && root.version.0 == 2
}

fn is_of(list: &CertificateRevocationList<'_>, root: &X509Certificate<'_>) -> bool {
    list.issuer().as_raw() == root.subject().as_raw()
}

fn is_signed_by(list: &[u8], root: &X509Certificate<'_>) -> bool {
    let (Some(signed), Some(key)) = (Signed::of(list), PublicKey::of(root)) else { return false };
    signed.is_by(key)
}
