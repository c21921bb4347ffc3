//! Generates the reference page of functions from the table that the compiler uses.

use super::{
    functions::{FUNCTIONS, Function},
    types::Type,
};

/// The description of each function, by name. A test compares both tables.
const DOES: &[(&str, &str)] = &[
    ("size", "The number of characters of a string, items of a list, or members of a map."),
    ("type", "The type of a value."),
    ("dyn", "The value with a dynamic type, which is checked only at evaluation."),
    (
        "int",
        "An integer: a number without its fraction, the number in a string, the seconds of a timestamp since 1970, or \
         the seconds of a duration.",
    ),
    ("uint", "An unsigned integer."),
    ("double", "A floating-point number."),
    ("bool", "`true` or `false`, from a string."),
    ("string", "The value as a string."),
    ("timestamp", "A time, from RFC 3339 or seconds since 1970."),
    ("duration", "A duration, such as `'1h30m'` or `'500ms'`."),
    ("contains", "Whether the string contains the other one."),
    ("startsWith", "Whether the string starts with the other one."),
    ("endsWith", "Whether the string ends with the other one."),
    ("charAt", "The character at an index, counted from 0."),
    (
        "indexOf",
        "The index of the first occurrence of the other string, optionally from an index; -1 if there is none.",
    ),
    (
        "lastIndexOf",
        "The index of the last occurrence of the other string, optionally up to an index; -1 if there is \
         none.",
    ),
    ("lowerAscii", "The string with ASCII letters in lower case."),
    ("upperAscii", "The string with ASCII letters in upper case."),
    ("trim", "The string without leading and trailing white space."),
    ("reverse", "The string in reverse."),
    ("substring", "The part of the string from an index, or between two indices."),
    ("replace", "The string with a string replaced by another, everywhere or at most this many times."),
    ("split", "The parts between separators, all or at most this many."),
    ("join", "The strings of a list, joined with an optional separator."),
    ("glob", "Whether the string matches a pattern in which `*` matches any characters and `?` one."),
    ("base64.encode", "The string in Base64."),
    ("base64.decode", "The decoded string."),
    ("base64url.encode", "The string in Base64 with the URL alphabet, without padding."),
    ("base64url.decode", "The decoded string."),
    ("sha256", "SHA-256 of the string, in hexadecimal."),
    ("ip", "An IP address."),
    ("isIP", "Whether a string is an IP address."),
    ("isCIDR", "Whether a string is an address prefix."),
    ("cidr", "Address prefixes: `source.address in cidr('192.0.2.0/24', '2001:db8::/32')`."),
    ("containsIP", "Whether an address is in one of the prefixes; the same as `address in prefixes`."),
    ("containsCIDR", "Whether each of the other prefixes is in one of these."),
    ("prefixLength", "The length of the prefix in bits."),
    ("family", "The IP version: 4 or 6."),
    ("isLoopback", "Whether it is a loopback address."),
    ("isUnspecified", "Whether it is `0.0.0.0` or `::`."),
    ("isPrivate", "Whether it is a private or link-local address (RFC 1918, RFC 3927, RFC 4193, RFC 4291)."),
    ("getFullYear", "The year, in UTC or in the given time zone, as for all parts below."),
    ("getMonth", "The month, from 0."),
    ("getDate", "The day of the month, from 1."),
    ("getDayOfMonth", "The day of the month, from 0."),
    ("getDayOfWeek", "The day of the week: 0 is Sunday."),
    ("getDayOfYear", "The day of the year, from 0."),
    ("getHours", "The hour, or the whole hours of a duration."),
    ("getMinutes", "The minute, or the whole minutes of a duration."),
    ("getSeconds", "The second, or the whole seconds of a duration."),
    ("getMilliseconds", "The milliseconds within the second."),
];

/// The macros, which take the name of a variable, and `matches`.
const MACROS_DO: &[(&str, &str, &str)] = &[
    ("has", "has(attribute) → bool", "Whether an attribute or a member of a map is present."),
    (
        "all",
        "list.all(x, condition) → bool",
        "Whether the condition is true for every item of a list or key of a map.",
    ),
    ("exists", "list.exists(x, condition) → bool", "Whether it is true for at least one item."),
    ("exists_one", "list.exists_one(x, condition) → bool", "Whether it is true for exactly one item."),
    (
        "map",
        "list.map(x, value) → list",
        "The value for each item; with a condition before it, only for items for which that is true.",
    ),
    ("filter", "list.filter(x, condition) → list", "The items for which the condition is true."),
];

/// `matches` is not in the table, because its pattern is compiled at compile time.
const MATCHES: (&str, &str) = (
    "string.matches(pattern) → bool",
    "Whether a regular expression matches anywhere in the string, in linear time. The pattern is a literal and is \
     compiled when the configuration is loaded.",
);

/// A table of all functions, in Markdown.
#[must_use]
pub fn functions_markdown() -> String {
    let mut page = "| function | result |\n|---|---|\n".to_owned();
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
