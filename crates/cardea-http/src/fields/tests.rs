//! Fields behave like a list of lines under any operations.

use proptest::prelude::*;

use super::*;

#[test]
fn names_and_values_follow_the_grammar() {
    let mut fields = Fields::default();
    for name in [&b""[..], b"a b", b"a:", b":path", b"a\x7F", b"caf\xE9", b"a\r\n", b"a\0"] {
        assert_eq!(fields.append(name, b"x"), Err(FieldError::NameInvalid), "{name:?}");
    }
    for value in [&b"a\rb"[..], b"a\nb", b"a\0", b"\x01", b"\x7F", b"a\r\n b", b"\x0B"] {
        assert_eq!(fields.append(b"a", value), Err(FieldError::ValueInvalid), "{value:?}");
        assert_eq!(fields.set_known(Known::Host, value), Err(FieldError::ValueInvalid), "{value:?}");
    }
    assert!(fields.is_empty());
    fields.append(b"A.!#$%&'*+^_`|~9", b" \t caf\xE9\tau\x80\xFF lait \t").unwrap();
    assert_eq!(fields.get_by_name(b"a.!#$%&'*+^_`|~9"), Some(&b"caf\xE9\tau\x80\xFF lait"[..]));
}

#[test]
fn set_replaces_all_lines_and_an_error_changes_nothing() {
    let mut fields = Fields::default();
    fields.append(b"HOST", b"one").unwrap();
    fields.append(b"x", b"1").unwrap();
    fields.append(b"host", b"two").unwrap();
    assert_eq!(fields.get_all(Known::Host).collect::<Vec<_>>(), [b"one", b"two"]);
    assert!(fields.set_known(Known::Host, b"bad\0").is_err());
    assert_eq!(fields.count(Known::Host), 2);
    fields.set_known(Known::Host, b"three").unwrap();
    assert_eq!(fields.get_all(Known::Host).collect::<Vec<_>>(), [b"three"]);
    assert_eq!(fields.remove(Known::Host), 1);
    assert_eq!((fields.remove(Known::Host), fields.len(), fields.get(Known::Host)), (0, 1, None));
}

#[test]
fn lines_and_bytes_are_bounded_and_removed_bytes_come_back() {
    let mut fields = Fields::default();
    for _ in 0..Fields::LEN_MAX {
        fields.append(b"a", b"").unwrap();
    }
    assert_eq!(fields.append(b"a", b""), Err(FieldError::TooMany));

    let half = vec![b'x'; Fields::BYTES_MAX / 2];
    let mut fields = Fields::default();
    fields.append(b"keep", b"me").unwrap();
    for _ in 0..10 {
        fields.set_known(Known::Cookie, &half).unwrap();
    }
    assert_eq!(fields.append(b"other", &half), Err(FieldError::TooLarge));
    assert_eq!(fields.get_by_name(b"keep"), Some(&b"me"[..]));
    assert_eq!(fields.get(Known::Cookie), Some(&half[..]));
    assert!(fields.arena.len() <= Fields::BYTES_MAX);
}

#[derive(Debug, Clone)]
enum Op {
    Append(String, String),
    Set(usize, String),
    Remove(String),
    Retain(u8),
}

fn op() -> impl Strategy<Value = Op> {
    let name = prop_oneof![
        "[a-c]{1,2}",
        Just("Host".to_owned()),
        Just("hOST".to_owned()),
        Just("x_a".to_owned()),
        Just("Cookie".to_owned())
    ];
    prop_oneof![
        4 => (name.clone(), "[ -~]{0,6}").prop_map(|(name, value)| Op::Append(name, value)),
        1 => (0..Known::ALL.len(), "[!-~]{0,6}").prop_map(|(id, value)| Op::Set(id, value)),
        1 => name.prop_map(Op::Remove),
        1 => any::<u8>().prop_map(Op::Retain),
    ]
}

fn apply(op: Op, fields: &mut Fields) {
    match op {
        Op::Append(name, value) => fields.append(name.as_bytes(), value.as_bytes()).unwrap(),
        Op::Set(id, value) => fields.set_known(Known::ALL[id], value.as_bytes()).unwrap(),
        Op::Remove(name) => drop(fields.remove_by_name(name.as_bytes())),
        Op::Retain(byte) => fields.retain(|field| !field.value.contains(&byte)),
    }
}

#[test]
fn noted_lines_are_not_restored_from_memory_that_was_given_up() {
    let mut fields = Fields::default();
    fields.append(b"a", b"1").unwrap();
    let mut noted = NotedFields::default();
    fields.note(&mut noted);
    fields.clear();
    noted.clear();
    fields.append(b"b", b"2").unwrap();
    assert!(!fields.restore(&noted));
    assert_eq!((fields.len(), fields.get_by_name(b"b")), (1, Some(&b"2"[..])), "nothing has changed");
    // As much as fits, over and over.
    fields.note(&mut noted);
    fields.append(b"long", &[b'x'; Fields::BYTES_MAX / 2]).unwrap();
    assert!(fields.clone().restore(&noted), "the control: nothing was given up");
    assert_eq!(fields.remove_by_name(b"long"), 1);
    fields.append(b"long", &[b'x'; Fields::BYTES_MAX / 2]).unwrap();
    assert!(!fields.restore(&noted));
    assert_eq!((fields.len(), fields.get_by_name(b"b")), (2, Some(&b"2"[..])));
    fields.retain(|_| true);
    assert!(!fields.restore(&noted), "whatever is done then");
    fields.clear();
    fields.append(b"c", b"3").unwrap();
    fields.note(&mut noted);
    fields.remove_by_name(b"c");
    assert!(fields.restore(&noted), "the control: another head");
    assert_eq!(fields.get_by_name(b"c"), Some(&b"3"[..]));
}

proptest! {
    #[test]
    fn noted_lines_come_back_whatever_was_changed_since(
        before in prop::collection::vec(op(), 0..20),
        after in prop::collection::vec(op(), 0..20),
    ) {
        let (mut fields, mut noted) = (Fields::default(), NotedFields::default());
        before.into_iter().for_each(|op| apply(op, &mut fields));
        fields.note(&mut noted);
        let then = fields.clone();
        after.into_iter().for_each(|op| apply(op, &mut fields));
        let now = fields.clone();
        let mut again = fields.clone();
        prop_assert!(again.restore(&noted));
        prop_assert_eq!(&again, &then);
        for &known in Known::ALL {
            prop_assert_eq!(again.contains(known), then.contains(known));
        }
        prop_assert_eq!(again.may_have_odd_names(), then.may_have_odd_names());
        prop_assert_eq!(fields, now, "the fields themselves are as they were");
    }

    #[test]
    fn fields_agree_with_a_plain_list(ops in prop::collection::vec(op(), 0..40)) {
        let mut fields = Fields::default();
        let mut list: Vec<(String, String)> = Vec::new();
        for op in ops {
            match op {
                Op::Append(name, value) => {
                    fields.append(name.as_bytes(), value.as_bytes()).unwrap();
                    list.push((name, value.trim_matches(' ').to_owned()));
                }
                Op::Set(id, value) => {
                    let known = Known::ALL[id];
                    fields.set_known(known, value.as_bytes()).unwrap();
                    list.retain(|(name, _)| !name.eq_ignore_ascii_case(known.as_str()));
                    list.push((known.as_str().to_owned(), value));
                }
                Op::Remove(name) => {
                    let before = list.len();
                    list.retain(|(other, _)| !other.eq_ignore_ascii_case(&name));
                    prop_assert_eq!(fields.remove_by_name(name.as_bytes()), before - list.len());
                }
                Op::Retain(byte) => {
                    fields.retain(|field| !field.value.contains(&byte));
                    list.retain(|(_, value)| !value.as_bytes().contains(&byte));
                }
            }
            let lines: Vec<_> = fields.iter().map(|f| (f.name.to_vec(), f.value.to_vec())).collect();
            let expected: Vec<_> = list.iter().map(|(n, v)| (n.clone().into_bytes(), v.clone().into_bytes())).collect();
            prop_assert_eq!(lines, expected);
            for &known in Known::ALL {
                let count = list.iter().filter(|(name, _)| name.eq_ignore_ascii_case(known.as_str())).count();
                prop_assert_eq!(fields.count(known), count);
                prop_assert_eq!(fields.contains(known), count > 0);
            }
            if list.iter().any(|(name, _)| name.contains('_')) {
                prop_assert!(fields.may_have_odd_names());
            }
        }
    }
}
