//! Rules for Rust sources: purpose, size, unsafe code, reasons of exceptions, banned calls, protocols.

use super::Finding;
use super::files::File;
use super::rust::{Code, has_word};

/// The number of lines without tests above which a file gets a warning.
const LINES_WARNED: usize = 600;
/// The most lines of a file without tests.
const LINES_MAX: usize = 1000;
/// The only crate that may contain unsafe code: SIMD.
const UNSAFE_ALLOWED: &str = "crates/cardea-kdf/";

/// The sources of the data path.
const GATEWAY: &str = "crates/cardea-gateway/src/";
/// Its files and folders that authorize and forward requests, independent of the protocol.
const PROTOCOL_FREE: [&str; 7] =
    ["decision/", "downstream.rs", "exchange.rs", "forward/", "pipeline.rs", "respond.rs", "response.rs"];

/// A call that is banned in sources.
struct Ban {
    /// The text in the code.
    call: &'static str,
    why: &'static str,
    remedy: &'static str,
    /// Whether tests may use it.
    tests_may: bool,
    /// The ends of paths of files that may use it.
    files_may: &'static [&'static str],
}

const BANS: [Ban; 9] = [
    Ban {
        call: "unbounded_channel",
        why: "a channel without a bound",
        remedy: "give it one: everything that grows has a bound",
        tests_may: true,
        files_may: &[],
    },
    Ban {
        call: "unbounded(",
        why: "a channel without a bound",
        remedy: "give it one: everything that grows has a bound",
        tests_may: true,
        files_may: &[],
    },
    Ban {
        call: "mpsc::channel()",
        why: "a channel without a bound",
        remedy: "use sync_channel",
        tests_may: true,
        files_may: &[],
    },
    Ban {
        call: "Box::leak",
        why: "memory that is never released",
        remedy: "own it, or share it by Arc",
        tests_may: true,
        files_may: &[],
    },
    Ban {
        call: "mem::forget",
        why: "memory that is never released",
        remedy: "own it, or share it by Arc",
        tests_may: true,
        files_may: &[],
    },
    Ban {
        call: "process::exit",
        why: "ends the process without running destructors",
        remedy: "return an ExitCode from main",
        tests_may: false,
        files_may: &["/main.rs"],
    },
    Ban {
        call: "process::abort",
        why: "ends the process without a message",
        remedy: "return an error",
        tests_may: false,
        files_may: &[],
    },
    Ban {
        call: "block_in_place",
        why: "blocks a thread of the runtime",
        remedy: "use spawn_blocking, or threads of its own",
        tests_may: false,
        files_may: &[],
    },
    Ban {
        call: "install_default()",
        why: "changes the cryptography of the whole process",
        remedy: "pass the provider to the builder",
        tests_may: false,
        files_may: &[],
    },
];

/// Checks one source file.
pub(super) fn check(file: &File) -> Vec<Finding> {
    let code = Code::of(&file.text);
    let mut findings = Vec::new();
    purpose(file, &mut findings);
    size(file, &code, &mut findings);
    unsafe_code(file, &code, &mut findings);
    reasons(file, &code, &mut findings);
    banned(file, &code, &mut findings);
    protocols(file, &code, &mut findings);
    sleeps(file, &code, &mut findings);
    findings
}

/// Whether the whole file is tests, by its path.
fn is_test_file(file: &File) -> bool {
    let path = &file.path;
    file.name() == "tests.rs"
        || path.contains("/tests/")
        || path.starts_with("tests/")
        || path.contains("/benches/")
}

fn purpose(file: &File, findings: &mut Vec<Finding>) {
    let first = file.text.lines().next().unwrap_or_default();
    if first.strip_prefix("//!").is_none_or(|purpose| purpose.trim().is_empty()) {
        findings.push(Finding::new(
            file,
            1,
            "purpose",
            "the first line is not `//!`",
            "state the purpose of the file there",
        ));
    }
}

fn size(file: &File, code: &Code, findings: &mut Vec<Finding>) {
    if is_test_file(file) {
        return;
    }
    let lines = (1..=file.text.lines().count()).filter(|&line| !code.is_test(line)).count();
    let what = format!("{lines} lines without tests, the limit is {LINES_MAX}");
    let remedy = "split it by ownership of state";
    if lines > LINES_MAX {
        findings.push(Finding::new(file, 1, "size", what, remedy));
    } else if lines > LINES_WARNED {
        findings.push(Finding::new(file, 1, "size", what, remedy).into_warning());
    }
}

/// Tests may count allocations, which needs an unsafe trait.
fn unsafe_code(file: &File, code: &Code, findings: &mut Vec<Finding>) {
    if file.path.starts_with(UNSAFE_ALLOWED) || is_test_file(file) {
        return;
    }
    for (line, text, test) in code.lines() {
        if has_word(text, "unsafe") && !test {
            let what = "unsafe code outside cardea-kdf";
            findings.push(Finding::new(file, line, "unsafe", what, "use safe code, or a library"));
        }
    }
}

fn reasons(file: &File, code: &Code, findings: &mut Vec<Finding>) {
    for (line, attribute) in code.attributes() {
        let excuses =
            ["[allow(", "[expect(", ",allow(", ",expect("].iter().any(|start| attribute.contains(start));
        if excuses && !attribute.contains("reason=") {
            let what = "a lint is disabled without a reason";
            findings.push(Finding::new(
                file,
                line,
                "reason",
                what,
                "add `reason = \"…\"`, or follow the lint",
            ));
        }
        if attribute == "[ignore" || attribute == "[ignore(" {
            let what = "a test is ignored without a reason";
            findings.push(Finding::new(
                file,
                line,
                "reason",
                what,
                "write `#[ignore = \"…\"]`, or enable it",
            ));
        }
    }
}

/// The request path does not depend on the protocol.
fn protocols(file: &File, code: &Code, findings: &mut Vec<Finding>) {
    let Some(path) = file.path.strip_prefix(GATEWAY) else { return };
    if !PROTOCOL_FREE.iter().any(|place| path == *place || (place.ends_with('/') && path.starts_with(place)))
    {
        return;
    }
    for (line, text, _) in code.lines() {
        for protocol in ["h1", "h2"] {
            if has_word(text, protocol) {
                let what = format!("`{protocol}` in the request path, which must not depend on a protocol");
                let remedy = "use Downstream, ResponseSink or UpstreamExchange";
                findings.push(Finding::new(file, line, "protocols", what, remedy));
            }
        }
    }
}

fn banned(file: &File, code: &Code, findings: &mut Vec<Finding>) {
    let test_file = is_test_file(file);
    for (line, text, test) in code.lines() {
        for ban in &BANS {
            let may = (ban.tests_may && (test || test_file))
                || ban.files_may.iter().any(|end| file.path.ends_with(end));
            if !may && calls(text, ban.call) {
                let what = format!("`{}`: {}", ban.call.trim_end_matches(['(', ')']), ban.why);
                findings.push(Finding::new(file, line, "banned", what, ban.remedy));
            }
        }
    }
}

/// Tests wait for a condition, or use paused time.
fn sleeps(file: &File, code: &Code, findings: &mut Vec<Finding>) {
    let paused = ["start_paused", "time::pause"]
        .iter()
        .any(|word| code.lines().any(|(_, text, _)| text.contains(word)));
    for (line, text, test) in code.lines() {
        if (test || is_test_file(file)) && !paused && (text.contains("time::sleep(") || calls(text, "sleep("))
        {
            let what = "a test that sleeps is slow, and unreliable on a slow machine";
            findings.push(Finding::new(
                file,
                line,
                "sleep",
                what,
                "use paused time, or wait for a condition",
            ));
        }
    }
}

/// Whether a line contains `call`, not as the end of a longer name.
fn calls(line: &str, call: &str) -> bool {
    line.match_indices(call).any(|(at, _)| {
        line[..at].chars().next_back().is_none_or(|before| !before.is_alphanumeric() && before != '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, &'static str, bool)> {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        check(&file).iter().map(|finding| (finding.line, finding.rule, finding.warning)).collect()
    }

    fn lines(count: usize) -> String {
        format!("//! A.\n{}", "fn f() {}\n".repeat(count - 1))
    }

    #[test]
    fn a_file_says_what_it_is_for() {
        assert_eq!(found("a.rs", "//! A.\n"), []);
        for text in ["", "// A.\n", "//!\n", "\n//! A.\n", "#![x]\n//! A.\n"] {
            assert_eq!(found("a.rs", text), [(1, "purpose", false)], "{text}");
        }
    }

    #[test]
    fn long_files_get_a_warning_and_very_long_ones_an_error() {
        assert_eq!(found("a.rs", &lines(600)), []);
        assert_eq!(found("a.rs", &lines(601)), [(1, "size", true)]);
        assert_eq!(found("a.rs", &lines(1000)), [(1, "size", true)]);
        assert_eq!(found("a.rs", &lines(1001)), [(1, "size", false)]);
    }

    #[test]
    fn tests_do_not_count_as_size() {
        for path in ["a/tests.rs", "a/tests/it/main.rs", "tests/a.rs"] {
            assert_eq!(found(path, &lines(2000)), [], "{path}");
        }
        let inside = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", lines(500), "fn f() {}\n".repeat(1000));
        assert_eq!(found("a.rs", &inside), []);
    }

    #[test]
    fn unsafe_code_is_for_one_crate_and_for_tests() {
        let text = "//! A.\nunsafe fn f() {}\n";
        assert_eq!(found("crates/cardea-http/src/a.rs", text), [(2, "unsafe", false)]);
        assert_eq!(found("crates/cardea-kdf/src/a.rs", text), []);
        assert_eq!(found("crates/cardea-env/tests/it.rs", text), []);
        assert_eq!(found("a.rs", "//! A.\n// unsafe\n#![forbid(unsafe_code)]\n"), []);
    }

    #[test]
    fn exceptions_give_their_reasons() {
        for bare in [
            "#[allow(x)]",
            "#![allow(x)]",
            "#[expect(x)]",
            "#[cfg_attr(a, allow(x))]",
            "#[allow(\n    x\n)]",
            "#[ignore]",
        ] {
            assert_eq!(
                found("a.rs", &format!("//! A.\n{bare}\nfn f() {{}}\n")),
                [(2, "reason", false)],
                "{bare}"
            );
        }
        for good in
            ["#[allow(x, reason = \"y\")]", "#[expect(\n    x,\n    reason = \"y\"\n)]", "#[ignore = \"y\"]"]
        {
            assert_eq!(found("a.rs", &format!("//! A.\n{good}\nfn f() {{}}\n")), [], "{good}");
        }
    }

    #[test]
    fn every_ban_finds_its_call() {
        for ban in &BANS {
            let text = format!("//! A.\nfn f() {{\n    x::{}\n}}\n", ban.call);
            assert!(found("src/a.rs", &text).contains(&(3, "banned", false)), "{}", ban.call);
            let in_test = format!("//! A.\n#[cfg(test)]\nmod tests {{\n    x::{}\n}}\n", ban.call);
            assert_eq!(found("src/a.rs", &in_test).is_empty(), ban.tests_may, "{}", ban.call);
            let in_string = format!("//! A.\nconst A: &str = \"{}\";\n// {}\n", ban.call, ban.call);
            assert_eq!(found("src/a.rs", &in_string), [], "{}", ban.call);
            for end in ban.files_may {
                assert_eq!(found(&format!("src{end}"), &text), [], "{}", ban.call);
            }
        }
    }

    #[test]
    fn tests_do_not_sleep_but_in_paused_time() {
        let sleeping = "//! A.\n#[tokio::test]\nasync fn a() {\n    tokio::time::sleep(x).await;\n}\n";
        assert_eq!(found("a/tests.rs", sleeping), [(4, "sleep", false)]);
        assert_eq!(found("a/tests.rs", &sleeping.replace("test]", "test(start_paused = true)]")), []);
        assert_eq!(found("a.rs", sleeping), []);
    }
}
