//! Replays the corpus of every fuzz target, and tests generated expressions.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

type Target = (&'static str, fn(&[u8]));

#[test]
fn the_corpus_holds_every_property() {
    let targets: [Target; 3] =
        [("expression", super::expression), ("template", super::template), ("attribute", super::attribute)];
    for (name, run) in targets {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let mut count = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            // A failure shows the name of the file.
            println!("{}", path.display());
            run(&fs::read(&path).unwrap());
            count += 1;
        }
        assert!(count > 0, "no corpus in {}", folder.display());
        let grown = folder.join("../../grown").join(name).with_extension("hex");
        let lines = fs::read_to_string(&grown).unwrap();
        assert!(lines.lines().count() >= 100, "{} was cut", grown.display());
        for line in lines.lines() {
            // A failure shows the line.
            println!("{line}");
            run(&unhex(line));
        }
    }
}

fn unhex(line: &str) -> Vec<u8> {
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    line.as_bytes().chunks(2).map(octet).collect()
}

/// Text that usually is an expression.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("request.path".to_owned()),
        Just("request.headers".to_owned()),
        Just("request.headers['x-tenant']".to_owned()),
        Just("token.claims.level".to_owned()),
        Just("token.claims.realm_access.roles".to_owned()),
        Just("token.claims.amr".to_owned()),
        Just("source.address".to_owned()),
        Just("request.time".to_owned()),
        Just("request.duration".to_owned()),
        Just("x".to_owned()),
        Just("null".to_owned()),
        any::<bool>().prop_map(|truth| truth.to_string()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| format!("{number}u")),
        any::<f64>()
            .prop_filter("a literal", |number| number.is_finite())
            .prop_map(|number| format!("{number:?}")),
        "[a-zñ☃ ]{0,6}".prop_map(|text| format!("'{text}'")),
    ];
    leaf.prop_recursive(5, 40, 3, |inner| {
        let operator = proptest::sample::select(vec![
            "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in",
        ]);
        let method = proptest::sample::select(vec![
            "contains",
            "startsWith",
            "endsWith",
            "indexOf",
            "split",
            "charAt",
            "glob",
            "join",
            "substring",
        ]);
        let function = proptest::sample::select(vec![
            "size",
            "int",
            "uint",
            "double",
            "string",
            "timestamp",
            "duration",
            "dyn",
            "type",
            "sha256",
            "ip",
            "cidr",
            "base64.encode",
            "base64.decode",
            "!",
            "-",
            "bool",
        ]);
        let each = proptest::sample::select(vec!["all", "exists", "exists_one", "map", "filter"]);
        prop_oneof![
            (inner.clone(), operator, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), method, inner.clone())
                .prop_map(|(a, method, b)| format!("dyn({a}).{method}(dyn({b}))")),
            (function, inner.clone()).prop_map(|(function, a)| format!("{function}(dyn({a}))")),
            (inner.clone(), each, inner.clone())
                .prop_map(|(a, each, b)| format!("dyn({a}).{each}(x, dyn({b}))")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("(dyn({a}) ? {b} : {c})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{dyn({a}): {b}}}")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("dyn({a})[dyn({b})]")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn expressions_of_pieces_hold_every_property(text in expression(), value in any::<Vec<u8>>()) {
        let mut data = text.into_bytes();
        data.push(0);
        data.extend_from_slice(&value);
        super::expression(&data);
    }

    #[test]
    fn arbitrary_text_holds_every_property(data in any::<Vec<u8>>(), text in any::<String>(), near in "[a-z_.'\\[\\]{}()=!<>&|0-9 ]{0,40}") {
        for data in [&data, text.as_bytes(), near.as_bytes()] {
            super::expression(data);
            super::template(data);
            super::attribute(data);
        }
    }
}
