//! Tests of the complete example.

use std::{fs, path::Path};

use super::{Draft, Fixture, KeyFiles, shape};
use crate::schema;

const EXAMPLE: &str = "../../examples/cardea.toml";

pub(super) fn example() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(EXAMPLE)).unwrap()
}

#[test]
fn the_example_is_good() {
    let fixture = Fixture::new(&example())
        .file("certificates/api.pem", "PEM")
        .file("certificates/api.key", "PEM")
        .file("certificates/partners.pem", "PEM")
        .file("certificates/partners.key", "PEM")
        .file("certificates/internal-ca.pem", "PEM")
        .file("partner-keys.json", "{\"keys\":[]}")
        .file("wrapping.key", "c2VjcmV0")
        .file("certificates/partner-clients-ca.pem", "PEM")
        .file("certificates/partner-clients.crl", "PEM")
        .file("acme-hmac.key", "c2VjcmV0")
        .file("tickets.secret", "1800000000 ab")
        .file("tiers.map", "# clients\ngold-app gold\n")
        .file("maintenance.html", "<p>Back soon.</p>");
    assert!(fixture.config().routes.len() >= 8);
    let path = fixture.folder.path().join("cardea.toml");
    let (_, problems) = Draft::read(&path, &|_| None, KeyFiles::Read).into_parts();
    // The test's own files are not private.
    let told = problems.iter().map(ToString::to_string).filter(|told| !told.contains("make it private"));
    assert_eq!(told.collect::<Vec<_>>(), <[String; 0]>::default());
}

#[test]
fn the_example_shows_every_key() {
    fn keys(shape: &shape::Shape, found: &mut Vec<String>) {
        match &shape.kind {
            shape::Kind::Table(table) => {
                for (name, key) in &table.keys {
                    found.push(name.clone());
                    keys(&key.shape, found);
                }
            }
            shape::Kind::List { item, .. } | shape::Kind::Map(item) => keys(item, found),
            shape::Kind::Any(alternatives) => alternatives.iter().for_each(|shape| keys(shape, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    keys(&schema::shape(), &mut found);
    let text = example();
    let words: Vec<&str> =
        text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').collect();
    let missing: Vec<_> = found.iter().filter(|key| !words.contains(&key.as_str())).collect();
    assert!(missing.is_empty(), "examples/cardea.toml does not show: {missing:?}");
}
