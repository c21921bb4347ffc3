//! Rules for every text file: white space, unfinished notes, machine-specific paths, mirror addresses.

use super::Finding;
use super::files::File;
use super::rust::has_word;

/// Notes on unfinished work. Put together here, so that this file passes its own rule.
const NOTES: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Folders that exist on one machine only.
const MACHINE_FOLDERS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
/// Fine in an example that a reader types, wrong in code: its name can be guessed by anybody on the machine.
const TEMPORARY_FOLDER: &str = concat!("/t", "mp/");
/// Files that say where packages come from.
const SOURCES_OF_PACKAGES: [&str; 9] = [
    "Cargo.lock",
    "config.toml",
    "go.mod",
    "go.sum",
    "package-lock.json",
    "package.json",
    "pom.xml",
    "requirements.in",
    "requirements.txt",
];
/// The public hosts that these may name, for packages or about them.
const PUBLIC_HOSTS: [&str; 7] = [
    "github.com",
    "registry.npmjs.org",
    "pypi.org",
    "files.pythonhosted.org",
    "repo.maven.apache.org",
    "maven.apache.org",
    "www.w3.org",
];

/// Checks one file.
pub(super) fn check(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    white_space(file, &mut findings);
    for (index, line) in file.text.lines().enumerate() {
        notes(file, index + 1, line, &mut findings);
        machine_paths(file, index + 1, line, &mut findings);
        mirrors(file, index + 1, line, &mut findings);
    }
    findings
}

fn white_space(file: &File, findings: &mut Vec<Finding>) {
    let mut push =
        |line, what: &str, remedy: &str| findings.push(Finding::new(file, line, "space", what, remedy));
    for (index, line) in file.text.split('\n').enumerate() {
        if line.ends_with('\r') {
            push(index + 1, "the line ends with CR LF", "end lines with LF");
        } else if line.ends_with([' ', '\t']) {
            push(index + 1, "white space at the end of the line", "remove it");
        }
    }
    let lines = file.text.lines().count().max(1);
    if file.text.is_empty() {
        push(1, "the file is empty", "remove it, or add content");
    } else if !file.text.ends_with('\n') {
        push(lines, "no newline at the end of the file", "add one");
    } else if file.text.ends_with("\n\n") {
        push(lines, "empty lines at the end of the file", "remove them");
    }
}

fn notes(file: &File, line: usize, text: &str, findings: &mut Vec<Finding>) {
    for note in NOTES {
        if has_word(text, note) {
            let what = format!("an unfinished note: {note}");
            findings.push(Finding::new(file, line, "note", what, "do it, or open an issue"));
        }
    }
}

fn machine_paths(file: &File, line: usize, text: &str, findings: &mut Vec<Finding>) {
    let is_example = file.has_extension("md") || file.path.starts_with("examples/");
    let temporary = (!is_example).then_some(TEMPORARY_FOLDER);
    for folder in MACHINE_FOLDERS.into_iter().chain(temporary) {
        if starts_path(text, folder) {
            let what = format!("a path that exists only on one machine: {folder}");
            let remedy =
                "make it relative to the repository, or use a temporary folder that the system names";
            findings.push(Finding::new(file, line, "machine", what, remedy));
        }
    }
}

/// Whether an absolute path in `text` begins with `folder`, rather than holding it further down.
fn starts_path(text: &str, folder: &str) -> bool {
    text.match_indices(folder).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        before.is_none_or(|c| {
            !c.is_alphanumeric() && !matches!(c, '.' | '-' | '_' | '/' | '}' | ')' | '*' | '~' | '%')
        })
    })
}

fn mirrors(file: &File, line: usize, text: &str, findings: &mut Vec<Finding>) {
    if !SOURCES_OF_PACKAGES.contains(&file.name()) {
        return;
    }
    for (at, scheme) in text.match_indices("://") {
        let authority =
            text[at + scheme.len()..].split(['/', '"', '\'', '<', ' ', '?', '#']).next().unwrap_or_default();
        if !PUBLIC_HOSTS.contains(&authority) {
            let what = format!("packages from {authority}");
            findings.push(Finding::new(file, line, "mirror", what, "use the public registry, or no address"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        check(&file).iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn white_space_ends_neither_lines_nor_files() {
        assert_eq!(found("a.md", "a\n\nb\n"), []);
        for (text, line) in
            [("a \nb\n", 1), ("a\nb\t\n", 2), ("a\r\n", 1), ("a\nb", 2), ("a\n\n", 2), ("", 1)]
        {
            assert_eq!(found("a.md", text), [(line, "space")], "{text:?}");
        }
    }

    #[test]
    fn notes_to_oneself_are_found_as_words() {
        for note in NOTES {
            assert_eq!(found("a.rs", &format!("a\n// {note}: b\n")), [(2, "note")]);
            assert_eq!(found("a.rs", &format!("{note}_A a{note}\n")), []);
        }
    }

    #[test]
    fn paths_of_a_machine_are_found_where_they_begin() {
        for folder in MACHINE_FOLDERS {
            assert_eq!(found("a.rs", &format!("a\n\"{folder}b\"\n")), [(2, "machine")]);
            assert_eq!(found("a.md", &format!("`{folder}b`\n")), [(1, "machine")]);
            assert_eq!(found("a.rs", &format!("a{folder}b ../x{folder}\n")), []);
        }
    }

    #[test]
    fn the_temporary_folder_is_for_examples() {
        let text = format!("a {TEMPORARY_FOLDER}b\n");
        assert_eq!(found("src/a.rs", &text), [(1, "machine")]);
        assert_eq!(found("docs/a.md", &text), []);
        assert_eq!(found("examples/cardea.toml", &text), []);
    }

    #[test]
    fn packages_come_from_public_registries() {
        let npm = |host: &str| format!("\"resolved\": \"https://{host}/a/-/a-1.0.0.tgz\"\n");
        assert_eq!(found("package-lock.json", &npm("registry.npmjs.org")), []);
        for host in
            ["mirror.example", "10.0.0.1:8080", "registry.npmjs.org.mirror.example", "u:p@registry.npmjs.org"]
        {
            assert_eq!(found("a/package-lock.json", &npm(host)), [(1, "mirror")], "{host}");
            assert_eq!(found("a.md", &npm(host)), [], "{host}");
        }
        assert_eq!(found("requirements.txt", "--index-url https://mirror.example/simple\n"), [(1, "mirror")]);
    }
}
