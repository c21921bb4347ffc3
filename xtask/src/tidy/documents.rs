//! Rules for documents: relative links lead somewhere, commands in code blocks exist, and examples parse.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::CommandFactory;

use super::Finding;
use super::files::File;
use crate::process::catch;

/// For `--help` of one subcommand.
const HELP_LIMIT: Duration = Duration::from_secs(20);
/// The table of contents of `docs/`.
const CONTENTS: &str = "docs/README.md";
/// Languages of code blocks that are not shell commands.
const NOT_SHELL: [&str; 9] = ["toml", "json", "rust", "http", "ini", "yaml", "nginx", "diff", "html"];

/// The command line of a program: subcommands with their options, recursively.
#[derive(Debug, Default)]
pub(super) struct CommandLine {
    /// With their dashes.
    options: Vec<String>,
    subcommands: BTreeMap<String, CommandLine>,
}

impl CommandLine {
    /// The tasks of development.
    pub(super) fn of_xtask() -> Self {
        Self::of_clap(&crate::Arguments::command())
    }

    fn of_clap(command: &clap::Command) -> Self {
        let options = command.get_arguments().filter_map(clap::Arg::get_long).map(|long| format!("--{long}"));
        let mut options: Vec<String> = options.collect();
        options.push("--help".to_owned());
        let subcommands =
            command.get_subcommands().map(|sub| (sub.get_name().to_owned(), Self::of_clap(sub)));
        Self { options, subcommands: subcommands.collect() }
    }

    /// Asks a program for its `--help`, and for that of each of its subcommands.
    ///
    /// # Errors
    ///
    /// It has none, or doesn't end with status 0.
    pub(super) fn of_program(program: &Path, name: &str) -> Result<Self> {
        let line = Self::ask(program, &mut Vec::new())?;
        ensure!(!line.subcommands.is_empty(), "`{name} --help` lists no commands");
        Ok(line)
    }

    fn ask(program: &Path, path: &mut Vec<String>) -> Result<Self> {
        let mut command = Command::new(program);
        let caught = catch(command.args(&*path).arg("--help"), HELP_LIMIT)?;
        ensure!(caught.success, "`{} --help`: {}", path.join(" "), caught.last_line());
        let mut line = Self { options: options_in(&caught.output), subcommands: BTreeMap::new() };
        for name in commands_in(&caught.output) {
            path.push(name.clone());
            line.subcommands.insert(name, Self::ask(program, path)?);
            path.pop();
        }
        Ok(line)
    }

    /// The error in the arguments of a call, if any.
    fn fault(&self, name: &str, arguments: &[&str]) -> Option<String> {
        let mut line = self;
        let mut path = name.to_owned();
        for argument in arguments {
            if let Some(option) = argument.strip_prefix("--") {
                let option = format!("--{}", option.split('=').next().unwrap_or_default());
                if option != "--" && !line.options.contains(&option) {
                    return Some(format!("`{path}` has no option {option}"));
                }
            } else if let Some(next) = line.subcommands.get(*argument) {
                line = next;
                path = format!("{path} {argument}");
            } else if !line.subcommands.is_empty() && is_word(argument) {
                return Some(format!("`{path}` has no command `{argument}`"));
            }
        }
        None
    }
}

/// The names in the section `Commands:` of a help text.
fn commands_in(help: &str) -> Vec<String> {
    let section = help.lines().skip_while(|line| line.trim() != "Commands:").skip(1);
    let section = section.take_while(|line| line.trim().is_empty() || line.starts_with(' '));
    let names = section.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help" && is_word(name)).map(str::to_owned).collect()
}

fn options_in(help: &str) -> Vec<String> {
    let words =
        help.split(|c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']' | '=' | '<' | '(' | ')' | '`'));
    words.filter(|word| word.len() > 2 && word.starts_with("--")).map(str::to_owned).collect()
}

/// Whether a text may be the name of a subcommand, unlike a value, a placeholder or a path.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !text.starts_with('-')
}

/// Checks one document. `program` is absent if its help could not be read.
pub(super) fn check(
    file: &File,
    files: &[File],
    root: &Path,
    tasks: &CommandLine,
    program: Option<&CommandLine>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for line in lines_of(file) {
        if line.shell {
            for (name, arguments) in calls_in(line.text) {
                let known = if name == "cargo xtask" { Some(tasks) } else { program };
                if let Some(what) = known.and_then(|known| known.fault(name, &arguments)) {
                    findings.push(Finding::new(
                        file,
                        line.number,
                        "command",
                        what,
                        "use a command that exists",
                    ));
                }
            }
        }
        if !line.code {
            for target in links_in(line.text) {
                if let Some(what) = link_fault(file, files, root, target) {
                    findings.push(Finding::new(file, line.number, "link", what, "correct the link"));
                }
            }
        }
    }
    examples(file, &mut findings);
    if file.path == CONTENTS {
        unlisted(file, files, &mut findings);
    }
    findings
}

/// Examples parse in their language.
fn examples(file: &File, findings: &mut Vec<Finding>) {
    let lines: Vec<&str> = file.text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let body = || {
            let body = lines[index + 1..].iter().take_while(|line| !line.trim_start().starts_with("```"));
            body.fold(String::new(), |text, line| text + line + "\n")
        };
        let error = match line.trim() {
            "```toml" => body().parse::<toml::Table>().err().map(|error| error.message().to_owned()),
            "```json" => {
                serde_json::from_str::<serde_json::Value>(&body()).err().map(|error| error.to_string())
            }
            _ => None,
        };
        if let Some(error) = error {
            let what = format!("the example does not parse: {error}");
            findings.push(Finding::new(file, index + 1, "example", what, "correct it, or mark it as text"));
        }
    }
}

/// Each document in `docs/` is listed in the table of contents.
fn unlisted(contents: &File, files: &[File], findings: &mut Vec<Finding>) {
    let lines = lines_of(contents);
    let listed: Vec<&str> =
        lines.iter().filter(|line| !line.code).flat_map(|line| links_in(line.text)).collect();
    for other in files.iter().filter(|other| other.folder() == contents.folder() && other.has_extension("md"))
    {
        let name = other.name();
        if other.path != CONTENTS && !listed.iter().any(|link| link.split('#').next() == Some(name)) {
            let what = format!("{} is not listed in the table of contents", other.path);
            findings.push(Finding::new(contents, 1, "contents", what, "add a line with a link to it"));
        }
    }
}

struct Line<'a> {
    number: usize,
    text: &'a str,
    /// In a fenced block.
    code: bool,
    /// In a block of shell commands.
    shell: bool,
}

fn lines_of(file: &File) -> Vec<Line<'_>> {
    let mut language: Option<&str> = None;
    let mut lines = Vec::new();
    for (index, text) in file.text.lines().enumerate() {
        if let Some(fence) = text.trim_start().strip_prefix("```") {
            language = if language.is_some() { None } else { Some(fence.trim()) };
            continue;
        }
        let shell = language.is_some_and(|language| !NOT_SHELL.contains(&language));
        lines.push(Line { number: index + 1, text, code: language.is_some(), shell });
    }
    lines
}

/// The calls of our programs in a line of a shell: the program, and its arguments up to a comment, a pipe or the
/// next command.
fn calls_in(line: &str) -> Vec<(&'static str, Vec<&str>)> {
    let mut calls = Vec::new();
    let mut words = line.split_whitespace().skip_while(|word| matches!(*word, "$" | "#" | "sudo")).peekable();
    let mut at_start = true;
    while let Some(word) = words.next() {
        let name = match word {
            "cargo" if at_start && words.peek() == Some(&"xtask") => {
                words.next();
                "cargo xtask"
            }
            "cargo" if at_start && words.peek() == Some(&"run") => {
                if !words.by_ref().any(|word| word == "--") {
                    break;
                }
                "cardea"
            }
            "cardea" | "./cardea" | "target/release/cardea" | "target/dist/cardea" if at_start => "cardea",
            _ => {
                // A variable before a command, and what begins a new one.
                at_start =
                    matches!(word, "&&" | "||" | "|" | ";" | "sudo") || (at_start && word.contains('='));
                continue;
            }
        };
        let mut arguments = Vec::new();
        while let Some(word) =
            words.next_if(|word| !matches!(*word, "&&" | "||" | "|" | ";" | "&" | ">" | "\\"))
        {
            if word.starts_with('#') {
                calls.push((name, arguments));
                return calls;
            }
            arguments.push(word);
        }
        calls.push((name, arguments));
        at_start = false;
    }
    calls
}

/// The targets of links in a line of Markdown: `[text](target)` and `[name]: target`, code spans left out.
fn links_in(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    for (index, part) in line.split('`').enumerate() {
        let outside_code = index % 2 == 0;
        // The text of a link may be a code span, so that the target begins a part.
        for (at, _) in part.match_indices("](").filter(|_| outside_code) {
            let target = part[at + 2..].split([')', ' ']).next().unwrap_or_default();
            targets.push(target.trim_matches(['<', '>']));
        }
    }
    let definition = line.split_once("]: ").filter(|(name, _)| name.starts_with('[') && !name.contains(' '));
    targets.extend(definition.map(|(_, target)| target.trim()));
    targets
}

fn link_fault(file: &File, files: &[File], root: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let full = if path.is_empty() { file.path.clone() } else { resolve(file.folder(), path)? };
    if path.starts_with('/') || !root.join(&full).exists() {
        return Some(format!("the link target does not exist: {target}"));
    }
    let document = files.iter().find(|other| other.path == full && other.has_extension("md"));
    let missing = document.is_some_and(|document| !anchor.is_empty() && !has_heading(document, anchor));
    missing.then(|| format!("{full} has no heading for #{anchor}"))
}

/// A path relative to a folder, from the root; what leads out of the root comes out as a path that isn't there.
fn resolve(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return Some("outside of the repository".to_owned()),
            ".." => {}
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn has_heading(document: &File, anchor: &str) -> bool {
    let headings = lines_of(document).into_iter().filter(|line| !line.code && line.text.starts_with('#'));
    headings.map(|line| slug(line.text.trim_start_matches('#').trim())).any(|slug| slug == anchor)
}

/// The anchor that the common renderers give to a heading.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "A gateway\n\nUsage: cardea <COMMAND>\n\nCommands:\n  run     Runs\n  client  Clients\n          \
                        more of it\n  help    Print this message\n\nOptions:\n  -c, --config <FILE>  A file\n      \
                        --json=[X]\n";

    fn program() -> CommandLine {
        let leaf = |options: &[&str]| CommandLine {
            options: options.iter().map(|&option| option.to_owned()).collect(),
            subcommands: BTreeMap::new(),
        };
        let client = CommandLine {
            options: Vec::new(),
            subcommands: BTreeMap::from([("create".to_owned(), leaf(&["--scope"]))]),
        };
        CommandLine {
            options: Vec::new(),
            subcommands: BTreeMap::from([
                ("demo".to_owned(), leaf(&["--port", "--check"])),
                ("client".to_owned(), client),
            ]),
        }
    }

    fn found(text: &str) -> Vec<(usize, &'static str)> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("docs")).unwrap();
        std::fs::write(folder.path().join("docs/b.md"), "# One Two\n").unwrap();
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [file("docs/b.md", "# One Two: `three`\n"), file("docs/a.md", text)];
        let found = check(&files[1], &files, folder.path(), &CommandLine::of_xtask(), Some(&program()));
        found.iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    fn in_block(command: &str) -> Vec<(usize, &'static str)> {
        found(&format!("a\n```sh\n{command}\n```\n"))
    }

    #[test]
    fn commands_that_exist_pass() {
        for command in [
            "cargo xtask test --fast",
            "$ cargo xtask tidy # all of it, no-such too",
            "cargo run --release -- demo --check",
            "cargo run --release",
            "sudo cardea client create orders --scope=a && echo no-such",
            "X=1 cardea demo --port 0 | tee no-such",
            "cardea demo \\",
            "echo cardea no-such",
            "cardea --",
        ] {
            assert_eq!(in_block(command), [], "{command}");
        }
    }

    #[test]
    fn commands_and_options_that_do_not_exist_are_found() {
        for command in [
            "cargo xtask no-such",
            "cargo xtask tidy --fast",
            "cargo run --release -- no-such",
            "cardea no-such",
            "cardea client no-such",
            "cardea client create --port 1",
            "cardea demo --no-such",
            "true && cardea no-such",
            "X=1 cardea no-such",
        ] {
            assert_eq!(in_block(command), [(3, "command")], "{command}");
        }
    }

    #[test]
    fn only_blocks_for_a_shell_hold_commands() {
        assert_eq!(found("cardea no-such\n```http\ncardea no-such\n```\ncardea no-such\n"), []);
    }

    #[test]
    fn links_lead_somewhere() {
        for good in [
            "[a](b.md)",
            "[`a`](b.md#one-two-three)",
            "[a](../docs/b.md), [b](https://a.example/x)",
            "[a]: b.md",
            "`[a](c.md)`",
            "[a](..)",
        ] {
            assert_eq!(found(&format!("{good}\n")), [], "{good}");
        }
        for bad in [
            "[a](c.md)",
            "[`a`](c.md)",
            "[a](b.md#two)",
            "[a](#two)",
            "[a]: c.md",
            "[a](/docs/b.md)",
            "[a](../../b.md)",
        ] {
            assert_eq!(found(&format!("{bad}\n")), [(1, "link")], "{bad}");
        }
        assert_eq!(found("```text\n[a](c.md)\n```\n"), []);
    }

    #[test]
    fn examples_parse() {
        assert_eq!(found("```toml\na = 1\n```\n```json\n{}\n```\n```text\n{\n```\n"), []);
        assert_eq!(found("```toml\na = \n```\n"), [(1, "example")]);
        assert_eq!(found("a\n```json\n{\n```\n"), [(2, "example")]);
    }

    #[test]
    fn the_contents_name_every_document() {
        let missing = |contents: &str| {
            let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
            let files = [
                file(CONTENTS, contents),
                file("docs/a.md", ""),
                file("docs/adr/1.md", ""),
                file("b.md", ""),
            ];
            let mut findings = Vec::new();
            unlisted(&files[0], &files, &mut findings);
            findings.len()
        };
        assert_eq!(missing("[a](a.md)\n"), 0);
        assert_eq!(missing("[a](a.md#b)\n"), 0);
        assert_eq!(missing("a.md\n```\n[a](a.md)\n```\n"), 1);
    }

    #[test]
    fn help_texts_are_read() {
        assert_eq!(commands_in(HELP), ["run", "client"]);
        assert_eq!(options_in(HELP), ["--config", "--json"]);
    }
}
