//! Checks whether databases and their wrapping keys can be used, without changing anything: for `cardea check` and reloads.

use cardea_clock::{CoarseClock, PERIOD_DEFAULT};
use cardea_issuer::WrappingKey;
use cardea_store::sqlite::{inspect_acme_keys, inspect_signing_keys};

use crate::config::{Config, Database, DatabaseUse, Location, Problem};

/// The problems of a configuration's databases. A server may be using them.
pub(crate) fn check(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    if config.databases.is_empty() {
        return problems;
    }
    let started = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| Ok((runtime, CoarseClock::start(PERIOD_DEFAULT)?)));
    match started {
        Ok((runtime, clock)) => {
            let mut report = |at: Location, message: String, remedy: &str| {
                if config.sources.is_judged(at) {
                    problems.push(config.problem(at, message, remedy));
                }
            };
            for database in &config.databases {
                runtime.block_on(look(database, &clock, &mut report));
            }
        }
        Err(error) => problems.push(config.problem(
            Location::default(),
            format!("the databases can't be checked: {error}"),
            "see the error of the operating system",
        )),
    }
    problems
}

/// The wrapping keys that are none. Whether the others decrypt the databases is not checked.
pub(super) fn check_wrapping_keys(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    for database in &config.databases {
        wrapping_key(database, &mut |at, message, remedy| problems.push(config.problem(at, message, remedy)));
    }
    problems
}

fn wrapping_key(database: &Database, report: &mut impl FnMut(Location, String, &str)) -> Option<WrappingKey> {
    let secret = database.wrapping_key.as_ref()?;
    let parsed = WrappingKey::parse(secret.expose());
    parsed
        .inspect_err(|error| {
            report(
                database.wrapping_key_at,
                format!("{} does not contain a wrapping key: {error}", secret.origin()),
                "configure the key that the database was created with; a new key decrypts no existing data",
            );
        })
        .ok()
}

async fn look(database: &Database, clock: &CoarseClock, report: &mut impl FnMut(Location, String, &str)) {
    let key = wrapping_key(database, report);
    let Some(path) = &database.path else { return };
    let checked = match &database.used_for {
        DatabaseUse::AuthorizationServer => inspect_signing_keys(path)
            .await
            .map(|records| records.iter().find_map(|record| key.as_ref()?.check(record).err())),
        DatabaseUse::Acme { directory } => {
            let directory = directory.as_ref().map_or("", |url| url.as_str());
            let now = clock.clock().precise().wall;
            inspect_acme_keys(path, directory, now).await.map(|records| {
                records
                    .iter()
                    .find_map(|record| key.as_ref()?.check_id(&record.name, &record.wrapping_key_id).err())
            })
        }
    };
    match checked {
        Ok(None) => {}
        Err(error) => report(
            database.at,
            error.to_string(),
            "configure the database with the clients and keys, and let the program's user read it",
        ),
        Ok(Some(error)) => report(
            database.wrapping_key_at,
            format!("the wrapping key does not decrypt {}: {error}", path.display()),
            "name the file or variable with the key that the database was used with before",
        ),
    }
}
