//! Replaces the current configuration: completely, or not at all.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, anyhow};
use cardea_identity::KeySource;

use super::{
    databases,
    listen::{self, Inherited},
    run::{Current, Server, access_log, listed, restore_keys},
};
use crate::{
    admin::{
        Control as _,
        protocol::{Certificate, Change, Reloaded},
    },
    config::{self, Config, Effect, Happened, Location, build},
    logging, process,
};

impl Server {
    /// Reloads the configuration. An invalid one changes nothing.
    pub(crate) async fn reload(&self) -> Result<Reloaded> {
        let path = self.path.clone();
        let read = move || config::load(&path, &|name| std::env::var(name).ok());
        let file =
            async { tokio::task::spawn_blocking(read).await?.map_err(|problems| anyhow!("{problems}")) };
        self.apply(file).await
    }

    /// Puts a configuration from any source into effect, and returns the changes. An invalid one changes nothing.
    pub(crate) async fn apply(&self, config: impl Future<Output = Result<Config>>) -> Result<Reloaded> {
        // One at a time, and the measured time does not include waiting for others.
        let mut current = self.current.lock().await;
        let begun = self.gateway.clock.precise();
        let certificates = self.certificates();
        let result = match config.await {
            Ok(config) => self.replace(&mut current, config).await,
            Err(error) => Err(error),
        };
        // Of a configuration that was refused, nothing stays.
        self.names.follow(&current.config);
        let now = self.gateway.clock.precise();
        let took = now.mono.saturating_since(begun.mono);
        match &result {
            Ok(_) => self.reloads.succeeded(now.wall, took),
            Err(error) => self.reloads.failed(now.wall, took, format!("{error:#}")),
        }
        drop(current);
        let mut reloaded = result?;
        reloaded.generation = self.reloads.state().generation;
        reloaded.took_milliseconds = milliseconds(took);
        reloaded.changes.extend(changed_certificates(&certificates, &self.certificates()));
        self.admin.registry().prune();
        // Fetching keys may be slow, and nothing else waits for it.
        self.gateway.model().authenticator.maintain(self.gateway.clock.precise()).await;
        Ok(reloaded)
    }

    /// Replaces the current configuration.
    async fn replace(&self, current: &mut Current, config: Config) -> Result<Reloaded> {
        config.log_warnings();
        check_fixed(&current.config, &config)?;
        // They take effect at the next start, which would fail.
        let unusable = databases::check_wrapping_keys(&config);
        if !unusable.is_empty() {
            return Err(anyhow!(listed(unusable)));
        }
        self.names.prepare(&config).await;
        let built = build(&config, &self.foundation, Some(&current.built))
            .map_err(|problems| anyhow!(listed(problems)))?;
        restore_keys(&self.key_cache, &built, self.gateway.clock.precise()).await;

        // Sockets come before all changes: if one can't be bound or watched, nothing may change.
        let mut fresh = Vec::new();
        for wanted in &config.listeners {
            let kept = current.listeners.get(&wanted.name).is_some_and(|old| old.address == wanted.address);
            if !kept {
                let sockets =
                    listen::bind_one(&config, wanted, &mut Inherited::default(), self.workers.count())?;
                fresh.push(self.watch(wanted, sockets)?);
            }
        }
        let settings = |config: &Config| config.access_log.as_ref().map(|log| log.config.clone());
        let log = match settings(&config) != settings(&current.config) {
            true => Some(access_log(&config, &self.gateway, self.admin.registry())?),
            false => None,
        };
        let now = self.gateway.clock.precise();
        let issuer = self.provided.issuer.as_ref();
        // The earlier revocations of issuers that become local are not known yet.
        let revocations = match issuer.filter(|_| has_other_local_issuers(&current.config, &config)) {
            Some(issuer) => Some(issuer.revocations(now).await?),
            None => None,
        };
        if let (Some(issuer), Some(wanted)) = (issuer, &config.authorization_server) {
            issuer.reconfigure(wanted.settings.clone(), now.wall)?;
        }
        // Nothing fails from here on.
        self.revoker.follow(&config);
        if let Some(revocations) = revocations {
            revocations.tell(&*self.revoker);
        }
        logging::set_level(config.log.level);
        let limits = |config: &Config| config.general.limits.connections_max;
        if limits(&config) > limits(&current.config) {
            process::raise_descriptor_limit(process::descriptors_needed(&config, self.workers.count()));
        }
        if let Some(log) = log {
            self.gateway.set_access_log(log);
        }
        self.gateway.set_model(Arc::clone(&built.model));
        self.client_authority_faults.report(&self.gateway, true);
        self.admin.set_hosts(&config.admin.hosts);
        self.admin.follow(&config.readiness);
        if let Some(acme) = &self.provided.acme {
            acme.follow(&config);
        }
        built.succeed(&current.built, now.mono);
        self.checks.follow(&built.model.services);
        let changes = changes(&current.config, &config);
        current.config = config;
        current.built = built;
        let wanted: Vec<String> =
            current.config.listeners.iter().map(|listener| listener.name.clone()).collect();
        current.listeners.retain(|name, listening| {
            let keep = wanted.contains(name) && !fresh.iter().any(|fresh| fresh.name == *name);
            if !keep {
                listening.serving.stop();
            }
            keep
        });
        for bound in fresh {
            self.listen(current, bound);
        }
        current.set_modes();
        let needs_restart = self.not_in_effect(current);
        if !needs_restart.is_empty() {
            tracing::warn!("changes that take effect at the next start: {}", needs_restart.join(", "));
        }
        Ok(Reloaded { generation: 0, took_milliseconds: 0, changes, needs_restart })
    }
}

/// Refuses a configuration whose parts would be inconsistent before a restart.
fn check_fixed(old: &Config, new: &Config) -> Result<()> {
    let refused = old.fingerprint.changed_at(&new.fingerprint, Effect::Refused);
    let problem = |(key, at): &(String, Location)| {
        let message = format!("a reload can't change {key}, on which other keys depend");
        new.problem(*at, message, "restart the gateway, or undo the change")
    };
    match refused.as_slice() {
        [] => Ok(()),
        refused => Err(anyhow!(listed(refused.iter().map(problem).collect()))),
    }
}

/// Whether an issuer becomes local that was not before.
fn has_other_local_issuers(old: &Config, new: &Config) -> bool {
    local_issuers(new).any(|name| local_issuers(old).all(|old| old != name))
}

/// The names of the local issuers.
fn local_issuers(config: &Config) -> impl Iterator<Item = &str> {
    let local = config.issuers.iter().filter(|issuer| matches!(issuer.keys, KeySource::Local(_)));
    local.map(|issuer| issuer.name.as_str())
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn changes(old: &Config, new: &Config) -> Vec<Change> {
    let differences = old.fingerprint.differences(&new.fingerprint).into_iter();
    let change = |one: config::Difference| Change {
        happened: match one.happened {
            Happened::Added => "added",
            Happened::Removed => "removed",
            Happened::Changed => "changed",
        }
        .to_owned(),
        kind: one.kind,
        name: one.name,
        keys: one.keys,
    };
    differences.map(change).collect()
}

/// Problems of certificate files belong to the reload, not to the configuration.
fn changed_certificates(before: &[Certificate], after: &[Certificate]) -> Vec<Change> {
    let same =
        |one: &Certificate, other: &Certificate| (&one.source, &one.hosts) == (&other.source, &other.hosts);
    let change = |happened: &str, certificate: &Certificate, keys: &[&str]| Change {
        happened: happened.to_owned(),
        kind: "certificate".to_owned(),
        name: format!("{} ({})", certificate.hosts.join(", "), certificate.source),
        keys: keys.iter().map(|&key| key.to_owned()).collect(),
    };
    let mut found = Vec::new();
    for new in after {
        match before.iter().find(|old| same(old, new)) {
            None => found.push(change("added", new, &[])),
            Some(old) if old.not_after != new.not_after => found.push(change("changed", new, &["not_after"])),
            Some(old) if old.listeners != new.listeners => found.push(change("changed", new, &["listeners"])),
            Some(_) => {}
        }
    }
    let gone = before.iter().filter(|old| !after.iter().any(|new| same(old, new)));
    found.extend(gone.map(|old| change("removed", old, &[])));
    found
}

#[cfg(test)]
mod tests;
