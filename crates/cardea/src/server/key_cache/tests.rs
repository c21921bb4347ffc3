//! Restarts while an issuer is unreachable.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use cardea_identity::{Fetch, FetchError, FetchRequest, IssuerConfig, KeySource};

use super::*;

const NOW: i64 = 1_900_000_000;
const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","use":"sig","alg":"EdDSA","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// An issuer that is reachable or not.
#[derive(Default)]
struct Network {
    is_down: AtomicBool,
}

impl Fetch for Network {
    fn fetch<'a>(
        &'a self,
        _: FetchRequest<'a>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Vec<u8>, FetchError>> + Send + 'a>> {
        let answer = if self.is_down.load(SeqCst) {
            Err(FetchError::Io("unreachable".to_owned()))
        } else {
            Ok(KEYS.as_bytes().to_vec())
        };
        Box::pin(async move { answer })
    }
}

fn at(seconds: u64) -> Timestamp {
    let wall = Wall::from_unix_seconds(NOW).saturating_add(Duration::from_secs(seconds));
    // For a process that has just started, at any wall time.
    Timestamp { wall, mono: Mono::from_nanos(1_000_000_000) }
}

fn config() -> IssuerConfig {
    IssuerConfig {
        name: "main/1".into(),
        issuer: "https://id.example".into(),
        audiences: vec!["api".into()],
        keys: KeySource::Url("https://id.example/keys".parse().unwrap()),
        ..IssuerConfig::default()
    }
}

/// Starts a process at that time: whether its issuer's keys are known and usable.
async fn start(
    cache: &KeyCache,
    config: IssuerConfig,
    network: &Arc<Network>,
    seconds: u64,
) -> (usize, bool) {
    let network: Arc<dyn Fetch> = Arc::<Network>::clone(network);
    let authenticator = Authenticator::new(vec![config], None, network).unwrap();
    cache.restore(&authenticator, at(seconds));
    authenticator.maintain(at(seconds)).await;
    cache.save(&authenticator, at(seconds));
    let status = &authenticator.key_sets(at(seconds))[0];
    (status.keys, status.usable)
}

struct Fixture {
    folder: tempfile::TempDir,
    network: Arc<Network>,
}

impl Fixture {
    /// The folder of a process that knew the keys.
    async fn new() -> Self {
        let this = Self { folder: tempfile::tempdir().unwrap(), network: Arc::default() };
        assert_eq!(start(&this.cache(), config(), &this.network, 0).await, (1, true));
        this.network.is_down.store(true, SeqCst);
        this
    }

    fn cache(&self) -> KeyCache {
        KeyCache::new(Some(self.folder.path().join("issuer-keys")))
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("issuer-keys").join(file_name("main/1"))
    }

    async fn restart(&self, seconds: u64) -> (usize, bool) {
        start(&self.cache(), config(), &self.network, seconds).await
    }
}

#[tokio::test]
async fn stored_keys_survive_a_restart_until_they_are_too_old() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.restart(60).await, (1, true));
    assert_eq!(fixture.restart(13 * 3_600 - 1).await, (1, true), "as long as without a restart");
    assert_eq!(fixture.restart(13 * 3_600).await, (1, false), "known once, and too old");
    let none = KeyCache::new(None);
    assert_eq!(start(&none, config(), &fixture.network, 60).await, (0, false), "the control");
    let longer = IssuerConfig {
        refresh: cardea_identity::KeyRefresh {
            stale_if_error: Duration::from_secs(24 * 3_600),
            ..cardea_identity::KeyRefresh::default()
        },
        ..config()
    };
    assert_eq!(start(&fixture.cache(), longer, &fixture.network, 20 * 3_600).await, (1, true));
}

#[tokio::test]
async fn stored_keys_are_private_and_ignored_if_others_can_write_them() {
    let fixture = Fixture::new().await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (file, folder) = (fixture.file(), fixture.folder.path().join("issuer-keys"));
    assert_eq!((mode(&file), mode(&folder)), (0o600, 0o700));
    for (path, good, bad) in [(&file, 0o600, 0o620), (&file, 0o600, 0o602), (&folder, 0o700, 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(bad)).unwrap();
        assert_eq!(fixture.restart(60).await, (0, false), "{bad:o}");
        fs::set_permissions(path, fs::Permissions::from_mode(good)).unwrap();
        assert_eq!(fixture.restart(60).await, (1, true), "{good:o}");
    }
    let kept = fs::read(&file).unwrap();
    let aside = fixture.folder.path().join("aside");
    fs::rename(&file, &aside).unwrap();
    symlink(&aside, &file).unwrap();
    assert_eq!(fixture.restart(60).await, (0, false), "a link");
    fs::remove_file(&file).unwrap();
    for (what, content) in [("nothing", &b""[..]), ("cut", &kept[..kept.len() / 2]), ("no key set", b"{}")] {
        fs::write(&file, content).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(fixture.restart(60).await, (0, false), "{what}");
    }
}

#[tokio::test]
async fn a_folder_that_other_users_can_replace_is_neither_read_nor_written() {
    let fixture = Fixture::new().await;
    let parent = fixture.folder.path();
    let other = || KeyDocument { issuer: "other".into(), ..document(KEYS, 60) };
    for (mode, is_private) in
        [(0o700, true), (0o755, true), (0o777, false), (0o770, false), (0o1777, true), (0o755, true)]
    {
        fs::set_permissions(parent, fs::Permissions::from_mode(mode)).unwrap();
        let keys = usize::from(is_private);
        assert_eq!(fixture.restart(60).await, (keys, is_private), "{mode:o}");
        let written = write(&parent.join("issuer-keys"), &other());
        assert_eq!(written.is_ok(), is_private, "{mode:o}: {written:?}");
        let made = write(&parent.join("fresh"), &other());
        assert_eq!(made.is_ok(), is_private, "{mode:o}");
        let _ = fs::remove_dir_all(parent.join("fresh"));
    }
}

#[tokio::test]
async fn keys_of_other_settings_and_of_the_future_are_not_used() {
    let fixture = Fixture::new().await;
    for changed in [
        IssuerConfig { issuer: "https://other.example".into(), ..config() },
        IssuerConfig { keys: KeySource::Url("https://id.example/other".parse().unwrap()), ..config() },
    ] {
        assert_eq!(start(&fixture.cache(), changed, &fixture.network, 60).await, (0, false));
    }
    let before = Timestamp { wall: Wall::from_unix_seconds(NOW - 3_600), ..at(0) };
    let network: Arc<dyn Fetch> = Arc::<Network>::clone(&fixture.network);
    let authenticator = Authenticator::new(vec![config()], None, network).unwrap();
    fixture.cache().restore(&authenticator, before);
    assert_eq!(authenticator.key_sets(before)[0].keys, 0);
}

fn document(keys: &str, seconds: u64) -> KeyDocument {
    KeyDocument {
        issuer: "main/1".into(),
        source: "https://id.example/keys".to_owned(),
        bytes: keys.as_bytes().into(),
        fetched: at(seconds).mono,
        fetched_at: at(seconds).wall,
    }
}

#[tokio::test]
async fn if_keys_cannot_be_stored_older_ones_are_removed() {
    let fixture = Fixture::new().await;
    let folder = fixture.folder.path().join("issuer-keys");
    // An obstacle to the new file.
    let fresh = format!("{}.{}.fresh", file_name("main/1"), std::process::id());
    fs::create_dir_all(folder.join(&fresh).join("full")).unwrap();
    write(&folder, &document(KEYS, 60)).unwrap_err();
    assert_eq!(fixture.restart(90).await, (1, true), "the same keys are no older ones");
    write(&folder, &document(r#"{"keys":[]}"#, 60)).unwrap_err();
    assert!(!fixture.file().exists());
    assert_eq!(fixture.restart(90).await, (0, false));
}

#[tokio::test]
async fn nothing_is_written_to_folders_that_others_can_write_or_through_links() {
    let fixture = Fixture::new().await;
    let folder = fixture.folder.path().join("issuer-keys");
    let other = r#"{"keys":[]}"#;
    let before = fs::read(fixture.file()).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let error = write(&folder, &document(other, 60)).unwrap_err().to_string();
    assert!(error.contains("writable by other users"), "{error}");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let link = fixture.folder.path().join("link");
    symlink(&folder, &link).unwrap();
    write(&link, &document(other, 60)).unwrap_err();
    assert_eq!(fs::read(fixture.file()).unwrap(), before);

    // A file that a process with the same id left, or that an attacker created.
    let victim = fixture.folder.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    let fresh = folder.join(format!("{}.{}.fresh", file_name("main/1"), std::process::id()));
    symlink(&victim, &fresh).unwrap();
    write(&folder, &document(other, 60)).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    assert!(!fresh.exists() && fs::symlink_metadata(fixture.file()).unwrap().is_file());
    assert_eq!(fs::metadata(fixture.file()).unwrap().permissions().mode() & 0o777, 0o600);
}
