//! A small certificate authority for the demonstration and for tests. Its key never leaves the process.

use std::fmt;
use std::time::Duration;

use cardea_clock::Wall;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256, RsaKeySize, date_time_ymd,
};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::certificate::KeyType;

/// Why a certificate could not be made: a name that is no host, or the random generator.
#[derive(Debug, Error)]
#[error("can't make a certificate: {0}")]
pub struct AuthorityError(#[from] rcgen::Error);

/// An authority with a self-signed certificate and an ECDSA P-256 key.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A leaf as it goes into files.
#[derive(Clone)]
pub struct Issued {
    /// The leaf's certificate. The authority's own isn't appended: clients have that.
    pub chain_pem: String,
    /// The leaf's private key, PKCS #8, unencrypted; wiped when dropped.
    pub key_pem: Zeroizing<String>,
}

impl Authority {
    /// Makes an authority called `name`, valid in the given time, to the second.
    ///
    /// # Errors
    /// [`AuthorityError`] if no key can be generated.
    pub fn new(name: &str, not_before: Wall, not_after: Wall) -> Result<Self, AuthorityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        // It signs leaves only (RFC 5280 §4.2.1.9).
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = date_time_ymd(1970, 1, 1) + since_epoch(not_before);
        params.not_after = date_time_ymd(1970, 1, 1) + since_epoch(not_after);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, key)? })
    }

    /// The authority's certificate, for clients to trust.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        self.issuer.pem()
    }

    /// Issues a server certificate with an ECDSA P-256 key for `names`: DNS names, wildcards, IP addresses.
    ///
    /// # Errors
    /// [`AuthorityError`] if a name is none of them.
    pub fn issue(&self, names: &[&str], not_before: Wall, not_after: Wall) -> Result<Issued, AuthorityError> {
        self.issue_with(KeyType::Ecdsa, names, not_before, not_after)
    }

    /// The same with a key of the given type: ECDSA P-256, Ed25519, or RSA of 2048 bits.
    ///
    /// # Errors
    /// [`AuthorityError`] as above.
    pub fn issue_with(
        &self,
        key_type: KeyType,
        names: &[&str],
        not_before: Wall,
        not_after: Wall,
    ) -> Result<Issued, AuthorityError> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        // Identity is in the alternative names alone (RFC 9525 §2).
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "Cardea");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.not_before = date_time_ymd(1970, 1, 1) + since_epoch(not_before);
        params.not_after = date_time_ymd(1970, 1, 1) + since_epoch(not_after);
        let key = match key_type {
            KeyType::Ecdsa => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
            KeyType::Ed25519 => KeyPair::generate_for(&PKCS_ED25519)?,
            KeyType::Rsa => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?,
        };
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Issued { chain_pem: certificate.pem(), key_pem: Zeroizing::new(key.serialize_pem()) })
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("chain_pem", &self.chain_pem).field("key_pem", &"[redacted]").finish()
    }
}

/// Since the Unix epoch, which is where the library's dates start from here; no certificate is older.
fn since_epoch(time: Wall) -> Duration {
    Duration::from_secs(u64::try_from(time.unix_seconds()).unwrap_or(0))
}
