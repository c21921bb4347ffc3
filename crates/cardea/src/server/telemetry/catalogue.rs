//! Generates the page of metrics from their definitions.

use std::fmt::Write as _;

use cardea_gateway::{
    metrics,
    record::{
        access_log,
        metrics::{DEFINITIONS as REGISTRY, Definition, MetricKind, SERIES_MAX, process},
    },
};

use super::super::{certificates, client_authorities, health, names, panics, reloads};

/// The command that generates the page, as shown on the page.
const COMMAND: &str = "cargo run -p cardea -- schema --metrics > docs/metrics.md";

/// Metrics with a common subject.
struct Section {
    title: &'static str,
    /// An introduction.
    intro: &'static str,
    definitions: &'static [&'static [Definition]],
}

static SECTIONS: &[Section] = &[
    Section {
        title: "Requests and connections",
        intro: "",
        definitions: &[metrics::DEFINITIONS, super::RUNNING],
    },
    Section {
        title: "Services and endpoints",
        intro: "`service` is the name in the configuration, `endpoint` the configured address, or a \
             name and one of its addresses (`orders.internal/10.0.0.1:8080`).",
        definitions: &[metrics::UPSTREAM_DEFINITIONS, super::upstream::DEFINITIONS],
    },
    Section {
        title: "Mirrors",
        intro: "`http_route` is the name of the route, `service` that of the service that gets the copies.",
        definitions: &[super::mirrors::DEFINITIONS],
    },
    Section {
        title: "Names of endpoints",
        intro: "`name` is the name in the configuration; `records` is `address` or `srv`. See [discovery.md](discovery.md).",
        definitions: &[names::DEFINITIONS],
    },
    Section {
        title: "Readiness and databases",
        intro: "[deployment.md](deployment.md#readiness) explains the values of `reason` and `what`.",
        definitions: &[health::DEFINITIONS],
    },
    Section { title: "Reloads and build", intro: "", definitions: &[reloads::DEFINITIONS, super::BUILD] },
    Section {
        title: "Tokens and key sets",
        intro: "`issuer` is the name in the configuration.",
        definitions: &[super::TOKENS, super::key_sets::DEFINITIONS],
    },
    Section {
        title: "Throttles",
        intro: "`throttle` is the name in the configuration. `cardea_throttle_requests_total`, above, counts the \
             decisions.",
        definitions: &[super::throttles::DEFINITIONS],
    },
    Section {
        title: "Admission",
        intro: "`limit` is `process`, `streams`, or `service/` or `route/` and the name in the configuration. \
             `cardea_admission_requests_total` and `cardea_admission_queue_seconds`, above, count the decisions.",
        definitions: &[super::admission::DEFINITIONS],
    },
    Section {
        title: "Tarpit",
        intro: "`cardea_tarpit_requests_total`, `cardea_tarpit_ended_total` and `cardea_tarpit_seconds`, above, count what \
             became of refusals.",
        definitions: &[super::tarpit::DEFINITIONS],
    },
    Section {
        title: "TLS and certificates",
        intro: "",
        definitions: &[
            certificates::DEFINITIONS,
            client_authorities::DEFINITIONS,
            super::TLS_SESSIONS,
            super::ACME,
        ],
    },
    Section {
        title: "Client secrets of the authorization server",
        intro: "Only with an `[authorization_server]`.",
        definitions: &[super::SECRETS],
    },
    Section { title: "Access log", intro: "", definitions: &[access_log::DEFINITIONS] },
    Section {
        title: "Process",
        intro: "",
        definitions: &[process::DEFINITIONS, panics::DEFINITIONS, REGISTRY],
    },
];

/// The page, in Markdown.
pub(crate) fn markdown() -> String {
    let mut page = format!(
        "# Metrics\n\n\
         <!-- Generated from the definitions in the code with\n     {COMMAND}\n     Change the definitions instead. -->\n\n\
         Prometheus scrapes `/metrics` of the admin listener (`admin.address`), in the text format 0.0.4:\n\n\
         ```yaml\n\
         scrape_configs:\n\
         \x20 - job_name: cardea\n\
         \x20   static_configs:\n\
         \x20     - targets: [\"127.0.0.1:9443\"]\n\
         ```\n\n\
         A scraper on another machine needs an `admin.address` that it can reach, and its name for the gateway in\n\
         `admin.hosts` unless it uses an IP address.\n\n\
         Names and meanings follow OpenTelemetry's semantic conventions for HTTP where these have the metric; all others\n\
         begin with `cardea_`. Durations are in seconds, sizes in bytes. The values of labels come from the \
         configuration or from\n\
         fixed sets, never from what clients send. A metric has at most {SERIES_MAX} series; all others are counted \
         in one\n\
         whose labels say `_other`.\n\n\
         Counters of a route, a service or a listener survive reloads as long as its name stays in the configuration,\n\
         those of an endpoint as long as the service has its address. After a removal, the series end some seconds \
         after the\n\
         last request that used them. If the name is added again, they start at zero, which `rate()` treats as a restart.\n"
    );
    for section in SECTIONS {
        let _ = write!(page, "\n## {}\n\n", section.title);
        if !section.intro.is_empty() {
            let _ = write!(page, "{}\n\n", section.intro);
        }
        page.push_str("| metric | type | labels | meaning |\n|---|---|---|---|\n");
        for definition in section.definitions.iter().copied().flatten() {
            let labels: Vec<String> = definition.labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
            let kind = match (definition.kind, definition.unit()) {
                (MetricKind::Histogram(_), _) => "histogram, seconds".to_owned(),
                (kind, None) => kind.as_str().to_owned(),
                (kind, Some("timestamp_seconds")) => format!("{}, Unix time", kind.as_str()),
                (kind, Some(unit)) => format!("{}, {unit}", kind.as_str()),
            };
            let _ = writeln!(page, "| `{}` | {kind} | {labels} | {} |", definition.name, definition.help);
        }
    }
    page.push_str(&buckets());
    page
}

/// The bucket bounds of histograms, which are meant to be equal.
fn buckets() -> String {
    let mut text = "\n## Buckets\n\nUpper bounds in seconds, beside `+Inf`:\n\n".to_owned();
    for definition in all() {
        if let MetricKind::Histogram(bounds) = definition.kind {
            let bounds: Vec<String> = bounds.iter().map(|bound| bound.as_secs_f64().to_string()).collect();
            let _ = writeln!(text, "- `{}`: {}", definition.name, bounds.join(", "));
        }
    }
    text
}

fn all() -> impl Iterator<Item = &'static Definition> {
    SECTIONS.iter().flat_map(|section| section.definitions.iter().copied().flatten())
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::*;

    /// Every Rust file of the program's crates, except tests.
    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !["tests.rs", "measure.rs"].iter().any(|name| path.ends_with(name))
            {
                found.push(path);
            }
        }
    }

    #[test]
    fn every_metric_that_is_defined_is_on_the_page_once() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = Vec::new();
        for entry in fs::read_dir(crates).unwrap() {
            sources(&entry.unwrap().path().join("src"), &mut files);
        }
        let mut defined = BTreeSet::new();
        for path in files {
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            for kind in ["CounterDef::new(", "GaugeDef::new(", "HistogramDef::new("] {
                for rest in text.split(kind).skip(1) {
                    let Some(name) = rest.trim_start().strip_prefix('"') else { continue };
                    assert!(
                        defined.insert(name.split('"').next().unwrap().to_owned()),
                        "{path:?}: {name:.60} twice"
                    );
                }
            }
        }
        let listed: Vec<&str> = all().map(|definition| definition.name).collect();
        let unique: BTreeSet<String> = listed.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(unique.len(), listed.len(), "a metric is listed twice");
        assert!(defined.len() > 50, "the definitions were found: {defined:?}");
        assert_eq!(defined, unique, "add the definition to the DEFINITIONS of its file");
    }

    #[test]
    fn help_is_a_sentence_and_fits_a_table() {
        for definition in all() {
            assert!(
                definition.help.ends_with('.') && !definition.help.contains(['|', '\n']),
                "{definition:?}"
            );
        }
    }
}
