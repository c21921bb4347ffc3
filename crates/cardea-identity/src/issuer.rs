//! A trusted issuer as the authenticator uses it: the resolved configuration and its keys.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use cardea_clock::Mono;

use crate::config::{IssuerConfig, KeySource};
use crate::error::{IdentityError, TokenError};
use crate::jwk::{DOCUMENT_BYTES_MAX, KeySet, next_epoch};
use crate::jws::Header;
use crate::keyset::{IssuerKeys, KeyEpoch, report};
use crate::remote::Remote;
use crate::verdict_cache::IssuerVerdicts;

/// An issuer and its keys. It is shared with the next configuration if nothing changed.
pub(crate) struct Issuer {
    pub(crate) name: Arc<str>,
    pub(crate) config: IssuerConfig,
    pub(crate) source: IssuerKeys,
    /// Differs between configurations of the same issuer.
    generation: u64,
    /// The accepted values of `typ`, in lower case, without `application/`.
    types: Vec<String>,
    /// The cached verdicts of its tokens.
    pub(crate) verdicts: IssuerVerdicts,
    /// The epoch of its keys, which verdicts depend on.
    pub(crate) key_epoch: Arc<KeyEpoch>,
}

/// An exact `iss`, and the issuer that it belongs to.
pub(crate) struct Trusted {
    pub(crate) issuer: Arc<Issuer>,
    pub(crate) iss: Arc<str>,
    /// The tenant of a template.
    pub(crate) tenant: Option<String>,
}

impl Issuer {
    /// Resolves `config`, and takes over unchanged parts of `previous`.
    ///
    /// # Errors
    /// Settings out of range, an unreadable or malformed key file, an address that is not allowed.
    pub(crate) fn new(
        config: IssuerConfig,
        previous: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, IdentityError> {
        config.validate()?;
        let unchanged = previous.filter(|previous| previous.config == config);
        let keys = match (&config.preset, &config.keys) {
            (Some(preset), KeySource::Discovery) => preset.key_source(&config)?,
            _ => config.keys.clone(),
        };
        if let (Some(previous), false) = (unchanged, matches!(keys, KeySource::File(_))) {
            return Ok(Arc::clone(previous));
        }
        let source = match keys {
            KeySource::File(path) => {
                let keys = read(&config, &path)?;
                let old = unchanged.and_then(|previous| match &previous.source {
                    IssuerKeys::Fixed(keys) => Some((previous, keys)),
                    _ => None,
                });
                match old {
                    Some((previous, old)) => {
                        let keys = keys.succeeding(old);
                        if keys.epoch == old.epoch && keys.len() == old.len() {
                            return Ok(Arc::clone(previous));
                        }
                        IssuerKeys::Fixed(Arc::new(keys))
                    }
                    None => IssuerKeys::Fixed(Arc::new(keys)),
                }
            }
            KeySource::Local(keys) => IssuerKeys::Local(keys),
            keys => {
                let remote = Remote::new(&config, &keys)?;
                if let Some(previous) = previous.filter(|old| old.config.shares_keys_with(&config))
                    && let IssuerKeys::Remote(old) = &previous.source
                {
                    remote.seed(old);
                }
                IssuerKeys::Remote(Arc::new(remote))
            }
        };
        let verdicts = IssuerVerdicts::new(config.verdicts_max)
            .map_err(|error| config.error(format!("verdicts_max: {error}")))?;
        let key_epoch = match &source {
            IssuerKeys::Fixed(keys) => {
                let key_epoch = KeyEpoch::default();
                key_epoch.publish(Some(keys), Mono::MAX);
                Arc::new(key_epoch)
            }
            IssuerKeys::Local(keys) => Arc::clone(keys.key_epoch()),
            IssuerKeys::Remote(remote) => Arc::clone(remote.key_epoch()),
        };
        Ok(Arc::new(Self {
            verdicts,
            key_epoch,
            name: config.name.as_str().into(),
            types: config.types.iter().map(|typ| media_type(typ)).collect(),
            source,
            // Keys from a file changed their own epoch; the configuration is unchanged.
            generation: unchanged.map_or_else(next_epoch, |previous| previous.generation),
            config,
        }))
    }

    /// Whether the issuer's tokens may have this `typ`.
    pub(crate) fn accepts_type(&self, typ: Option<&str>) -> bool {
        let typ = media_type(typ.unwrap_or_default());
        self.types.contains(&typ)
    }

    /// `alg` must be on the list (RFC 8725 §3.1). Whether the key is for it is checked with the key.
    pub(crate) fn allows(&self, header: &Header) -> Result<crate::Algorithm, TokenError> {
        header
            .algorithm
            .filter(|algorithm| self.config.algorithms.contains(algorithm))
            .ok_or(TokenError::AlgorithmNotAllowed)
    }

    /// The epoch of verdicts that depend on a key set with the epoch `keys`. It is unique over both numbers as long as
    /// neither counter exceeds 2³², which takes 136 years at a change per second.
    pub(crate) const fn epoch(&self, keys: u64) -> u64 {
        (self.generation << 32) | (keys & 0xffff_ffff)
    }

    /// The current epoch of verdicts; `None` without usable keys.
    pub(crate) fn current_epoch(&self, now: Mono) -> Option<u64> {
        self.key_epoch.epoch(now).map(|keys| self.epoch(keys))
    }
}

/// RFC 7515 §4.1.9: `application/` may be omitted if no other `/` follows. Media types are case-insensitive (RFC 2045
/// §5.1).
fn media_type(typ: &str) -> String {
    let lower = typ.to_ascii_lowercase();
    match lower.strip_prefix("application/") {
        Some(rest) if !rest.contains('/') => rest.to_owned(),
        _ => lower,
    }
}

fn read(config: &IssuerConfig, path: &Path) -> Result<KeySet, IdentityError> {
    let mut bytes = Vec::new();
    let limit = DOCUMENT_BYTES_MAX as u64 + 1;
    std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map_err(
        |source| IdentityError::KeyFile { name: config.name.clone(), path: path.to_owned(), source },
    )?;
    let (keys, skipped) = KeySet::parse(&bytes, &config.algorithms)
        .map_err(|error| config.error(format!("{}: {error}", path.display())))?;
    report(&config.name, &skipped);
    if keys.len() == 0 {
        let why = skipped.first().map_or("it has none", |skipped| skipped.reason);
        return Err(config.error(format!("{}: no usable key: {why}", path.display())));
    }
    Ok(keys)
}
