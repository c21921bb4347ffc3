//! The glossary of `ARCHITECTURE.md`: one word for one thing. Its last column names terms that are not to be used.
//!
//! A term matches a sequence of words within a name, however the name is written: `old-name` is found in `OldName`,
//! `the_old_names` and `old-name`. A term in `CamelCase` is found in such names only, so that its words stay free in
//! prose.

use super::Finding;
use super::files::File;

const DOCUMENT: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Glossary";
const EXTENSIONS: [&str; 3] = ["md", "rs", "toml"];

/// A term that is not to be used.
#[derive(Debug, Eq, PartialEq)]
struct Term {
    text: String,
    words: Vec<String>,
    /// Whether only names in `CamelCase` match.
    camel_case: bool,
    /// The term to use.
    instead: String,
}

impl Term {
    fn new(text: &str, instead: &str) -> Self {
        Self {
            text: text.to_owned(),
            words: words_of(text).map(str::to_lowercase).collect(),
            camel_case: text.starts_with(|c: char| c.is_uppercase()),
            instead: instead.to_owned(),
        }
    }

    fn is_in(&self, name: &str) -> bool {
        let words: Vec<&str> = words_of(name).collect();
        words.windows(self.words.len()).any(|found| {
            let mut pairs = found.iter().zip(&self.words).enumerate();
            pairs.all(|(index, (found, word))| {
                let is_last = index + 1 == self.words.len();
                (!self.camel_case || is_capitalised(found)) && equals(found, word, is_last)
            })
        })
    }
}

/// Whether only the first letter is in upper case.
fn is_capitalised(word: &str) -> bool {
    word.chars().enumerate().all(|(index, c)| c.is_uppercase() == (index == 0))
}

/// Whether `found` is `word` in any case, or its plural.
fn equals(found: &str, word: &str, or_plural: bool) -> bool {
    let singular = found.strip_suffix('s').filter(|_| or_plural);
    found.eq_ignore_ascii_case(word) || singular.is_some_and(|found| found.eq_ignore_ascii_case(word))
}

/// The words of a name in `snake_case`, `kebab-case` or `CamelCase`.
fn words_of(name: &str) -> impl Iterator<Item = &str> {
    name.split(['_', '-']).flat_map(|part| {
        let starts = part.char_indices().scan(None, |before: &mut Option<char>, (at, c)| {
            let starts = c.is_uppercase() && before.is_none_or(|before| !before.is_uppercase());
            *before = Some(c);
            Some((starts || at == 0).then_some(at))
        });
        let starts: Vec<usize> = starts.flatten().chain([part.len()]).collect();
        starts.windows(2).map(|ends| &part[ends[0]..ends[1]]).collect::<Vec<_>>()
    })
}

/// Finds the terms that the glossary excludes.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let Some(document) = files.iter().find(|file| file.path == DOCUMENT) else { return Vec::new() };
    let mut findings = Vec::new();
    let terms = terms_of(document, &mut findings);
    for file in files.iter().filter(|file| EXTENSIONS.iter().any(|extension| file.has_extension(extension))) {
        let section = if file.path == DOCUMENT { section_of(file) } else { 0..0 };
        for (index, line) in file.text.lines().enumerate().filter(|(index, _)| !section.contains(index)) {
            let lower = line.to_lowercase();
            let names = || line.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-'));
            // The first test is fast, and fails for nearly all lines.
            let found = |term: &Term| {
                term.words.iter().all(|word| lower.contains(word)) && names().any(|name| term.is_in(name))
            };
            for term in terms.iter().filter(|&term| found(term)) {
                let what = format!("`{}` is a term that the glossary of {DOCUMENT} excludes", term.text);
                let remedy = format!("use the term \"{}\"", term.instead);
                findings.push(Finding::new(file, index + 1, "glossary", what, remedy));
            }
        }
    }
    findings
}

/// The lines of the glossary, from 0.
fn section_of(document: &File) -> std::ops::Range<usize> {
    let mut lines = document.text.lines().enumerate().skip_while(|(_, line)| *line != HEADING);
    let Some((start, _)) = lines.next() else { return 0..0 };
    let end = lines.find(|(_, line)| line.starts_with("## ")).map(|(index, _)| index);
    start..end.unwrap_or_else(|| document.text.lines().count())
}

/// Reads the table: the term, its meaning, and in code spans what is not to be used in its place.
fn terms_of(document: &File, findings: &mut Vec<Finding>) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    let section = section_of(document);
    let rows = document.text.lines().enumerate().skip(section.start).take(section.len());
    for (index, line) in rows.filter(|(_, line)| line.starts_with('|')) {
        let line = line.strip_prefix('|').unwrap_or(line);
        let line = line.strip_suffix('|').unwrap_or(line);
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [term, _, excluded] = cells[..] else {
            let what = format!("a row of the glossary has {} cells", cells.len());
            findings.push(Finding::new(
                document,
                index + 1,
                "glossary",
                what,
                "write term, meaning, exclusions",
            ));
            continue;
        };
        terms.extend(excluded.split('`').skip(1).step_by(2).map(|text| Term::new(text, term)));
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOSSARY: &str = "# A\n\n## Glossary\n\n| term | meaning | not |\n|---|---|---|\n| new name | x | `old-name`, \
                            `Older` |\n| other | y | |\n\n## B\n";

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let findings = check(&[file(DOCUMENT, GLOSSARY), file(path, text)]);
        findings.iter().map(|finding| (finding.line, finding.to_string())).collect()
    }

    #[test]
    fn excluded_terms_are_found_in_code_and_documents() {
        for name in
            ["old-name", "old_name", "OldName", "the_old_names", "TheOldNameOfIt", "OLD_NAME", "oldName"]
        {
            for path in ["docs/a.md", "crates/a/src/b.rs", "examples/a.toml"] {
                let found = found(path, &format!("a\n// x.{name}(y)\n"));
                assert_eq!(found.len(), 1, "{path} {name}");
                assert_eq!(found[0].0, 2);
                let expected = format!(
                    "{path}:2: `old-name` is a term that the glossary of ARCHITECTURE.md excludes; use the term \
                     \"new name\" [glossary]"
                );
                assert_eq!(found[0].1, expected);
            }
        }
    }

    #[test]
    fn other_names_are_free() {
        for name in
            ["old name", "new_name", "bold_name", "OldNames2", "oldname", "name_old", "other", "meaning"]
        {
            assert_eq!(found("docs/a.md", &format!("{name}\n")), [], "{name}");
        }
        assert_eq!(found("a.json", "old-name\n"), []);
    }

    #[test]
    fn terms_in_camel_case_leave_their_words_to_prose() {
        assert_eq!(found("a.rs", "older, an_older_one, OLDEST\n"), []);
        assert_eq!(found("a.rs", "struct Older;\n").len(), 1);
        assert_eq!(found("a.rs", "struct MuchOlders;\n").len(), 1);
    }

    #[test]
    fn the_glossary_may_name_what_it_excludes() {
        let document = |rest: &str| File { path: DOCUMENT.to_owned(), text: format!("{GLOSSARY}{rest}") };
        assert_eq!(check(&[document("")]), []);
        assert_eq!(check(&[document("\nold-name\n")]).len(), 1);
    }

    #[test]
    fn rows_have_three_cells() {
        let text = format!("{}\n", GLOSSARY.replace("| other | y | |", "| other | y |"));
        let found = check(&[File { path: DOCUMENT.to_owned(), text }]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 8);
    }
}
