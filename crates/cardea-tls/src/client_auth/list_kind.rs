//! The kinds of revocation lists that can't be used. None of them says of every certificate that it concerns whether it is
//! revoked, or the verifier can't tell which it concerns.

use thiserror::Error;
use x509_parser::extensions::{DistributionPointName, ParsedExtension};
use x509_parser::oid_registry::OID_X509_EXT_DELTA_CRL_INDICATOR;
use x509_parser::revocation_list::CertificateRevocationList;

/// A kind of list that is not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum UnsupportedList {
    /// RFC 5280 §5.2.4.
    #[error("a delta list (deltaCRLIndicator), which has only the changes since an earlier list")]
    Delta,
    /// RFC 5280 §5.2.5.
    #[error("an indirect list (indirectCRL), which may be about certificates of other authorities")]
    Indirect,
    /// RFC 5280 §5.2.5.
    #[error("a list for some reasons of revocation only (onlySomeReasons)")]
    SomeReasons,
    /// RFC 5280 §5.2.5.
    #[error("a list of attribute certificates (onlyContainsAttributeCerts)")]
    AttributeCertificates,
    /// RFC 5280 §5.2.5, without a distribution point.
    #[error("a list for user certificates only (onlyContainsUserCerts), without a distribution point")]
    UserCertificates,
    /// RFC 5280 §5.2.5, without a distribution point.
    #[error("a list for CA certificates only (onlyContainsCACerts), without a distribution point")]
    AuthorityCertificates,
    /// RFC 5280 §5.2.5.
    #[error("a partition whose distribution point has no full name")]
    RelativeName,
    /// RFC 5280 §5.1.2.5 requires it.
    #[error("a list without nextUpdate, of which nobody knows how long it holds")]
    WithoutEnd,
}

impl UnsupportedList {
    /// The kind of `list`, if it is one of these.
    pub(super) fn of(list: &CertificateRevocationList<'_>) -> Option<Self> {
        if list.next_update().is_none() {
            return Some(Self::WithoutEnd);
        }
        list.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            _ if extension.oid == OID_X509_EXT_DELTA_CRL_INDICATOR => Some(Self::Delta),
            ParsedExtension::IssuingDistributionPoint(scope) => {
                let is_unnamed = scope.distribution_point.is_none();
                [
                    (scope.indirect_crl, Self::Indirect),
                    (scope.only_some_reasons.is_some(), Self::SomeReasons),
                    (scope.only_contains_attribute_certs, Self::AttributeCertificates),
                    (is_unnamed && scope.only_contains_user_certs, Self::UserCertificates),
                    (is_unnamed && scope.only_contains_ca_certs, Self::AuthorityCertificates),
                    (
                        !matches!(scope.distribution_point, Some(DistributionPointName::FullName(_))),
                        Self::RelativeName,
                    ),
                ]
                .into_iter()
                .find_map(|(is_it, kind)| is_it.then_some(kind))
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use cardea_clock::Wall;
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
        KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
    };
    use rustls_pki_types::CertificateDer;
    use tempfile::TempDir;

    use crate::error::TlsError;
    use crate::{ClientAuthority, ClientAuthorityConfig};

    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let mut der = match u8::try_from(content.len()) {
            Ok(short @ ..0x80) => vec![tag, short],
            Ok(long) => vec![tag, 0x81, long],
            Err(_) => vec![tag, 0x82, (content.len() >> 8) as u8, content.len() as u8],
        };
        der.extend(content);
        der
    }

    /// An extension of a list: `id-ce` and its number, critical.
    fn extension(number: u8, value: &[u8]) -> Vec<u8> {
        der(0x30, &[&[0x06, 3, 0x55, 0x1d, number], &[0x01, 1, 0xff], &der(0x04, &[value])])
    }

    fn scope(fields: &[&[u8]]) -> Vec<u8> {
        extension(28, &der(0x30, fields))
    }

    struct Bench {
        dir: TempDir,
        issuer: Issuer<'static, KeyPair>,
        name: Vec<u8>,
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, "lists");
            let key = KeyPair::generate().unwrap();
            let root = params.self_signed(&key).unwrap();
            fs::write(dir.path().join("roots.pem"), root.pem()).unwrap();
            let (_, parsed) = x509_parser::parse_x509_certificate(root.der()).unwrap();
            let name = parsed.subject().as_raw().to_vec();
            Self { dir, issuer: Issuer::new(params, key), name }
        }

        /// A list with these extensions beside its number. It is refused or not before anybody looks at its signature.
        fn list(&self, next_update: &[u8], extensions: &[Vec<u8>]) -> String {
            let algorithm = der(0x30, &[&[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
            let number = der(0x30, &[&[0x06, 3, 0x55, 0x1d, 20], &der(0x04, &[&[0x02, 1, 1]])]);
            let extensions = der(0x30, &[&number, &extensions.concat()]);
            let list = der(
                0x30,
                &[
                    &[0x02, 1, 1],
                    &algorithm,
                    &self.name,
                    &der(0x17, &[b"200101000000Z"]),
                    next_update,
                    &der(0xa0, &[&extensions]),
                ],
            );
            let signed = der(0x30, &[&list, &algorithm, &[0x03, 2, 0, 0]]);
            let text = BASE64_STANDARD.encode(signed);
            format!("-----BEGIN X509 CRL-----\n{text}\n-----END X509 CRL-----\n")
        }

        fn load(&self, lists: &[String]) -> Result<std::sync::Arc<ClientAuthority>, TlsError> {
            let path = self.dir.path().join("lists.crl");
            fs::write(&path, lists.concat()).unwrap();
            let roots = self.dir.path().join("roots.pem");
            ClientAuthority::load(&ClientAuthorityConfig { name: "lists".into(), roots, crls: vec![path] })
        }
    }

    #[test]
    fn an_unsupported_kind_of_list_is_named_and_a_complete_one_asked_for() {
        let bench = Bench::new();
        let until = der(0x17, &[b"490101000000Z"]);
        let point = der(0xa0, &[&der(0xa0, &[&der(0x86, &[b"http://crl.example/a"])])]);
        let relative = der(0xa0, &[&der(0xa1, &[])]);
        let (users, authorities) = (&[0x81, 1, 0xff][..], &[0x82, 1, 0xff][..]);
        let (reasons, indirect, attributes) =
            (&[0x83, 2, 5, 0x60][..], &[0x84, 1, 0xff][..], &[0x85, 1, 0xff][..]);
        for (extensions, expected) in [
            (vec![], None),
            (vec![scope(&[&point])], None),
            (vec![scope(&[&point, users])], None),
            (vec![extension(27, &[0x02, 1, 1])], Some("a delta list (deltaCRLIndicator)")),
            (vec![scope(&[indirect])], Some("an indirect list (indirectCRL)")),
            (vec![scope(&[&point, indirect])], Some("an indirect list (indirectCRL)")),
            (vec![scope(&[users, reasons])], Some("a list for some reasons of revocation only")),
            (vec![scope(&[&point, reasons])], Some("a list for some reasons of revocation only")),
            (vec![scope(&[attributes])], Some("a list of attribute certificates")),
            (vec![scope(&[users])], Some("a list for user certificates only (onlyContainsUserCerts)")),
            (vec![scope(&[authorities])], Some("a list for CA certificates only (onlyContainsCACerts)")),
            (vec![scope(&[&relative])], Some("a partition whose distribution point has no full name")),
            (vec![scope(&[])], Some("a partition whose distribution point has no full name")),
        ] {
            let loaded = bench.load(&[bench.list(&until, &extensions)]);
            match (loaded, expected) {
                (Ok(_), None) => {}
                (Err(error), Some(expected)) => {
                    let text = error.to_string();
                    assert!(text.contains(&format!("lists.crl: holds {expected}")), "{text}");
                    assert!(text.contains("ask the authority for a complete list"), "{text}");
                }
                (loaded, expected) => panic!("{expected:?}: {:?}", loaded.err()),
            }
        }
        let endless = bench.load(&[bench.list(&[], &[])]).unwrap_err().to_string();
        assert!(endless.contains("a list without nextUpdate"), "{endless}");
    }

    #[test]
    fn of_two_lists_of_the_same_second_the_one_with_the_greater_number_counts() {
        let bench = Bench::new();
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from(7_u64));
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let client = params.signed_by(&KeyPair::generate().unwrap(), &bench.issuer).unwrap();
        let chain = [CertificateDer::from(client.der().to_vec())];
        let list = |number: u64, serials: &[u64]| {
            let revoked = |serial: &u64| RevokedCertParams {
                serial_number: SerialNumber::from(*serial),
                revocation_time: date_time_ymd(2020, 1, 1),
                reason_code: None,
                invalidity_date: None,
            };
            let params = CertificateRevocationListParams {
                this_update: date_time_ymd(2021, 1, 1),
                next_update: date_time_ymd(2049, 1, 1),
                crl_number: SerialNumber::from(number),
                issuing_distribution_point: None,
                revoked_certs: serials.iter().map(revoked).collect(),
                key_identifier_method: KeyIdMethod::Sha256,
            };
            params.signed_by(&bench.issuer).unwrap().pem().unwrap()
        };
        let now = super::super::unix_time(Wall::from_unix_seconds(1_800_000_000));
        for (clean, revoking, is_let_in) in [(255, 256, false), (2, 1, true), (1, 2, false)] {
            let (clean, revoking) = (list(clean, &[]), list(revoking, &[7]));
            for lists in [[clean.clone(), revoking.clone()], [revoking, clean]] {
                let authority = bench.load(&lists).unwrap();
                assert_eq!(authority.verify(&chain, now).is_ok(), is_let_in);
                assert_eq!(authority.revocation_lists().len(), 1, "the other is not in force");
            }
        }
    }
}
