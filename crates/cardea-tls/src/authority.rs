//! A small certificate authority for the demonstration and for tests. Its key never leaves the process.

use std::fmt;
use std::time::Duration;

use aws_lc_rs::rand;
use cardea_clock::Wall;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PKCS_ED25519, PKCS_RSA_SHA256, RevokedCertParams, RsaKeySize, SanType, SerialNumber, date_time_ymd,
};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::certificate::KeyType;
use crate::client_auth::ClientName;

/// Why a certificate could not be created: an invalid host name, or no randomness.
#[derive(Debug, Error)]
#[error("can't make a certificate: {0}")]
pub struct AuthorityError(#[from] rcgen::Error);

/// An authority with a self-signed certificate and an ECDSA P-256 key.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A leaf certificate, in the form of its files.
#[derive(Clone)]
pub struct Issued {
    /// The leaf certificate. The authority's own is not appended, because clients have it.
    pub chain_pem: String,
    /// The leaf's private key: PKCS #8, unencrypted; wiped when dropped.
    pub key_pem: Zeroizing<String>,
    /// The leaf's serial number, for [`Authority::revocation_list`].
    pub serial: Vec<u8>,
}

impl Authority {
    /// Creates an authority called `name` that is valid in the given time, with a resolution of a second.
    ///
    /// # Errors
    /// [`AuthorityError`] if no key can be generated.
    pub fn new(name: &str, not_before: Wall, not_after: Wall) -> Result<Self, AuthorityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        // It may only sign leaf certificates (RFC 5280 §4.2.1.9).
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

    /// The same with a key of the given type: ECDSA P-256, Ed25519, or RSA with 2048 bits.
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
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params, "Cardea", key_type, not_before, not_after)
    }

    /// Issues a client certificate with an ECDSA P-256 key.
    ///
    /// # Errors
    /// [`AuthorityError`] if a name can't be encoded.
    pub fn issue_client(
        &self,
        common_name: &str,
        names: &[ClientName],
        not_before: Wall,
        not_after: Wall,
    ) -> Result<Issued, AuthorityError> {
        let mut params = CertificateParams::default();
        for name in names {
            params.subject_alt_names.push(match name {
                ClientName::Dns(text) => SanType::DnsName(text.as_str().try_into()?),
                ClientName::Uri(text) => SanType::URI(text.as_str().try_into()?),
                ClientName::Email(text) => SanType::Rfc822Name(text.as_str().try_into()?),
                ClientName::Ip(address) => SanType::IpAddress(*address),
            });
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, common_name, KeyType::Ecdsa, not_before, not_after)
    }

    /// A revocation list in PEM with these serial numbers.
    ///
    /// # Errors
    /// [`AuthorityError`] if it can't be signed.
    pub fn revocation_list(
        &self,
        serials: &[&[u8]],
        this_update: Wall,
        next_update: Wall,
    ) -> Result<String, AuthorityError> {
        let revoked = |serial: &&[u8]| RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial),
            revocation_time: date_time_ymd(1970, 1, 1) + since_epoch(this_update),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(1970, 1, 1) + since_epoch(this_update),
            next_update: date_time_ymd(1970, 1, 1) + since_epoch(next_update),
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(params.signed_by(&self.issuer)?.pem()?)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        common_name: &str,
        key_type: KeyType,
        not_before: Wall,
        not_after: Wall,
    ) -> Result<Issued, AuthorityError> {
        // Only the alternative names identify the host (RFC 9525 §2).
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        params.not_before = date_time_ymd(1970, 1, 1) + since_epoch(not_before);
        params.not_after = date_time_ymd(1970, 1, 1) + since_epoch(not_after);
        let mut serial = vec![0; 16];
        rand::fill(&mut serial).map_err(|_| rcgen::Error::RemoteKeyError)?;
        // Positive, without changing its length (RFC 5280 §4.1.2.2).
        if let Some(first) = serial.first_mut() {
            *first = *first & 0x7f | 0x40;
        }
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        let key = match key_type {
            KeyType::Ecdsa => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
            KeyType::Ed25519 => KeyPair::generate_for(&PKCS_ED25519)?,
            KeyType::Rsa => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?,
        };
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Issued { chain_pem: certificate.pem(), key_pem: Zeroizing::new(key.serialize_pem()), serial })
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

/// The time since the Unix epoch, from which the library's dates are computed here. No certificate is older.
fn since_epoch(time: Wall) -> Duration {
    Duration::from_secs(u64::try_from(time.unix_seconds()).unwrap_or(0))
}
