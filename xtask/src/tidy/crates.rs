//! Rules for the crates: which may use which, and what every manifest says.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::Finding;
use super::files::File;

/// One row per crate: which others it may use, and what it must not know.
struct Layer {
    name: &'static str,
    may_use: &'static [&'static str],
    /// In its tests besides.
    tests_may_use: &'static [&'static str],
    /// A leaf knows neither the runtime nor the configuration's format.
    leaf: bool,
}

const LAYERS: [Layer; 16] = [
    Layer { name: "cardea-clock", may_use: &[], tests_may_use: &[], leaf: true },
    Layer { name: "cardea-cache", may_use: &["cardea-clock"], tests_may_use: &[], leaf: true },
    Layer { name: "cardea-kdf", may_use: &[], tests_may_use: &[], leaf: true },
    Layer { name: "cardea-env", may_use: &[], tests_may_use: &[], leaf: true },
    Layer { name: "cardea-http", may_use: &[], tests_may_use: &[], leaf: true },
    Layer { name: "cardea-tls", may_use: &["cardea-clock", "cardea-cache"], tests_may_use: &[], leaf: false },
    Layer {
        name: "cardea-identity",
        may_use: &["cardea-clock", "cardea-cache"],
        tests_may_use: &[],
        leaf: false,
    },
    Layer {
        name: "cardea-guard",
        may_use: &["cardea-clock", "cardea-cache"],
        tests_may_use: &[],
        leaf: false,
    },
    Layer { name: "cardea-store", may_use: &["cardea-clock"], tests_may_use: &[], leaf: false },
    Layer {
        name: "cardea-issuer",
        may_use: &["cardea-clock", "cardea-cache", "cardea-kdf", "cardea-guard", "cardea-store"],
        tests_may_use: &[],
        leaf: false,
    },
    Layer {
        name: "cardea-upstream",
        may_use: &["cardea-clock", "cardea-http"],
        tests_may_use: &[],
        leaf: false,
    },
    Layer {
        name: "cardea-gateway",
        may_use: &[
            "cardea-clock",
            "cardea-cache",
            "cardea-env",
            "cardea-http",
            "cardea-tls",
            "cardea-identity",
            "cardea-guard",
            "cardea-upstream",
        ],
        tests_may_use: &["cardea-config"],
        leaf: false,
    },
    Layer {
        name: "cardea-config",
        may_use: &[
            "cardea-clock",
            "cardea-env",
            "cardea-http",
            "cardea-tls",
            "cardea-identity",
            "cardea-issuer",
            "cardea-guard",
            "cardea-upstream",
            "cardea-gateway",
        ],
        tests_may_use: &[],
        leaf: false,
    },
    Layer {
        name: "cardea",
        may_use: &[
            "cardea-clock",
            "cardea-cache",
            "cardea-kdf",
            "cardea-env",
            "cardea-http",
            "cardea-tls",
            "cardea-identity",
            "cardea-guard",
            "cardea-store",
            "cardea-issuer",
            "cardea-upstream",
            "cardea-gateway",
            "cardea-config",
        ],
        tests_may_use: &[],
        leaf: false,
    },
    Layer {
        name: "cardea-sim",
        may_use: &["cardea-clock", "cardea-guard", "cardea-upstream"],
        tests_may_use: &[],
        leaf: false,
    },
    Layer { name: "xtask", may_use: &["cardea-sim"], tests_may_use: &[], leaf: false },
];

/// Dependencies that a leaf must not have.
const NOT_FOR_LEAVES: [&str; 5] = ["tokio", "toml", "serde", "schemars", "rustls"];
/// Untyped errors are for programs only.
const ANYHOW_ALLOWED: [&str; 2] = ["cardea", "xtask"];
/// Fields of `[package]` that the workspace decides.
const INHERITED: [&str; 6] = ["version", "edition", "rust-version", "license", "repository", "publish"];
const LICENCE: &str = "Apache-2.0 OR MIT";
/// The document that gives a reason for each dependency.
const REASONS: &str = "docs/dependencies.md";
/// The document with the map of the crates.
const MAP: &str = "ARCHITECTURE.md";

/// Checks all manifests of the workspace.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    let map = files.iter().find(|file| file.path == MAP);
    if let Some(root) = files.iter().find(|file| file.path == "Cargo.toml") {
        licence(root, files, &mut findings);
    }
    for file in files {
        let is_member = file.path.starts_with("crates/") || file.path == "xtask/Cargo.toml";
        if !is_member || file.name() != "Cargo.toml" {
            continue;
        }
        match file.text.parse::<Table>() {
            Ok(manifest) => {
                member(file, &manifest, &mut findings);
                if let Some(map) = map.filter(|_| file.path.starts_with("crates/")) {
                    on_the_map(file, &manifest, map, &mut findings);
                }
                let external = all_dependencies(&manifest).into_iter().filter(|(name, _)| !is_ours(name));
                used.extend(external.map(|(name, _)| name));
            }
            Err(error) => findings.push(Finding::new(file, 1, "manifest", error.message(), "write TOML")),
        }
    }
    if let Some(document) = files.iter().find(|file| file.path == REASONS) {
        reasons(document, &used, &mut findings);
    }
    findings
}

/// Each crate has a row in the table of crates, whose last column names its internal dependencies: `clock, http`, or
/// `all above`.
fn on_the_map(file: &File, manifest: &Table, map: &File, findings: &mut Vec<Finding>) {
    let name = file.folder().rsplit('/').next().unwrap_or_default();
    let start = format!("| `{name}` |");
    let Some(index) = map.text.lines().position(|line| line.starts_with(&start)) else {
        findings.push(Finding::new(
            map,
            1,
            "map",
            format!("{name} is missing in the table of crates"),
            "add a row",
        ));
        return;
    };
    let row = map.text.lines().nth(index).unwrap_or_default().trim_end_matches([' ', '|']);
    let allowed = row.rsplit('|').next().unwrap_or_default().trim();
    for (used, for_tests) in all_dependencies(manifest) {
        let short = used.trim_start_matches("cardea-");
        let listed = allowed == "all above" || allowed.split(", ").any(|allowed| allowed == short);
        if is_ours(&used) && !for_tests && !listed {
            let what = format!("{name} uses {used}, which its row does not list");
            findings.push(Finding::new(map, index + 1, "map", what, "correct the row, or the crate"));
        }
    }
}

fn is_ours(name: &str) -> bool {
    name == "xtask" || name.starts_with("cardea")
}

/// Each dependency has a row with its reason, and each row a dependency. Rows begin with names between backticks.
fn reasons(document: &File, used: &BTreeSet<String>, findings: &mut Vec<Finding>) {
    let mut explained = BTreeSet::new();
    for (index, line) in document.text.lines().enumerate() {
        let Some(row) = line.strip_prefix("| `") else { continue };
        let names = row.split('|').next().unwrap_or_default();
        for name in names.split('`').filter(|name| name.contains(|c: char| c.is_alphanumeric())) {
            explained.insert(name.to_owned());
            if !used.contains(name) {
                let what = format!("no crate uses {name}");
                findings.push(Finding::new(document, index + 1, "reasons", what, "remove it from the table"));
            }
        }
    }
    for name in used.difference(&explained) {
        let what = format!("no reason given for {name}");
        findings.push(Finding::new(document, 1, "reasons", what, "add a row, or remove the dependency"));
    }
}

fn licence(root: &File, files: &[File], findings: &mut Vec<Finding>) {
    let manifest = root.text.parse::<Table>().unwrap_or_default();
    let stated = manifest.get("workspace").and_then(|w| w.get("package")?.get("license")?.as_str());
    if stated != Some(LICENCE) {
        let what = format!("the licence is {stated:?}");
        findings.push(Finding::new(root, 1, "licence", what, format!("state \"{LICENCE}\"")));
    }
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        if !files.iter().any(|file| file.path == name) {
            findings.push(Finding::new(root, 1, "licence", format!("{name} is missing"), "add its text"));
        }
    }
}

fn member(file: &File, manifest: &Table, findings: &mut Vec<Finding>) {
    let mut push = |line, what: String, remedy: &str| {
        findings.push(Finding::new(file, line, "manifest", what, remedy));
    };
    let package = manifest.get("package").and_then(Value::as_table);
    let field = |name: &str| package.and_then(|package| package.get(name));
    let name = field("name").and_then(Value::as_str).unwrap_or_default();
    let folder = file.folder().rsplit('/').next().unwrap_or_default();
    if name != folder {
        push(1, format!("the crate {name} is in the folder {folder}"), "give both the same name");
    }
    if field("description").and_then(Value::as_str).is_none_or(str::is_empty) {
        push(1, "no description".to_owned(), "describe the purpose of the crate in one line");
    }
    for inherited in INHERITED {
        if !is_inherited(field(inherited)) {
            push(1, format!("its own {inherited}"), &format!("write `{inherited}.workspace = true`"));
        }
    }
    if !is_inherited(manifest.get("lints")) {
        push(1, "its own lints".to_owned(), "write `[lints]` and `workspace = true`");
    }
    let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) else {
        push(1, format!("{name} has no row in the table of layers"), "add it to xtask/src/tidy/crates.rs");
        return;
    };
    dependencies(file, manifest, layer, findings);
}

fn is_inherited(value: Option<&Value>) -> bool {
    value.and_then(|value| value.get("workspace")).and_then(Value::as_bool) == Some(true)
}

fn dependencies(file: &File, manifest: &Table, layer: &Layer, findings: &mut Vec<Finding>) {
    for (used, for_tests) in all_dependencies(manifest) {
        let line = line_of(&file.text, &used);
        let ours = is_ours(&used);
        let may = layer.may_use.contains(&used.as_str())
            || (for_tests && layer.tests_may_use.contains(&used.as_str()))
            // A crate may use itself in its tests: to switch on a feature.
            || (for_tests && used == layer.name);
        if ours && !may {
            let what = format!("{} uses {used}", layer.name);
            findings.push(Finding::new(
                file,
                line,
                "layers",
                what,
                "dependencies go downward: ARCHITECTURE.md",
            ));
        }
        let known = NOT_FOR_LEAVES.iter().any(|name| used == *name || used.starts_with(&format!("{name}-")));
        if layer.leaf && !for_tests && known {
            let what = format!("the leaf {} depends on {used}", layer.name);
            findings.push(Finding::new(file, line, "layers", what, "pass what it needs as an argument"));
        }
        if used == "anyhow" && !ANYHOW_ALLOWED.contains(&layer.name) {
            let what = format!("anyhow in the library {}", layer.name);
            findings.push(Finding::new(file, line, "layers", what, "define an error enum with thiserror"));
        }
    }
}

/// The names of all packages that a manifest names as a dependency, and whether for tests alone; those of a target
/// and renamed ones too.
fn all_dependencies(manifest: &Table) -> Vec<(String, bool)> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let mut found = Vec::new();
    for table in std::iter::once(manifest).chain(targets) {
        for (section, for_tests) in
            [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
        {
            for (name, value) in table.get(section).and_then(Value::as_table).into_iter().flatten() {
                let package = value.get("package").and_then(Value::as_str).unwrap_or(name);
                found.push((package.to_owned(), for_tests));
            }
        }
    }
    found
}

fn line_of(text: &str, name: &str) -> usize {
    text.lines().position(|line| line.trim_start().starts_with(name)).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "version.workspace = true\nedition.workspace = true\nrust-version.workspace = true\n\
                        license.workspace = true\nrepository.workspace = true\npublish.workspace = true\n\
                        [lints]\nworkspace = true\n";

    fn manifest(name: &str, rest: &str) -> File {
        let text = format!("[package]\nname = \"{name}\"\ndescription = \"d\"\n{HEAD}{rest}");
        File { path: format!("crates/{name}/Cargo.toml"), text }
    }

    fn found(file: File) -> Vec<(&'static str, String)> {
        check(&[file]).into_iter().map(|finding| (finding.rule, finding.what)).collect()
    }

    #[test]
    fn dependencies_go_downward() {
        let uses = |name, rest: &str| found(manifest(name, rest));
        assert_eq!(uses("cardea-tls", "[dependencies]\ncardea-clock.workspace = true\n"), []);
        for section in
            ["dependencies", "build-dependencies", "dev-dependencies", "target.'cfg(unix)'.dependencies"]
        {
            let rest = format!("[{section}]\ncardea-gateway.workspace = true\n");
            let expected = [("layers", "cardea-http uses cardea-gateway".to_owned())];
            assert_eq!(uses("cardea-http", &rest), expected, "{section}");
        }
        let renamed = "[dependencies]\nx = { package = \"cardea-issuer\", path = \"..\" }\n";
        assert_eq!(
            uses("cardea-identity", renamed),
            [("layers", "cardea-identity uses cardea-issuer".to_owned())]
        );
        let itself = "[dev-dependencies]\ncardea-tls = { path = \".\", features = [\"a\"] }\n";
        assert_eq!(uses("cardea-tls", itself), []);
    }

    #[test]
    fn the_table_of_layers_goes_downward_itself() {
        for (index, layer) in LAYERS.iter().enumerate() {
            for used in layer.may_use {
                let position = LAYERS.iter().position(|other| other.name == *used);
                assert!(position.is_some_and(|position| position < index), "{} uses {used}", layer.name);
            }
        }
    }

    #[test]
    fn leaves_know_neither_runtime_nor_configuration_but_their_tests_may() {
        for name in ["tokio", "tokio-util", "toml", "serde"] {
            let rest = format!("[dependencies]\n{name} = \"1\"\n");
            let expected = [("layers", format!("the leaf cardea-http depends on {name}"))];
            assert_eq!(found(manifest("cardea-http", &rest)), expected);
            assert_eq!(found(manifest("cardea-gateway", &rest)), []);
            assert_eq!(found(manifest("cardea-http", &rest.replace("dep", "dev-dep"))), []);
        }
    }

    #[test]
    fn anyhow_is_for_programs() {
        let rest = "[dependencies]\nanyhow = \"1\"\n";
        assert_eq!(found(manifest("cardea", rest)), []);
        assert_eq!(
            found(manifest("cardea-tls", rest)),
            [("layers", "anyhow in the library cardea-tls".to_owned())]
        );
    }

    #[test]
    fn a_new_crate_needs_a_row() {
        let expected = [("manifest", "cardea-new has no row in the table of layers".to_owned())];
        assert_eq!(found(manifest("cardea-new", "")), expected);
    }

    #[test]
    fn a_manifest_inherits_what_the_workspace_decides() {
        for line in HEAD.lines().filter(|line| line.ends_with("true")) {
            let mut file = manifest("cardea-tls", "");
            file.text = file.text.replacen(line, "", 1);
            assert!(!found(file).is_empty(), "{line}");
        }
        let mut file = manifest("cardea-tls", "");
        file.text = file.text.replace("description = \"d\"", "");
        assert_eq!(found(file), [("manifest", "no description".to_owned())]);
        let mut file = manifest("cardea-tls", "");
        file.path = "crates/tls/Cargo.toml".to_owned();
        assert_eq!(found(file).len(), 1);
        let broken = File { path: "crates/a/Cargo.toml".to_owned(), text: "[".to_owned() };
        assert_eq!(found(broken).len(), 1);
    }

    #[test]
    fn each_dependency_has_a_reason_and_each_reason_a_dependency() {
        let reasons = |rows: &str| {
            let document =
                File { path: REASONS.to_owned(), text: format!("| crate | why |\n|---|---|\n{rows}") };
            let crates = "[dependencies]\nbytes = \"1\"\nh2 = \"1\"\ncardea-clock.workspace = true\n";
            let found = check(&[manifest("cardea-tls", crates), document]);
            found.into_iter().map(|finding| (finding.line, finding.what)).collect::<Vec<_>>()
        };
        assert_eq!(reasons("| `bytes`, `h2` | both, for `x` |\n"), []);
        assert_eq!(reasons("| `bytes` | a |\n"), [(1, "no reason given for h2".to_owned())]);
        assert_eq!(reasons("| `bytes`, `h2`, `x` | a |\n"), [(3, "no crate uses x".to_owned())]);
    }

    #[test]
    fn the_map_shows_each_crate_and_what_it_uses() {
        let on_map = |row: &str| {
            let map = File { path: MAP.to_owned(), text: format!("# Map\n{row}\n") };
            let crates = "[dependencies]\ncardea-clock.workspace = true\n";
            let found = check(&[map, manifest("cardea-tls", crates)]);
            found.into_iter().map(|finding| (finding.line, finding.what)).collect::<Vec<_>>()
        };
        assert_eq!(on_map("| `cardea-tls` | a | clock |"), []);
        assert_eq!(on_map("| `cardea-tls` | a | http, clock |"), []);
        assert_eq!(on_map("| `cardea-tls` | a | all above |"), []);
        assert_eq!(
            on_map("| `cardea` | a | clock |"),
            [(1, "cardea-tls is missing in the table of crates".to_owned())]
        );
        let expected = "cardea-tls uses cardea-clock, which its row does not list".to_owned();
        assert_eq!(on_map("| `cardea-tls` | clock | – |"), [(2, expected)]);
    }

    #[test]
    fn the_licence_is_stated_and_there() {
        let root = |licence: &str| File {
            path: "Cargo.toml".to_owned(),
            text: format!("[workspace.package]\nlicense = \"{licence}\"\n"),
        };
        let texts =
            ["LICENSE-APACHE", "LICENSE-MIT"].map(|path| File { path: path.to_owned(), text: String::new() });
        let [apache, mit] = texts;
        assert_eq!(check(&[root(LICENCE), apache, mit]), []);
        assert_eq!(check(&[root("MIT")]).len(), 3);
    }
}
