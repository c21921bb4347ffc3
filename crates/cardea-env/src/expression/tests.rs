//! Tests of expressions: tables of values, faults and compile errors.

use super::*;
use crate::testing::{Request, names, request};
use crate::{Owned, ValueSource, json};

/// The value of an expression as JSON; a fault as `!` and its kind.
fn evaluate_for(text: &str, request: &Request) -> String {
    let expression = match Expression::compile(text, &names()) {
        Ok(expression) => expression,
        Err(error) => return format!("? {error}"),
    };
    let scratch = Scratch::new();
    match expression.evaluate(request, &scratch) {
        Err(fault) => format!("!{:?}", fault.kind),
        Ok(Value::Uint(number)) => format!("{number}u"),
        Ok(Value::Type(name)) => format!("type {name}"),
        Ok(Value::Double(number)) => format!("{number:?}"),
        Ok(value) => {
            let mut out = Vec::new();
            crate::write::push_json_value(value, None, crate::value::format::Unit::Seconds, &mut out);
            String::from_utf8(out).unwrap()
        }
    }
}

#[track_caller]
fn gives(cases: &[(&str, &str)]) {
    let request = request();
    let wrong: Vec<String> = cases
        .iter()
        .map(|(text, expected)| (text, expected, evaluate_for(text, &request)))
        .filter(|(_, expected, found)| found != *expected)
        .map(|(text, expected, found)| format!("{text}\n    expected {expected}\n    found    {found}"))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn literals() {
    gives(&[
        ("1", "1"),
        ("-1", "-1"),
        ("- 1", "-1"),
        ("--1", "1"),
        ("0x1F", "31"),
        ("-0x10", "-16"),
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("18446744073709551615u", "18446744073709551615u"),
        ("7U", "7u"),
        ("1.5", "1.5"),
        (".5", "0.5"),
        ("1e3", "1000.0"),
        ("-1.5E-1", "-0.15"),
        ("true", "true"),
        ("null", "null"),
        ("'a'", "\"a\""),
        ("\"a'b\"", "\"a'b\""),
        ("'a' // comment\n + 'b'", "\"ab\""),
        (r"'\x41\u00e9\U0001F600\101\n'", "\"Aé😀A\\n\""),
        (r#"'\a\b\f\v\\\?\"\'\`'"#, "\"\\u0007\\u0008\\u000c\\u000b\\\\?\\\"'`\""),
        (r"r'\n'", r#""\\n""#),
        ("'''a'b\nc'''", "\"a'b\\nc\""),
        ("r\"\"\"a\"\"\"", "\"a\""),
        ("''", "\"\""),
        ("[1, 'a', [true],]", "[1,\"a\",[true]]"),
        ("[]", "[]"),
        ("{'a': 1, 'b': [2],}", "{\"a\":1,\"b\":[2]}"),
        ("{}", "{}"),
    ]);
}

#[test]
fn arithmetic_does_not_wrap_or_convert() {
    gives(&[
        ("1 + 2 * 3 - 4", "3"),
        ("(1 + 2) * 3", "9"),
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("-7 % 3", "-1"),
        ("7u / 2u", "3u"),
        ("1.5 * 2.0", "3.0"),
        ("1.0 / 0.0 > 1e300", "true"),
        ("1 / 0", "!DivisionByZero"),
        ("1u % 0u", "!DivisionByZero"),
        ("9223372036854775807 + 1", "!Overflow"),
        ("-9223372036854775808 - 1", "!Overflow"),
        ("-9223372036854775808 / -1", "!Overflow"),
        ("-9223372036854775808 % -1", "!Overflow"),
        ("-(-9223372036854775808)", "!Overflow"),
        ("9223372036854775807 * 2", "!Overflow"),
        ("1u - 2u", "!Overflow"),
        ("18446744073709551615u + 1u", "!Overflow"),
        ("dyn(1) + 1u", "!Type"),
        ("dyn(1) + 1.0", "!Type"),
        ("dyn('1') + 1", "!Type"),
        ("'a' + 'b'", "\"ab\""),
        ("[1] + [2]", "[1,2]"),
        ("-dyn('a')", "!Type"),
    ]);
}

#[test]
fn numbers_of_all_types_compare_as_numbers() {
    gives(&[
        ("1 == 1.0", "true"),
        ("1u == 1", "true"),
        ("1u == 1.5", "false"),
        ("-1 < 1u", "true"),
        ("18446744073709551615u > 9223372036854775807", "true"),
        ("9007199254740993 == 9007199254740992.0", "false"),
        ("9007199254740993 > 9007199254740992.0", "true"),
        ("9223372036854775807 < 9223372036854775808.0", "true"),
        ("1 < 1.5 && 1.5 < 2 && -1.5 < -1 && -2 < -1.5", "true"),
        ("double('NaN') == double('NaN')", "false"),
        ("double('NaN') < 1", "false"),
        ("double('NaN') != 1", "true"),
        ("'a' < 'b' && 'a' < 'aa'", "true"),
        ("false < true", "true"),
        ("dyn(1) < 'a'", "!Type"),
        ("dyn(1) == 'a'", "false"),
        ("null == null", "true"),
        ("dyn('a') != null", "true"),
        ("[1, 2.0] == [1.0, 2]", "true"),
        ("[1] == [1, 2]", "false"),
        ("{'a': 1} == {'a': 1u}", "true"),
        ("{'a': 1} == {'b': 1}", "false"),
        ("dyn([1]) == {'a': 1}", "false"),
        ("type(1) == int && type('a') == string && type(1u) != int", "true"),
        ("type(null)", "type null_type"),
        ("type(token.claims.level) == int", "true"),
    ]);
}

#[test]
fn a_term_that_decides_outdoes_faults() {
    gives(&[
        ("true || 1 / 0 == 1", "true"),
        ("1 / 0 == 1 || true", "true"),
        ("1 / 0 == 1 || false", "!DivisionByZero"),
        ("false && 1 / 0 == 1", "false"),
        ("1 / 0 == 1 && false", "false"),
        ("1 / 0 == 1 && true", "!DivisionByZero"),
        ("dyn(1) && false", "false"),
        ("dyn(1) && true", "!NotBool"),
        ("true ? 1 : 1 / 0", "1"),
        ("false ? 1 / 0 : 2", "2"),
        ("dyn(1) ? 1 : 2", "!NotBool"),
        ("1 / 0 == 1 ? 1 : 2", "!DivisionByZero"),
        ("!true", "false"),
        ("!!true", "true"),
        ("!dyn(1)", "!Type"),
        ("true && true && (false || true)", "true"),
    ]);
}

#[test]
fn attributes_claims_and_headers() {
    gives(&[
        ("request.path", "\"/api/v1/orders\""),
        ("request.method == 'GET' && request.id == '01jd'", "true"),
        ("request.headers.host", "\"example.com\""),
        ("request.headers['X-Tenant']", "\"acme\""),
        ("request.headers['x.y']", "\"dot\""),
        ("request.headers['x-' + 'tenant']", "\"acme\""),
        ("request.headers.none", "!Absent"),
        ("request.headers['x-' + 'none']", "!Absent"),
        ("has(request.headers.none)", "false"),
        ("has(request.headers['x-tenant'])", "true"),
        ("has(request.headers)", "true"),
        ("'x-tenant' in request.headers", "true"),
        ("'none' in request.headers", "false"),
        ("size(request.headers)", "4"),
        ("request.headers.exists(name, name.startsWith('x-'))", "true"),
        ("token.sub", "\"ada\""),
        ("token.claims.level >= 3", "true"),
        ("token.claims.level + 1", "4"),
        ("token.claims.score * 2.0", "5.0"),
        ("token.claims.big == 18446744073709551615u", "true"),
        ("'admin' in token.claims.realm_access.roles", "true"),
        ("'admin' in token.claims['realm_access']['roles']", "true"),
        ("token.claims.realm_access.roles[1]", "\"ops\""),
        ("token.claims.realm_access.roles[2]", "!Absent"),
        ("token.claims.realm_access.roles[-1]", "!Absent"),
        ("token.claims['a.b']", "\"dotted\""),
        ("token.claims['https://example.com/role'] == 'chief'", "true"),
        ("token.claims.nothing == null", "true"),
        ("has(token.claims.nothing)", "true"),
        ("has(token.claims.none)", "false"),
        ("has(token.claims.realm_access.roles)", "true"),
        ("has(token.claims.realm_access.none)", "false"),
        ("has(token.claims.none.none)", "!Absent"),
        ("has(token.claims.level.none)", "!Type"),
        ("token.claims.level.none", "!Type"),
        ("'admin' in token.claims.level", "!Type"),
        ("token.claims.admin && token.claims.level > 1", "true"),
        ("token.claims.amr[2].x[0]", "1"),
        ("'read' in token.claims.scope.split(' ')", "true"),
        ("type(token.claims.amr)", "type list"),
        (".request.path", "\"/api/v1/orders\""),
        ("{1: 'a', 2u: 'b', true: 'c'}[2]", "\"b\""),
        ("{'a': 1}.a", "1"),
        ("{'a': 1}.b", "!Absent"),
        ("{'a': 1, 'a': 2}", "!Key"),
        ("[1, 2][1.0]", "2"),
        ("dyn([1])['a']", "!Type"),
    ]);
    let mut none = request();
    none.claims = None;
    for (text, expected) in [
        ("token.sub == 'ada'", "!Absent"),
        ("has(token.sub)", "false"),
        ("has(token.claims)", "false"),
        ("has(token.claims.level)", "false"),
        ("token.claims.level > 1", "!Absent"),
        ("has(token.sub) && token.sub == 'ada'", "false"),
        ("!has(token.sub) || token.sub == 'ada'", "true"),
    ] {
        assert_eq!(evaluate_for(text, &none), expected, "{text}");
    }
}

#[test]
fn changes_of_the_request_are_read() {
    let mut request = request();
    let names = names();
    request.overrides.remove(&names.resolve("request.headers.x-tenant").unwrap()).unwrap();
    request.overrides.set(&names.resolve("request.path").unwrap(), Owned::text("/new")).unwrap();
    request.overrides.remove(&names.resolve("token.claims.level").unwrap()).unwrap();
    for (text, expected) in [
        ("has(request.headers['x-tenant'])", "false"),
        ("request.headers['X-' + 'Tenant']", "!Absent"),
        ("'x-tenant' in request.headers", "false"),
        ("request.headers.all(name, name != 'x-tenant')", "true"),
        ("request.path", "\"/new\""),
        ("token.claims.level", "!Absent"),
        ("'level' in token.claims", "false"),
        ("has(token.claims.admin)", "true"),
    ] {
        assert_eq!(evaluate_for(text, &request), expected, "{text}");
    }
}

#[test]
fn macros_go_through_items_and_keys() {
    gives(&[
        ("[1, 2, 3].all(x, x > 0)", "true"),
        ("[1, 2, 3].all(x, x > 1)", "false"),
        ("[].all(x, x > 1)", "true"),
        ("[].exists(x, true)", "false"),
        ("[1, 2].exists(x, x == 2)", "true"),
        ("[0, 1].exists(x, 1 / x == 1)", "true"),
        ("[0, 2].exists(x, 1 / x == 1)", "!DivisionByZero"),
        ("[0, 2].all(x, 1 / x == 1)", "false"),
        ("[0, 1].all(x, 1 / x == 1)", "!DivisionByZero"),
        ("[1, 2, 2].exists_one(x, x == 2)", "false"),
        ("[1, 2, 3].exists_one(x, x == 2)", "true"),
        ("[0, 1].exists_one(x, 1 / x == 1)", "!DivisionByZero"),
        ("[1, 2, 3].map(x, x * 2)", "[2,4,6]"),
        ("[1, 2, 3].map(x, x > 1, x * 2)", "[4,6]"),
        ("[1, 2, 3].filter(x, x > 1)", "[2,3]"),
        ("[1, 2].map(x, [3, 4].map(y, x * y))", "[[3,4],[6,8]]"),
        ("[1, 2].map(x, [x].map(x, x + 1))", "[[2],[3]]"),
        ("{'a': 1, 'b': 2}.filter(k, k != 'a')", "[\"b\"]"),
        ("[1].exists(x, x)", "!NotBool"),
        ("dyn(1).exists(x, true)", "!Type"),
        ("token.claims.amr.exists(a, a == 'pwd')", "true"),
        ("[1].map(request, request)", "[1]"),
        ("[{'path': 1}].map(request, request.path)", "[1]"),
    ]);
}

#[test]
fn text() {
    gives(&[
        ("size('añ☃😀')", "4"),
        ("'añ☃'.size()", "3"),
        ("'hello'.contains('ell') && 'a'.contains('')", "true"),
        ("'hello'.startsWith('he') && 'hello'.endsWith('lo')", "true"),
        ("'añ☃'.charAt(2)", "\"☃\""),
        ("'a'.charAt(1)", "\"\""),
        ("dyn('a').charAt(2)", "!Range"),
        ("dyn('a').charAt(-1)", "!Range"),
        ("'ñaña'.indexOf('a')", "1"),
        ("'ñaña'.indexOf('a', 2)", "3"),
        ("'a'.indexOf('x')", "-1"),
        ("'abc'.indexOf('', 3)", "3"),
        ("'ñaña'.lastIndexOf('ñ')", "2"),
        ("'ñaña'.lastIndexOf('ñ', 1)", "0"),
        ("'abab'.lastIndexOf('ab', 2)", "2"),
        ("'ÀB'.lowerAscii() + 'àb'.upperAscii()", "\"ÀbàB\""),
        ("' \\t a \\n'.trim()", "\"a\""),
        ("'añ'.reverse()", "\"ña\""),
        ("'tacocat'.substring(4)", "\"cat\""),
        ("'ñandú'.substring(1, 4)", "\"and\""),
        ("dyn('abc').substring(2, 1)", "!Range"),
        ("dyn('abc').substring(4)", "!Range"),
        ("'hello hello'.replace('he', 'we')", "\"wello wello\""),
        ("'hello hello'.replace('he', 'we', 1)", "\"wello hello\""),
        ("'hello'.replace('l', '', 0)", "\"hello\""),
        ("'añ'.replace('', '-')", "\"-a-ñ-\""),
        ("'a,b,c'.split(',')", "[\"a\",\"b\",\"c\"]"),
        ("'a,b,c'.split(',', 2)", "[\"a\",\"b,c\"]"),
        ("'a,b'.split(',', 0)", "[]"),
        ("'a,b'.split(',', 1)", "[\"a,b\"]"),
        ("'añ'.split('')", "[\"a\",\"ñ\"]"),
        ("''.split(',')", "[\"\"]"),
        ("['a', 'b'].join('-') + ['a', 'b'].join()", "\"a-bab\""),
        ("dyn(['a', 1]).join()", "!Type"),
        ("request.path.matches('^/api/v[0-9]+/') && matches(request.path, 'orders$')", "true"),
        ("'ñ'.matches('^.$')", "true"),
        ("request.id.substring(1) == '1jd' && request.id.size() == 4", "true"),
    ]);
}

#[test]
fn globs() {
    for (pattern, text, expected) in [
        ("/api/*/orders", "/api/v1/orders", true),
        ("/api/*/orders", "/api/v1/x/orders", false),
        ("/api/**", "/api/v1/x", true),
        ("/api/**/x", "/api/x", false),
        ("/api/**x", "/api/x", true),
        ("*.example.com", "a.b.example.com", true),
        ("*.example.com", "example.com", false),
        ("a?c", "abc", true),
        ("a?c", "a☃c", true),
        ("a?c", "a/c", false),
        ("a?", "a", false),
        ("??", "☃", false),
        ("*☃*", "a☃b", true),
        ("a\\*", "a*", true),
        ("a\\*", "ab", false),
        ("", "", true),
        ("*", "", true),
        ("", "a", false),
        ("**a**a**a**a**b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
    ] {
        let expression = format!("{text:?}.glob({:?})", pattern);
        assert_eq!(evaluate_for(&expression, &request()), expected.to_string(), "{expression}");
    }
}

#[test]
fn conversions_are_asked_for() {
    gives(&[
        ("int('42') + int(1u) + int(2.9) + int(-2.9)", "43"),
        ("int('0x10')", "? `int`: not in the required format"),
        ("int(dyn('+1'))", "!Form"),
        ("int(1e19)", "? `int`: the result does not fit"),
        ("int(dyn(18446744073709551615u))", "!Overflow"),
        ("uint(dyn(-1))", "!Overflow"),
        ("uint(dyn(-0.5))", "!Overflow"),
        ("uint(1.9) == 1u", "true"),
        ("uint('7')", "7u"),
        ("double('1.5') + double(1)", "2.5"),
        ("double(dyn('inf'))", "!Form"),
        ("string(1) + string(1u) + string(1.5) + string(true)", "\"111.5true\""),
        ("string(duration('1h30m0.5s'))", "\"5400.5s\""),
        ("string(timestamp('2024-02-29T12:00:00.120+01:00'))", "\"2024-02-29T11:00:00.12Z\""),
        ("string(source.address)", "\"10.1.2.3\""),
        ("string(dyn([1]))", "!Type"),
        ("bool('true') && !bool('0')", "true"),
        ("bool(dyn('yes'))", "!Form"),
        ("int(timestamp('1970-01-01T00:01:00Z'))", "60"),
        ("base64.encode('añ') + base64.decode('Yc Ox'.replace(' ', ''))", "\"YcOxañ\""),
        ("base64.decode('aGk') + base64.decode('aGk=')", "\"hihi\""),
        ("base64.decode(dyn('a'))", "!Form"),
        ("base64url.encode('\\u00ff\\u00fe?') + base64url.decode('aGk')", "\"w7_Dvj8hi\""),
        ("sha256('abc')", "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\""),
    ]);
}

#[test]
fn time() {
    gives(&[
        (
            "request.time.getFullYear() * 10000 + request.time.getMonth() * 100 + request.time.getDate()",
            "20240129",
        ),
        ("request.time.getDayOfMonth()", "28"),
        ("request.time.getDayOfWeek()", "4"),
        ("request.time.getDayOfYear()", "59"),
        (
            "request.time.getHours() * 10000 + request.time.getMinutes() * 100 + request.time.getSeconds()",
            "131415",
        ),
        ("request.time.getMilliseconds()", "678"),
        ("request.time.getHours('+11:00')", "0"),
        ("request.time.getDate('+11:00')", "1"),
        ("request.time.getHours('-13:15')", "23"),
        ("request.time.getHours('UTC')", "13"),
        ("request.time.getHours(dyn('Mars/Olympus'))", "!Form"),
        ("request.time > timestamp('2024-02-29T13:14:15Z')", "true"),
        ("request.time - timestamp('2024-02-29T00:00:00Z') > duration('13h')", "true"),
        ("timestamp('2024-02-29T00:00:00Z') - request.time < duration('0')", "true"),
        ("timestamp('2024-02-28T23:00:00Z') + duration('2h') == timestamp('2024-02-29T01:00:00Z')", "true"),
        ("timestamp('2024-02-28T24:00:00Z')", "? `timestamp`: not in the required format"),
        ("timestamp(dyn('2023-02-29T00:00:00Z'))", "!Form"),
        ("timestamp(dyn('9999-01-01T00:00:00Z'))", "!Form"),
        ("timestamp(60) == timestamp('1970-01-01T00:01:00Z')", "true"),
        ("request.duration < duration('2s') && request.duration == duration('1500ms')", "true"),
        ("duration('1h30m').getMinutes()", "90"),
        ("duration('-1.5h').getHours()", "-1"),
        ("duration('123.321s').getMilliseconds()", "321"),
        ("duration('1.000000001s') - duration('1s') == duration('1ns')", "true"),
        ("duration('1us') == duration('1µs')", "true"),
        ("duration(dyn('1'))", "!Form"),
        ("duration(dyn('s'))", "!Form"),
        ("duration(dyn('1.2.3s'))", "!Form"),
        ("duration(dyn('300000000h'))", "!Form"),
        ("-duration('1s') < duration('0s')", "true"),
        ("timestamp(dyn('2262-04-11T00:00:00Z')) + duration('48h')", "!Overflow"),
    ]);
}

#[test]
fn networks() {
    gives(&[
        ("source.address in cidr('10.0.0.0/8')", "true"),
        ("source.address in cidr('192.168.0.0/16', '10.1.0.0/16')", "true"),
        ("source.address in cidr('192.168.0.0/16')", "false"),
        ("source.address == ip('10.1.2.3')", "true"),
        ("source.address in [ip('10.1.2.3'), ip('::1')]", "true"),
        ("ip('::ffff:10.1.2.3') in cidr('10.0.0.0/8')", "true"),
        ("ip('::ffff:10.1.2.3') == source.address", "true"),
        ("ip('2001:db8::1') in cidr('2001:db8::/32')", "true"),
        ("ip('2001:db8::1') in cidr('0.0.0.0/0')", "false"),
        ("ip('10.0.0.1') in cidr('0.0.0.0/0', '::/0')", "true"),
        (
            "cidr('10.0.0.0/8').containsIP(source.address) && cidr('10.0.0.0/8').containsIP('10.0.0.1')",
            "true",
        ),
        (
            "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))",
            "true",
        ),
        ("cidr('10.0.0.0/8').prefixLength()", "8"),
        ("isIP('10.0.0.1') && !isIP('10.0.0.0/8') && isCIDR('10.0.0.0/8')", "true"),
        ("source.address.family()", "4"),
        ("source.address.isPrivate() && !source.address.isLoopback() && ip('::1').isLoopback()", "true"),
        ("ip(dyn('10.0.0'))", "!Form"),
        ("cidr('10.1.2.3/8')", "? `cidr`: not in the required format"),
        ("dyn('10.1.2.3') in cidr('10.0.0.0/8')", "!Type"),
        ("cidr(request.path)", "!Form"),
    ]);
}

#[test]
fn compile_errors_have_a_location_and_a_suggestion() {
    let cases: &[(&str, usize, &str, Option<&str>)] = &[
        ("", 0, "incomplete", None),
        ("1 +", 3, "incomplete", None),
        ("request.pth == '/'", 0, "unknown attribute \"request.pth\"", Some("request.path")),
        ("true && reqest.path == '/'", 8, "unknown attribute", Some("request.path")),
        ("token.clams.level > 1", 0, "unknown attribute", Some("token.claims.level")),
        ("request.path.startWith('/')", 13, "unknown function \"startWith\"", Some("startsWith")),
        ("siz('a')", 0, "unknown function", Some("size")),
        ("request.path.size(1)", 13, "`size` takes 0 arguments, not 1", None),
        ("startsWith('a', 'b')", 0, "is called on a value", None),
        ("'a'.int()", 4, "takes its value in parentheses", None),
        ("request.path > 1", 13, "no `>` between values of type string and int", None),
        ("response.status == '200'", 16, "no implicit conversion", None),
        ("source.address == '10.0.0.1'", 15, "ip(", None),
        ("source.address in [cidr('10.0.0.0/8')]", 19, "in cidr(", None),
        ("source.address in ['10.0.0.1']", 19, "ip(", None),
        ("request.duration > '1s'", 17, "duration(", None),
        ("request.path.foo", 0, "type string has no member `foo`", None),
        ("request.path && true", 0, "must be true or false", None),
        ("request.path ? 1 : 2", 0, "must be true or false", None),
        ("request.path[0]", 12, "has no items", None),
        ("-request.path", 0, "no `-`", None),
        ("request", 0, "unknown attribute", None),
        ("request.headers['a b']", 16, "not the name of a header", None),
        ("a = 1", 2, "the expression ends before this", None),
        ("1 | 2", 2, "ends before this", None),
        ("(1", 2, "expected `)`", None),
        ("[1", 2, "expected `]`", None),
        ("'abc", 0, "unterminated", None),
        ("'\\q'", 1, "an unknown escape", None),
        ("'\\ud800'", 1, "names no character", None),
        ("b'abc'", 0, "no literals of bytes", None),
        ("9223372036854775808", 0, "does not fit into 64 bits", None),
        ("99999999999999999999", 0, "too large", None),
        ("1x", 0, "followed by a letter", None),
        ("for == 1", 0, "reserved", None),
        ("Type{a: 1}", 0, "no messages", None),
        ("#", 0, "begins nothing", None),
        ("[1].all(x)", 4, "takes a variable", None),
        ("[1].all(1, true)", 8, "the name of a variable", None),
        ("has(1)", 0, "`has` takes", None),
        ("has(request.path, 1)", 0, "`has` takes one", None),
        ("'a'.matches('(')", 12, "the pattern does not compile", None),
        ("'a'.matches(request.path)", 12, "must be a literal", None),
        ("'a'.matches('(a{1000}){1000}')", 12, "the pattern does not compile", None),
        ("'a'.matches(base64.decode('/w=='))", 19, "the pattern is not UTF-8", None),
        ("timestamp('x')", 0, "not in the required format", None),
        ("é", 0, "begins nothing", None),
    ];
    for (text, position, message, suggestion) in cases {
        let error = Expression::compile(text, &names()).unwrap_err();
        assert!(error.message.contains(message), "{text}: {error}");
        assert_eq!(error.position, *position, "{text}: {error}");
        assert_eq!(error.suggestion.as_deref(), *suggestion, "{text}: {error}");
    }
}

#[test]
fn depth_and_length_have_limits() {
    let compile = |text: &str| Expression::compile(text, &names());
    let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(compile(&nested(50)).is_ok());
    for text in [
        nested(10_000),
        "[".repeat(5_000),
        "!".repeat(5_000) + "true",
        "-".repeat(5_000) + "1",
        "1+".repeat(5_000) + "1",
        "a.".repeat(5_000) + "a",
        format!("request.path{}", ".trim()".repeat(1_000)),
        "[1].map(a, ".repeat(20) + "1" + &")".repeat(20),
        "1?".repeat(1_000) + "1",
        "x".repeat(LENGTH_MAX + 1),
        "{1:".repeat(1_000),
        format!("[{}1]", "1,".repeat(3_000)),
    ] {
        assert!(compile(&text).is_err(), "{}", &text[..20]);
    }
    // A chain is not deep.
    let chain = format!("{}true", "true && ".repeat(500));
    assert_eq!(evaluate_for(&chain, &request()), "true");
    assert_eq!(evaluate_for(&format!("{}false", "false || ".repeat(500)), &request()), "false");
}

#[test]
fn evaluation_has_limits() {
    let list = format!("[{}0]", "0,".repeat(200));
    let blow_up = format!("{list}.all(a, {list}.all(b, {list}.all(c, a == 0)))");
    let cases = [
        (blow_up.as_str(), FaultKind::Steps),
        (
            "['a'].map(x, 'aaaaaaaaaaaaaaaa'.replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')).map(x, x.replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')).map(x, x.replace('a', 'aaaaaaaaaaaaaa'))",
            FaultKind::Memory,
        ),
    ];
    for (text, kind) in cases {
        let expression = Expression::compile(text, &names()).unwrap();
        let scratch = Scratch::new();
        let fault = expression.evaluate(&request(), &scratch).unwrap_err();
        assert_eq!(fault.kind, kind);
        assert!(scratch.bytes() < 512 * 1024);
    }
    // No later term absorbs an exceeded limit.
    let text = format!("{blow_up} || true");
    let expression = Expression::compile(&text, &names()).unwrap();
    assert_eq!(expression.evaluate(&request(), &Scratch::new()).unwrap_err().kind, FaultKind::Steps);
}

#[test]
fn faults_point_and_name() {
    let condition =
        Condition::compile("request.method == 'GET' && token.claims.none >= 3", &names()).unwrap();
    let fault = condition.test(&request()).unwrap_err();
    assert_eq!(fault, FaultKind::Absent.at(27));
    assert_eq!(condition.describe(fault), "`token.claims.none` at 27: absent; `has(…)` tests for it");
}

#[test]
fn conditions_are_true_or_false() {
    assert!(Condition::compile("request.path", &names()).is_err());
    let condition = |text: &str| Condition::compile(text, &names()).unwrap().test(&request());
    assert_eq!(condition("token.claims.admin"), Ok(true));
    assert_eq!(condition("token.claims.level").unwrap_err().kind, FaultKind::NotBool);
}

#[test]
fn policies_of_lookups_allocate_nothing() {
    let names = names();
    for text in [
        "request.method == 'GET' && request.path.startsWith('/api') && response.status == 200 && token.claims.level >= 3",
        "'admin' in token.claims.realm_access.roles",
        "token.claims.realm_access.roles.exists(role, role == 'ops')",
        "request.headers['x-tenant'] == 'acme' && source.address in cidr('10.0.0.0/8')",
        "request.method in ['PUT', 'GET'] && has(token.sub) && !has(request.headers.none)",
        "request.path.matches('^/api/v[0-9]+/') && request.path.glob('/api/**') || true",
    ] {
        let condition = Condition::compile(text, &names).unwrap();
        let request = request();
        assert_eq!(condition.test(&request), Ok(true), "{text}");
        if !text.contains("glob") {
            let measured = allocation_counter::measure(|| assert_eq!(condition.test(&request), Ok(true)));
            assert_eq!(measured.count_total, 0, "{text}");
        }
    }
}

#[test]
fn custom_attributes_are_computed_by_expressions() {
    let mut names = names();
    let declare = |names: &mut crate::Names<Request>, name: &str, text: &str| {
        let expression = Expression::compile(text, names).unwrap();
        names.declare(name, ValueSource::Expression(expression)).unwrap();
    };
    declare(&mut names, "app.vip", "token.claims.level > 2 && 'admin' in token.claims.realm_access.roles");
    declare(&mut names, "app.missing", "token.claims.none");
    declare(&mut names, "app.broken", "1 / (token.claims.level - 3)");
    declare(&mut names, "app.first", "request.path.split('/')[1]");
    declare(&mut names, "app.session", "request.headers.cookie.substring(4)");
    let request = request();
    let read = |name: &str| Owned::of(names.resolve(name).unwrap().read(&request));
    assert_eq!(read("app.vip"), Some(Owned::Bool(true)));
    assert_eq!(read("app.first"), Some(Owned::text("api")));
    assert!(names.resolve("app.session").unwrap().is_secret());
    assert_eq!(names.resolve("app.vip").unwrap().kind(), Kind::Bool);
    let test = |text: &str| Condition::compile(text, &names).unwrap().test(&request);
    assert_eq!(test("app.vip && app.first == 'api'"), Ok(true));
    assert_eq!(test("has(app.missing)"), Ok(false));
    assert_eq!(test("app.broken == 1").unwrap_err().kind, FaultKind::Custom);
    // A rule that tests for presence must not treat a fault as absence.
    assert_eq!(test("!has(app.broken)").unwrap_err().kind, FaultKind::Custom);
}

#[test]
fn what_is_shown_has_no_secrets() {
    let names = names();
    let show = |text: &str| Expression::compile_in(text, &crate::lookup::Lookup::view(&names), true);
    let request = request();
    for (text, expected) in [
        ("request.headers.cookie + '!'", "[redacted]!"),
        ("request.query", "a=1&access_token=[redacted]&b=2"),
        ("request.headers.host", "example.com"),
    ] {
        let expression = show(text).unwrap();
        let scratch = Scratch::new();
        let value = expression.evaluate(&request, &scratch).unwrap();
        assert_eq!(compare::text(&value), Some(expected.as_bytes()), "{text}");
    }
    for text in ["request.headers['coo' + 'kie']", "request.headers.map(name, name)", "size(request.headers)"]
    {
        assert!(show(text).unwrap_err().message.contains("as a whole"), "{text}");
        assert!(Expression::compile(text, &names).is_ok(), "{text}");
    }
}

#[test]
fn references_are_listed_once() {
    let expression =
        Expression::compile("request.path == '/' || request.path == '/a' || has(token.claims.x.y)", &names())
            .unwrap();
    let found: Vec<&str> = expression.references().map(|(name, _)| name).collect();
    assert_eq!(found, ["request.path", "token.claims.x"]);
}

#[test]
fn text_that_is_not_utf8_is_latin1() {
    let names = names();
    let mut request = request();
    request.overrides.set(&names.resolve("request.path").unwrap(), Owned::text(b"na\xEFve")).unwrap();
    for (text, expected) in [
        ("size(request.path)", Value::Int(5)),
        // Unchanged, and converted to UTF-8.
        ("request.path", Value::Bytes(b"na\xEFve")),
        ("request.path.charAt(2)", Value::Bytes("ï".as_bytes())),
        ("request.path.reverse()", Value::Bytes("evïan".as_bytes())),
        ("'☃' + request.path", Value::Bytes("☃naïve".as_bytes())),
        ("base64.encode(request.path)", Value::Bytes(b"bmHvdmU=")),
        ("request.path.glob('na?ve')", Value::Bool(true)),
        ("request.path.startsWith('na')", Value::Bool(true)),
        ("int(request.path)", Value::Absent),
    ] {
        let expression = Expression::compile(text, &names).unwrap();
        let scratch = Scratch::new();
        assert_eq!(expression.evaluate(&request, &scratch).unwrap_or(Value::Absent), expected, "{text}");
    }
}

/// A rule sees the characters that a service with the configured encoding sees, however they were sent.
#[test]
fn a_comparison_is_not_passed_by_in_another_encoding() {
    let mut names = names();
    let list = Expression::compile("['zoë', 'jörg']", &names).unwrap();
    names.declare("app.list", ValueSource::Expression(list)).unwrap();
    let rules = [
        "request.headers['x-tenant'] == 'jörg'",
        "'jörg' == request.headers['x-tenant']",
        "!(request.headers['x-tenant'] != 'jörg')",
        "request.headers['x-tenant'] in ['zoë', 'jörg']",
        "request.headers['x-tenant'] in app.list",
        "request.headers['x-tenant'] in {'jörg': 1}",
        "{request.headers['x-tenant']: 1}['jörg'] == 1",
        "{'jörg': 1}[request.headers['x-tenant']] == 1",
        "request.headers['x-tenant'] >= 'jörg' && request.headers['x-tenant'] <= 'jörg'",
        "[request.headers['x-tenant']] == ['jörg']",
        "request.headers['x-tenant'].startsWith('jö')",
        "request.headers['x-tenant'].endsWith('örg')",
        "request.headers['x-tenant'].contains('ö')",
        "request.headers['x-tenant'].indexOf('rg') == 2",
        "request.headers['x-tenant'].substring(1, 2) == 'ö'",
        "request.headers['x-tenant'].matches('^j.rg$')",
        "request.headers['x-tenant'].matches('^jö')",
        "request.headers['x-tenant'].glob('j?rg')",
        "request.headers['x-tenant'].split('')[1] == 'ö'",
        "request.headers['x-tenant'].replace('ö', 'o') == 'jorg'",
        "['x', request.headers['x-tenant']].join('-') == 'x-jörg'",
        "request.headers['x-tenant'] + '!' == 'jörg!'",
        "size(request.headers['x-tenant']) == 4",
        "request.headers['x-tenant'].lowerAscii().trim() == 'jörg'",
    ];
    let tenant = names.resolve("request.headers.x-tenant").unwrap();
    let mut request = request();
    for rule in rules {
        let condition = Condition::compile(rule, &names).unwrap_or_else(|error| panic!("{rule}: {error}"));
        for (sent, holds) in [
            (Owned::text("jörg"), true),
            (Owned::text(b"j\xF6rg"), true),
            (Owned::Latin1(b"j\xF6rg".as_slice().into()), true),
            // As Latin-1 that is another name.
            (Owned::Latin1("jörg".as_bytes().into()), false),
            (Owned::text("jõrg"), false),
            (Owned::text("joerg"), false),
        ] {
            request.overrides.set(&tenant, sent).unwrap();
            let found = condition.test(&request);
            // A condition on a part of the characters may also be true for other names.
            if holds || rule.contains("==") && !rule.contains("indexOf") && !rule.contains("size") {
                assert_eq!(found.unwrap_or(false), holds, "{rule} {tenant:?}");
            }
        }
    }
}

/// `.` is any character. Bytes that are not UTF-8 contain none that a Unicode pattern would match.
#[test]
fn no_byte_hides_a_text_from_a_pattern() {
    let names = names();
    let path = names.resolve("request.path").unwrap();
    let mut request = request();
    for pattern in ["request.path.matches('^/a.*z$')", "request.path.matches('^/a[^/]+z$')"] {
        let condition = Condition::compile(pattern, &names).unwrap();
        for sent in [b"/a-z".as_slice(), "/aéz".as_bytes(), b"/a\xFFz", b"/a\xC3z", b"/a\xC0\x80\xFEz"] {
            request.overrides.set(&path, Owned::text(sent)).unwrap();
            assert_eq!(condition.test(&request), Ok(true), "{pattern} {}", sent.escape_ascii());
        }
    }
}

#[test]
fn the_size_of_a_result_is_that_of_a_value() {
    assert_eq!(size_of::<Result<Value<'_>, Fault>>(), size_of::<Value<'_>>());
    assert_eq!(json(&serde_json::json!(1)), Value::Int(1));
}
