//! Generates the reference page of functions from the table that the compiler uses.

use super::{
    functions::{FUNCTIONS, Function},
    types::Type,
};

/// The description of each function, by name. A test compares both tables.
const DOES: &[(&str, &str)] = &[
    ("size", "Characters of a text, items of a list, or members of a map."),
    ("type", "The type of a value."),
    ("dyn", "The value, whose type is then known only when the request is there."),
    (
        "int",
        "A whole number: what is behind the point is cut off; of a text, its digits; of a timestamp, seconds since 1970; of a duration, seconds.",
    ),
    ("uint", "A whole number that is not negative."),
    ("double", "A number with a fraction."),
    ("bool", "`true` or `false`, of a text."),
    ("string", "The value as a text."),
    ("timestamp", "A time, of RFC 3339 or in seconds since 1970."),
    ("duration", "A duration, as in `'1h30m'` or `'500ms'`."),
    ("contains", "Whether the text has the other one in it."),
    ("startsWith", "Whether the text begins with the other one."),
    ("endsWith", "Whether the text ends with the other one."),
    ("charAt", "The character at a place, counted from 0."),
    ("indexOf", "Where the other text begins first, from a place on; -1 where it is not there."),
    ("lastIndexOf", "Where the other text begins last, up to a place; -1 where it is not there."),
    ("lowerAscii", "The text with ASCII letters in lower case."),
    ("upperAscii", "The text with ASCII letters in upper case."),
    ("trim", "The text without white space at its ends."),
    ("reverse", "The text from its last character to its first."),
    ("substring", "The text from a place on, or between two places."),
    ("replace", "The text with one text in place of another, everywhere or so many times."),
    ("split", "The parts between separators, all or at most so many."),
    ("join", "The texts of a list, with a separator between them."),
    ("glob", "Whether the text fits a pattern in which `*` stands for any characters and `?` for one."),
    ("base64.encode", "Base64 of a text."),
    ("base64.decode", "The text that Base64 stands for."),
    ("base64url.encode", "Base64 with the alphabet for URLs, without padding."),
    ("base64url.decode", "The text that it stands for."),
    ("sha256", "SHA-256 in hexadecimal."),
    ("ip", "An IP address."),
    ("isIP", "Whether a text is an IP address."),
    ("isCIDR", "Whether a text is an address prefix."),
    ("cidr", "Address prefixes: `source.address in cidr('192.0.2.0/24', '2001:db8::/32')`."),
    ("containsIP", "Whether an address is in one of the prefixes; `address in prefixes` asks the same."),
    ("containsCIDR", "Whether all of the other prefixes are in one of these."),
    ("prefixLength", "How many leading bits the addresses of a prefix share."),
    ("family", "4 or 6."),
    ("isLoopback", "Whether the address is this machine's own."),
    ("isUnspecified", "Whether it is `0.0.0.0` or `::`."),
    (
        "isPrivate",
        "Whether it is of a private network or of one link (RFC 1918, RFC 3927, RFC 4193, RFC 4291).",
    ),
    ("getFullYear", "The year; in UTC, or in a time zone that is given, as for the parts below."),
    ("getMonth", "The month, from 0."),
    ("getDate", "The day of the month, from 1."),
    ("getDayOfMonth", "The day of the month, from 0."),
    ("getDayOfWeek", "The day of the week: 0 is Sunday."),
    ("getDayOfYear", "The day of the year, from 0."),
    ("getHours", "The hour; of a duration, its whole hours."),
    ("getMinutes", "The minute; of a duration, its whole minutes."),
    ("getSeconds", "The second; of a duration, its whole seconds."),
    ("getMilliseconds", "The milliseconds within the second; of a duration, likewise."),
];

/// The macros, which take the name of a variable, and `matches`.
const MACROS_DO: &[(&str, &str, &str)] = &[
    ("has", "has(attribute) → bool", "Whether an attribute, or a member of a map, is there."),
    (
        "all",
        "list.all(x, condition) → bool",
        "Whether the condition holds for every item; of a map, for every key.",
    ),
    ("exists", "list.exists(x, condition) → bool", "Whether it holds for one item at least."),
    ("exists_one", "list.exists_one(x, condition) → bool", "Whether it holds for exactly one item."),
    (
        "map",
        "list.map(x, value) → list",
        "The value for each item; with a condition before it, for those for which that holds.",
    ),
    ("filter", "list.filter(x, condition) → list", "The items for which the condition holds."),
];

/// `matches` is not in the table, because its pattern is compiled at compile time.
const MATCHES: (&str, &str) = (
    "string.matches(pattern) → bool",
    "Whether a regular expression fits anywhere in the text. The pattern is written in place, and is compiled when the configuration is loaded; it needs no time that grows faster than the text.",
);

/// A table of all functions, in Markdown.
#[must_use]
pub fn functions_markdown() -> String {
    let mut page = "| function | what it gives |\n|---|---|\n".to_owned();
    let mut row = |signatures: &str, does: &str| page.push_str(&format!("| {signatures} | {does} |\n"));
    for (_, signature, does) in MACROS_DO {
        row(&format!("`{signature}`"), does);
    }
    row(&format!("`{}`", MATCHES.0), MATCHES.1);
    let mut before: Option<&str> = None;
    for function in FUNCTIONS {
        let does = DOES.iter().find(|(name, _)| *name == function.name).map_or("", |(_, does)| does);
        // A function that is also a method is described once.
        let does = if before == Some(function.name) { "The same." } else { does };
        before = Some(function.name);
        row(&signatures(function), does);
    }
    page
}

/// The signatures of a function. Of those that only repeat arguments, the first and the last.
fn signatures(function: &Function) -> String {
    let one = |(of, kind): &(&[Type], Type)| {
        let names: Vec<String> = of.iter().map(Type::to_string).collect();
        let (target, arguments) = match (function.method, names.split_first()) {
            (true, Some((target, rest))) => (format!("{target}."), rest),
            _ => (String::new(), names.as_slice()),
        };
        format!("`{target}{}({}) → {kind}`", function.name, arguments.join(", "))
    };
    let shown: Vec<String> = match function.signatures {
        [first, second, .., last] if last.0.len() > 4 => {
            vec![one(first), one(second), "…".to_owned(), one(last)]
        }
        all => all.iter().map(one).collect(),
    };
    shown.join("<br>")
}

#[cfg(test)]
mod tests {
    use super::{super::check::MACROS, *};

    #[test]
    fn every_function_is_described_and_no_other() {
        for function in FUNCTIONS {
            assert!(DOES.iter().any(|(name, _)| *name == function.name), "{} lacks a text", function.name);
        }
        for (name, does) in DOES {
            assert!(FUNCTIONS.iter().any(|function| function.name == *name), "{name} is no function");
            assert!(does.ends_with('.') && !does.contains('|'), "{name}");
        }
        let macros: Vec<&str> = MACROS_DO.iter().map(|(name, ..)| *name).collect();
        assert_eq!(macros, MACROS);
    }
}
