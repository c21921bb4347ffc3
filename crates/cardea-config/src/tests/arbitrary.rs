//! Property tests: any file yields a configuration or a list of problems.

use proptest::prelude::*;

use super::{Fixture, LEAST};

/// Values of every kind, each valid in few positions.
const VALUES: &[&str] = &[
    "\"\"",
    "\"public\"",
    "\"off\"",
    "\"10s\"",
    "\"64KiB\"",
    "\"/{id}/{*rest}\"",
    "\"*.example.com\"",
    "\"https://example.com/%zz\"",
    "\"[::1]:80\"",
    "\"unix:/a\"",
    "\"sqlite:\"",
    "\"${NONE}\"",
    "\"${NONE:-7}\"",
    "\"${NONE:-true}\"",
    "\"\\u0000\\u00e9\"",
    "\"{request.host}}{\"",
    "-1",
    "0",
    "9223372036854775807",
    "99999999999999999999",
    "1.5",
    "nan",
    "true",
    "1979-05-27",
    "[]",
    "[1]",
    "[\"a\", 1, []]",
    "{}",
    "{ a = 1 }",
    "{ issuer = \"own\" }",
    "[{ issuer = \"own\" }, { issuer = 1 }]",
    "{ file = \"x\" }",
    "{ set = { a = \"b\", Host = \"c\" }, remove = [\"\"] }",
];

/// The remedy if the types refuse a value that the schema accepted.
const MISMATCH: &str = "see the reference of the configuration";

fn assert_sound(text: &str) {
    let fixture = Fixture::new(text);
    if let Err(problems) = fixture.load() {
        assert!(problems.iter().len() > 0, "{text}");
        for problem in problems.iter() {
            assert_ne!(problem.remedy, MISMATCH, "{problem}\n{text}");
            assert!(!problem.message.is_empty() && !problem.remedy.is_empty(), "{problem}");
            assert!(problem.line <= text.lines().count() + 1, "{problem}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_schema_takes_the_types_take(
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(VALUES)), 1..4),
    ) {
        let example = super::example::example();
        let mut lines: Vec<String> = example.lines().map(str::to_owned).collect();
        for (line, value) in changes {
            let line = line.get(&lines).clone();
            if let Some((key, _)) = line.split_once(" = ") && let Some(found) = lines.iter_mut().find(|other| **other == line) {
                *found = format!("{key} = {value}");
            }
        }
        assert_sound(&lines.join("\n"));
    }

    #[test]
    fn removed_lines_make_errors_or_a_configuration(removed in prop::collection::vec(any::<prop::sample::Index>(), 1..6)) {
        let example = super::example::example();
        let mut lines: Vec<&str> = example.lines().collect();
        for line in removed {
            lines.remove(line.index(lines.len()));
        }
        assert_sound(&lines.join("\n"));
    }

    #[test]
    fn no_text_makes_the_loader_panic(text in "\\PC*|([\\[\\]{}=\"'#.,\n a-c0-9$]){0,80}") {
        assert_sound(&text);
        assert_sound(&format!("{LEAST}\n{text}"));
    }
}
