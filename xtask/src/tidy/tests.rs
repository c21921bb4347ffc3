//! The rules together, over small repositories in temporary folders.

use std::fs;

use tempfile::TempDir;

use super::*;

/// A repository that breaks no rule, in which single files are then replaced.
fn repository(changes: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let manifest =
        "[workspace]\nmembers = [\"crates/*\"]\n\n[workspace.package]\nlicense = \"Apache-2.0 OR MIT\"\n";
    let package = "[package]\nname = \"cardea-clock\"\ndescription = \"Time\"\nversion.workspace = true\n\
                   edition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\n\
                   repository.workspace = true\npublish.workspace = true\n\n[lints]\nworkspace = true\n";
    let clean = [
        ("Cargo.toml", manifest),
        ("LICENSE-APACHE", "licence\n"),
        ("LICENSE-MIT", "licence\n"),
        ("README.md", "# Title\n\nSee [the crate](crates/cardea-clock/src/lib.rs).\n"),
        ("crates/cardea-clock/Cargo.toml", package),
        ("crates/cardea-clock/src/lib.rs", "//! Time.\n"),
    ];
    for (path, text) in clean.iter().chain(changes) {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn findings(changes: &[(&str, &str)]) -> Vec<Finding> {
    let folder = repository(changes);
    let files = files::read(folder.path()).unwrap();
    check(&files, folder.path(), &CommandLine::of_xtask(), None)
}

#[test]
fn a_clean_repository_has_no_findings() {
    assert_eq!(findings(&[]), []);
}

#[test]
fn a_finding_prints_place_fault_remedy_and_rule() {
    let found = findings(&[("crates/cardea-clock/src/lib.rs", "use std::fmt;\n")]);
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].to_string(),
        "crates/cardea-clock/src/lib.rs:1: the first line is not `//!`; state the purpose of the file there [purpose]"
    );
}

#[test]
fn a_comment_with_a_reason_excuses_its_line_and_the_next() {
    let leak = |comment: &str| {
        let source = format!("//! Time.\n{comment}\nfn f() {{\n    Box::leak(x);\n}}\n");
        findings(&[("crates/cardea-clock/src/lib.rs", &source)]).len()
    };
    assert_eq!(leak("// nothing"), 1);
    assert_eq!(leak("// tidy: banned: too far away from the line"), 1);
    let excused = |line: &str| {
        let source = format!("//! Time.\nfn f() {{\n    {line}\n}}\n");
        findings(&[("crates/cardea-clock/src/lib.rs", &source)]).len()
    };
    assert_eq!(excused("// tidy: banned: once per process, at start\n    Box::leak(x);"), 0);
    assert_eq!(excused("Box::leak(x); // tidy: banned: once per process, at start"), 0);
    assert_eq!(excused("Box::leak(x); // tidy: banned:"), 1);
    assert_eq!(excused("Box::leak(x); // tidy: purpose: the name of another rule"), 1);
}

#[test]
fn build_output_and_downloads_are_not_checked() {
    let bad = "no purpose \n";
    assert_eq!(findings(&[("target/x.rs", bad), ("fuzz/target/x.rs", bad), (".git/x.rs", bad)]), []);
    assert!(!findings(&[("fuzz/x.rs", bad)]).is_empty());
}

#[test]
fn the_request_path_names_no_protocol() {
    let rules = |path: &str, text: &str| -> Vec<_> {
        findings(&[(path, text)]).iter().map(|finding| (finding.rule, finding.line)).collect()
    };
    let source = "//! Of h1.\nuse cardea_http::h1::Framing;\n// h2\nuse crate::upstream::Connection;\n";
    for path in ["pipeline.rs", "forward/mod.rs", "decision/route.rs"] {
        assert_eq!(rules(&format!("crates/cardea-gateway/src/{path}"), source), [("protocols", 2)], "{path}");
    }
    for path in ["framing.rs", "upstream/h1/mod.rs", "h1/mod.rs"] {
        assert_eq!(rules(&format!("crates/cardea-gateway/src/{path}"), source), [], "{path}");
    }
}
