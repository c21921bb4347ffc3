//! What a gateway counts: as Prometheus reads it, across reloads, and of everything that can go wrong.

use std::{collections::HashSet, net::TcpListener};

use crate::support::{
    Folder, Origin, Server,
    folder::Settings,
    metrics::{Metrics, promtool},
    until,
};

fn with_origin(origin: &Origin, more: &str) -> Settings {
    Settings { origin: Some(origin.address), more: more.to_owned(), ..Settings::default() }
}

fn get(server: &Server, path: &str, times: usize) {
    let mut connection = server.connect();
    for _ in 0..times {
        assert_eq!(connection.get(path).unwrap().status, 200, "{path}");
    }
}

/// The figures of a route: of its histogram, and of its responses with this status.
fn of_route(metrics: &Metrics, route: &str, status: &str) -> (Option<f64>, Option<f64>) {
    let class = format!("{}xx", &status[..1]);
    (
        metrics.get(&format!(
            "http_server_request_duration_seconds_count{{http_route=\"{route}\",status_class=\"{class}\"}}"
        )),
        metrics.get(&format!(
            "cardea_http_responses_total{{http_route=\"{route}\",http_response_status_code=\"{status}\"}}"
        )),
    )
}

/// Waits until so many responses of a route are counted, which happens once they are sent.
fn counted(server: &Server, route: &str, times: f64) {
    until("responses to be counted", || {
        (of_route(&Metrics::of(server), route, "200").1 == Some(times)).then_some(())
    });
}

#[test]
fn counters_of_routes_and_services_survive_reloads() {
    let origin = Origin::start();
    let folder = Folder::new(&with_origin(&origin, ""));
    let server = Server::start(&folder);
    let endpoint = origin.address;
    let requests = format!("cardea_upstream_requests_total{{service=\"origin\",endpoint=\"{endpoint}\"}}");
    let hits = format!("cardea_upstream_pool_hits_total{{service=\"origin\",endpoint=\"{endpoint}\"}}");
    let heads = "cardea_upstream_response_head_seconds_count{service=\"origin\",status_class=\"2xx\"}";
    // Unchanged, changed, and changed in how connections are made, which takes another pool.
    let changes = ["", "\n[timeouts]\nrequest = \"17s\"\n", "", "\n[limits]\nfields_max = 77\n"];
    for (round, more) in (1..).zip(changes) {
        get(&server, "/version", 3);
        get(&server, "/origin/x", 2);
        let total = f64::from(round * 3);
        counted(&server, "version", total);
        counted(&server, "origin", f64::from(round * 2));
        let metrics = Metrics::of(&server);
        assert_eq!(of_route(&metrics, "version", "200"), (Some(total), Some(total)), "round {round}");
        let total = f64::from(round * 2);
        assert_eq!(of_route(&metrics, "origin", "200"), (Some(total), Some(total)), "round {round}");
        assert_eq!(metrics.get(&requests), Some(total), "round {round}");
        assert_eq!(metrics.get(heads), Some(total), "round {round}");
        assert!(metrics.get(&hits) >= Some(f64::from(round)), "round {round}: {:?}", metrics.get(&hits));
        folder.configure(&Settings { version: round.to_string(), ..with_origin(&origin, more) });
        assert!(server.reload().0);
    }
    server.stop();
}

#[test]
fn the_series_of_renamed_and_removed_routes_end() {
    let named = |name: &str| {
        format!(
            "\n[[route]]\nname = \"{name}\"\npath = \"/moving\"\nauth = \"public\"\nrespond = {{ body = \"x\" }}\n"
        )
    };
    let configure =
        |folder: &Folder, more: String| folder.configure(&Settings { more, ..Settings::default() });
    let folder = Folder::new(&Settings { more: named("before"), ..Settings::default() });
    let server = Server::start(&folder);
    get(&server, "/moving", 3);
    counted(&server, "before", 3.0);

    configure(&folder, named("after"));
    assert!(server.reload().0);
    get(&server, "/moving", 1);
    counted(&server, "after", 1.0);

    configure(&folder, String::new());
    assert!(server.reload().0);
    // Each worker gives up the configuration before with its next request.
    until("the series of what is gone to go", || {
        get(&server, "/version", 1);
        assert!(server.reload().0);
        let metrics = Metrics::of(&server);
        let gone = ["before", "after"].map(|name| of_route(&metrics, name, "200"));
        (gone == [(None, None); 2]).then_some(())
    });
    configure(&folder, named("before"));
    assert!(server.reload().0);
    get(&server, "/moving", 2);
    // Three of before, and it would never be two.
    counted(&server, "before", 2.0);
    server.stop();
}

#[test]
fn refusals_and_endpoint_failures_have_their_reasons() {
    // An address at which nobody listens.
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let more = format!(
        "\n[[service]]\nname = \"dead\"\n\n[[service.endpoint]]\naddress = \"{dead}\"\nregion = \"moon\"\n\n[[route]]\n\
         name = \"dead\"\npath = \"/dead\"\nauth = \"public\"\nservice = \"dead\"\n"
    );
    let folder = Folder::new(&Settings { more, ..Settings::default() });
    let server = Server::start(&folder);
    let mut connection = server.connect();
    for (path, status) in [("/private", 401), ("/nowhere", 404), ("/dead", 502), ("/version", 200)] {
        assert_eq!(connection.get(path).unwrap().status, status, "{path}");
    }
    assert_eq!(connection.get_with_token("/private", "a.b.c").unwrap().status, 401);
    // A request is counted once its response has been sent.
    let metrics = until("all refusals to be counted", || {
        let metrics = Metrics::of(&server);
        let refused = metrics.all("cardea_refused_requests_total");
        (refused.iter().map(|(_, count)| count).sum::<f64>() == 4.0).then_some(metrics)
    });
    let refused: Vec<_> = metrics.all("cardea_refused_requests_total");
    let count = |reason: &str, status: &str| {
        let series = format!(
            "cardea_refused_requests_total{{reason=\"{reason}\",http_response_status_code=\"{status}\"}}"
        );
        metrics.get(&series)
    };
    assert_eq!(count("credentials_missing", "401"), Some(1.0), "{refused:?}");
    assert_eq!(count("route_not_found", "404"), Some(1.0), "{refused:?}");
    assert_eq!(count("upstream_connect_failed", "502"), Some(1.0), "{refused:?}");
    assert_eq!(of_route(&metrics, "", "404"), (Some(1.0), Some(1.0)), "without a route");
    assert_eq!(of_route(&metrics, "dead", "502"), (Some(1.0), Some(1.0)));

    let of_dead = |name: &str, labels: &str| {
        metrics.get(&format!("{name}{{service=\"dead\",endpoint=\"{dead}\"{labels}}}"))
    };
    assert_eq!(of_dead("cardea_upstream_failures_total", ",kind=\"connect\""), Some(1.0));
    assert_eq!(of_dead("cardea_upstream_failures_total", ",kind=\"malformed\""), Some(0.0));
    assert_eq!(of_dead("cardea_upstream_healthy", ""), Some(0.0));
    assert_eq!(of_dead("cardea_upstream_ejections_total", ",cause=\"connect\""), Some(1.0));
    assert_eq!(of_dead("cardea_upstream_pool_misses_total", ""), Some(1.0));
    assert_eq!(of_dead("cardea_upstream_weight", ",region=\"moon\""), Some(1.0));
    assert_eq!(of_dead("http_client_open_connections", ",http_connection_state=\"active\""), Some(0.0));

    assert_eq!(metrics.get("cardea_connections{listener=\"https\",protocol=\"http/1.1\"}"), Some(1.0));
    drop(connection);
    until("the connection's end", || {
        let open = Metrics::of(&server).get("cardea_connections{listener=\"https\",protocol=\"http/1.1\"}");
        (open == Some(0.0)).then_some(())
    });
    server.stop();
}

#[test]
fn reloads_are_counted_and_say_when_they_were() {
    let folder = Folder::new(&Settings::default());
    let server = Server::start(&folder);
    let metrics = Metrics::of(&server);
    let value = |metrics: &Metrics, name: &str| metrics.get(name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!(value(&metrics, "cardea_config_generation"), 1.0);
    assert_eq!(value(&metrics, "cardea_config_last_reload_successful"), 1.0);
    assert_eq!(value(&metrics, "cardea_config_last_reload_failure_timestamp_seconds"), 0.0);
    let loaded = value(&metrics, "cardea_config_last_reload_success_timestamp_seconds");
    assert!(value(&metrics, "process_start_time_seconds") <= loaded + 1.0);

    let good = folder.read("cardea.toml");
    folder.write("cardea.toml", "nonsense = 1\n");
    assert!(!server.reload().0);
    let metrics = Metrics::of(&server);
    assert_eq!(value(&metrics, "cardea_config_reloads_total{result=\"failure\"}"), 1.0);
    assert_eq!(value(&metrics, "cardea_config_last_reload_successful"), 0.0);
    assert_eq!(value(&metrics, "cardea_config_generation"), 1.0);
    assert!(value(&metrics, "cardea_config_last_reload_failure_timestamp_seconds") >= loaded);
    assert_eq!(value(&metrics, "cardea_config_last_reload_success_timestamp_seconds"), loaded);

    folder.write("cardea.toml", &good);
    assert!(server.reload().0);
    let metrics = Metrics::of(&server);
    assert_eq!(value(&metrics, "cardea_config_reloads_total{result=\"success\"}"), 1.0);
    assert_eq!(value(&metrics, "cardea_config_last_reload_successful"), 1.0);
    assert_eq!(value(&metrics, "cardea_config_generation"), 2.0);
    assert!(value(&metrics, "cardea_config_last_reload_duration_seconds") > 0.0);
    server.stop();
}

#[test]
fn prometheus_understands_all_of_it_and_the_page_names_it() {
    let origin = Origin::start();
    let folder = Folder::new(&with_origin(&origin, ""));
    let server = Server::start(&folder);
    get(&server, "/origin/x", 2);
    get(&server, "/version", 2);
    assert_eq!(server.connect().get("/nowhere").unwrap().status, 404);
    let metrics = Metrics::of(&server);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(metrics.get(&format!("cardea_build_info{{version=\"{version}\",revision=\"\"}}")), Some(1.0));
    assert_eq!(metrics.get("cardea_key_set_usable{issuer=\"own\"}"), Some(1.0));
    // Where it is not installed, what was read above has been read strictly all the same.
    if let Some(said) = promtool(&metrics.text) {
        assert_eq!(said, "", "promtool check metrics");
    }

    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let documented: HashSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let unknown: Vec<_> = metrics.names().difference(&documented).copied().collect();
    assert_eq!(unknown, Vec::<&str>::new(), "metrics that docs/metrics.md does not name");
    assert!(metrics.names().len() > 50, "{:?}", metrics.names());
    server.stop();
}
