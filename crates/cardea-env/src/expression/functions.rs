//! The functions: names, signatures and implementations.

use super::convert::{self, part};
use super::fault::FaultKind;
use super::meter::Meter;
use super::time::Part;
use super::types::Type::{
    self, Address, Bool, Double, Duration, Dyn, Int, List, Map, Name, Networks, Text, Time, Uint,
};
use super::{network, text};
use crate::value::Value;

/// The most arguments of a function, including the receiver of a method.
pub(super) const ARGUMENTS_MAX: usize = 8;

/// A function of expressions.
pub(super) struct Function {
    /// The name, with its group before a dot (`base64.encode`).
    pub(super) name: &'static str,
    /// Whether the first argument is the receiver of a method.
    pub(super) method: bool,
    pub(super) signatures: &'static [(&'static [Type], Type)],
    pub(super) call: for<'e> fn(&[Value<'e>], &Meter<'e>) -> Result<Value<'e>, FaultKind>,
}

macro_rules! function {
    ($name:literal, $method:literal, $call:expr, $([$($argument:ident),*] => $result:ident),+) => {
        Function { name: $name, method: $method, signatures: &[$((&[$($argument),*], $result)),+], call: $call }
    };
}

/// All functions except the macros and `matches`, whose pattern is compiled at compile time.
pub(super) static FUNCTIONS: &[Function] = &[
    function!("size", false, convert::size, [Text] => Int, [List] => Int, [Map] => Int),
    function!("size", true, convert::size, [Text] => Int, [List] => Int, [Map] => Int),
    function!("type", false, convert::type_of, [Dyn] => Name),
    function!("dyn", false, convert::dynamic, [Dyn] => Dyn),
    function!("int", false, convert::int, [Int] => Int, [Uint] => Int, [Double] => Int, [Text] => Int, [Time] => Int, [Duration] => Int),
    function!("uint", false, convert::uint, [Uint] => Uint, [Int] => Uint, [Double] => Uint, [Text] => Uint),
    function!("double", false, convert::double, [Double] => Double, [Int] => Double, [Uint] => Double, [Text] => Double),
    function!("bool", false, convert::bool, [Bool] => Bool, [Text] => Bool),
    function!("string", false, convert::string, [Text] => Text, [Bool] => Text, [Int] => Text, [Uint] => Text, [Double] => Text, [Time] => Text, [Duration] => Text, [Address] => Text, [Networks] => Text),
    function!("timestamp", false, convert::timestamp, [Time] => Time, [Text] => Time, [Int] => Time),
    function!("duration", false, convert::duration, [Duration] => Duration, [Text] => Duration),
    // Text.
    function!("contains", true, text::contains, [Text, Text] => Bool),
    function!("startsWith", true, text::starts_with, [Text, Text] => Bool),
    function!("endsWith", true, text::ends_with, [Text, Text] => Bool),
    function!("charAt", true, text::char_at, [Text, Int] => Text),
    function!("indexOf", true, text::index_of, [Text, Text] => Int, [Text, Text, Int] => Int),
    function!("lastIndexOf", true, text::last_index_of, [Text, Text] => Int, [Text, Text, Int] => Int),
    function!("lowerAscii", true, text::lower_ascii, [Text] => Text),
    function!("upperAscii", true, text::upper_ascii, [Text] => Text),
    function!("trim", true, text::trim, [Text] => Text),
    function!("reverse", true, text::reverse, [Text] => Text),
    function!("substring", true, text::substring, [Text, Int] => Text, [Text, Int, Int] => Text),
    function!("replace", true, text::replace, [Text, Text, Text] => Text, [Text, Text, Text, Int] => Text),
    function!("split", true, text::split, [Text, Text] => List, [Text, Text, Int] => List),
    function!("join", true, text::join, [List] => Text, [List, Text] => Text),
    function!("glob", true, text::glob, [Text, Text] => Bool),
    // Encodings.
    function!("base64.encode", false, convert::encode, [Text] => Text),
    function!("base64.decode", false, convert::decode, [Text] => Text),
    function!("base64url.encode", false, convert::encode_url, [Text] => Text),
    function!("base64url.decode", false, convert::decode_url, [Text] => Text),
    function!("sha256", false, convert::sha256, [Text] => Text),
    // Addresses.
    function!("ip", false, network::ip, [Text] => Address, [Address] => Address),
    function!("isIP", false, network::is_ip, [Text] => Bool),
    function!("isCIDR", false, network::is_cidr, [Text] => Bool),
    function!("cidr", false, network::cidr,
        [Networks] => Networks, [Text] => Networks, [Text, Text] => Networks, [Text, Text, Text] => Networks,
        [Text, Text, Text, Text] => Networks, [Text, Text, Text, Text, Text] => Networks,
        [Text, Text, Text, Text, Text, Text] => Networks, [Text, Text, Text, Text, Text, Text, Text] => Networks,
        [Text, Text, Text, Text, Text, Text, Text, Text] => Networks),
    function!("containsIP", true, network::contains_ip, [Networks, Address] => Bool, [Networks, Text] => Bool),
    function!("containsCIDR", true, network::contains_cidr, [Networks, Networks] => Bool, [Networks, Text] => Bool),
    function!("prefixLength", true, network::prefix_length, [Networks] => Int),
    function!("family", true, network::family, [Address] => Int),
    function!("isLoopback", true, network::is_loopback, [Address] => Bool),
    function!("isUnspecified", true, network::is_unspecified, [Address] => Bool),
    function!("isPrivate", true, network::is_private, [Address] => Bool),
    // Time.
    function!("getFullYear", true, |v, _| part(Part::FullYear, v), [Time] => Int, [Time, Text] => Int),
    function!("getMonth", true, |v, _| part(Part::Month, v), [Time] => Int, [Time, Text] => Int),
    function!("getDate", true, |v, _| part(Part::Date, v), [Time] => Int, [Time, Text] => Int),
    function!("getDayOfMonth", true, |v, _| part(Part::DayOfMonth, v), [Time] => Int, [Time, Text] => Int),
    function!("getDayOfWeek", true, |v, _| part(Part::DayOfWeek, v), [Time] => Int, [Time, Text] => Int),
    function!("getDayOfYear", true, |v, _| part(Part::DayOfYear, v), [Time] => Int, [Time, Text] => Int),
    function!("getHours", true, |v, _| part(Part::Hours, v), [Time] => Int, [Time, Text] => Int, [Duration] => Int),
    function!("getMinutes", true, |v, _| part(Part::Minutes, v), [Time] => Int, [Time, Text] => Int, [Duration] => Int),
    function!("getSeconds", true, |v, _| part(Part::Seconds, v), [Time] => Int, [Time, Text] => Int, [Duration] => Int),
    function!("getMilliseconds", true, |v, _| part(Part::Milliseconds, v), [Time] => Int, [Time, Text] => Int, [Duration] => Int),
];

/// The names of types, which are values too.
pub(super) fn type_named(name: &str) -> Option<&'static str> {
    const NAMES: [Type; 11] = [Bool, Int, Uint, Double, Text, List, Map, Type::Null, Name, Duration, Time];
    NAMES.iter().map(|known| known.name()).find(|known| *known == name)
}
