//! Which revocation lists a certificate is checked against.
//!
//! An authority may split its list into partitions, each with the distribution point that names it (RFC 5280 §5.2.5). A
//! partition covers certificates with that distribution point alone (§6.3.3). The verifier asks the first list that it takes
//! as authoritative, and no other, and it takes a partition for one of a certificate without distribution points. So complete
//! lists come first, partitions are asked by themselves in addition, and what neither covers is refused here.

use std::sync::Arc;

use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{CertificateError, DistinguishedName, RootCertStore};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use x509_parser::oid_registry::{
    OID_X509_EXT_CRL_DISTRIBUTION_POINTS, OID_X509_EXT_ISSUER_DISTRIBUTION_POINT,
};
use x509_parser::parse_x509_certificate;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::provider;

/// Verifies chains, and checks them against all lists that cover them.
pub(super) struct Verifier {
    /// With all lists, the complete ones first. A certificate that no list covers is refused.
    all: Arc<dyn ClientCertVerifier>,
    partitions: Option<Partitions>,
}

struct Partitions {
    /// With partitions alone. What they do not cover passes.
    verifier: Arc<dyn ClientCertVerifier>,
    /// The names of those who have issued partitions and no complete list.
    without_complete: Vec<Vec<u8>>,
}

impl Verifier {
    /// `lists` with their encoding, the newest first.
    ///
    /// # Errors
    /// A list or a root that the verifier does not take.
    pub(super) fn new(
        roots: RootCertStore,
        lists: &[(&CertificateRevocationList<'_>, &[u8])],
    ) -> Result<Self, VerifierBuilderError> {
        let roots = Arc::new(roots);
        let of_kind = |is_wanted: bool| lists.iter().filter(move |(list, _)| is_partition(list) == is_wanted);
        let build = |lists: Vec<_>| {
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider())
                .with_crls(lists)
                // A list that is no longer kept up to date tells nothing of what was revoked since.
                .enforce_revocation_expiration()
        };
        let owned = |(_, der): &(_, &[u8])| CertificateRevocationListDer::from(der.to_vec());
        let all = build(of_kind(false).chain(of_kind(true)).map(owned).collect()).build()?;
        let partitions: Vec<_> = of_kind(true).map(owned).collect();
        if partitions.is_empty() {
            return Ok(Self { all, partitions: None });
        }
        let is_complete = |name: &[u8]| of_kind(false).any(|(list, _)| list.issuer().as_raw() == name);
        let issuers = of_kind(true).map(|(list, _)| list.issuer().as_raw());
        let without_complete = issuers.filter(|name| !is_complete(name)).map(<[u8]>::to_vec).collect();
        let verifier = build(partitions).allow_unknown_revocation_status().build()?;
        Ok(Self { all, partitions: Some(Partitions { verifier, without_complete }) })
    }

    /// The subjects of the roots.
    pub(super) fn root_subjects(&self) -> Vec<DistinguishedName> {
        self.all.root_hint_subjects().to_vec()
    }

    /// Verifies that `leaf` leads to a root, is for clients, valid now and not revoked.
    pub(super) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        self.all.verify_client_cert(leaf, intermediates, now)?;
        match &self.partitions {
            Some(partitions) => partitions.verify(leaf, intermediates, now),
            None => Ok(()),
        }
    }
}

impl Partitions {
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let mut any_has_points = false;
        for certificate in std::iter::once(leaf).chain(intermediates) {
            let (_, certificate) =
                parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
            let mut extensions = certificate.extensions().iter();
            let has_points = extensions.any(|one| one.oid == OID_X509_EXT_CRL_DISTRIBUTION_POINTS);
            let issuer = certificate.issuer().as_raw();
            if !has_points && self.without_complete.iter().any(|name| name == issuer) {
                return Err(CertificateError::UnknownRevocationStatus.into());
            }
            any_has_points |= has_points;
        }
        if any_has_points {
            self.verifier.verify_client_cert(leaf, intermediates, now)?;
        }
        Ok(())
    }
}

/// Whether the list covers a part of what its authority has issued.
fn is_partition(list: &CertificateRevocationList<'_>) -> bool {
    list.extensions().iter().any(|extension| extension.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT)
}
