//! Client certificates by path, with curl: asked for where the configuration says, and told to nobody who wasn't.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener},
    process::Command,
};

use cardea_clock::Wall;
use cardea_tls::authority::Authority;

use crate::support::{Folder, Server, client::HOST, folder::Settings, metrics::Metrics, run, until};

const FROM: Wall = Wall::from_unix_seconds(0);
const TO: Wall = Wall::from_unix_seconds(4_000_000_000);

const CONFIGURATION: &str = r#"
[log]
format = "json"

[access_log]
path = "access.log"

[admin]
address = "127.0.0.1:0"
socket = "admin.sock"

[drain]
delay = "0s"

[[client_authority]]
name = "staff"
ca_file = "staff.pem"
crl_files = ["staff.crl"]

[[listener]]
name = "https"
address = "127.0.0.1:0"

[[listener.tls.certificate]]
chain = "gateway.pem"
key = "gateway.key"

[[listener.tls.certificate]]
chain = "step.pem"
key = "step.key"
client_certificate = "request"
client_authorities = ["staff"]

[[service]]
name = "echo"

[[service.endpoint]]
address = "{origin}"

[[route]]
name = "invoices"
path_prefix = "/invoices"
auth = "public"
service = "echo"
client_certificate = { mode = "required", names = ["dns:erp.test"], step_up = "step.test" }
request_headers = { set = { "x-who" = "{connection.client_certificate.dns_names} {connection.tls.hash}" } }
"#;

/// Answers each request with its head.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).unwrap_or(0) > 0 {}
            let length = head.len();
            let answer =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{head}");
            let _ = stream.get_mut().write_all(answer.as_bytes());
        }
    });
    address
}

struct Setting {
    folder: Folder,
    staff: Authority,
    server: Server,
}

impl Setting {
    fn new() -> Self {
        let folder = Folder::new(&Settings::default());
        let staff = Authority::new("staff", FROM, TO).unwrap();
        folder.write("staff.pem", &staff.certificate_pem());
        folder.write("staff.crl", &staff.revocation_list(&[], FROM, TO).unwrap());
        let web = Authority::new("web", FROM, TO).unwrap();
        folder.write("roots.pem", &(folder.read("ca.pem") + &web.certificate_pem()));
        let issued = web.issue(&["step.test"], FROM, TO).unwrap();
        folder.write("step.pem", &issued.chain_pem);
        folder.write("step.key", &issued.key_pem);
        folder.write("cardea.toml", &CONFIGURATION.replace("{origin}", &echo().to_string()));
        let server = Server::start(&folder);
        Self { folder, staff, server }
    }

    fn issue(&self, file: &str, name: &str) -> Vec<u8> {
        let issued = self.staff.issue_client("somebody", &[name.parse().unwrap()], FROM, TO).unwrap();
        self.folder.write(&format!("{file}.pem"), &issued.chain_pem);
        self.folder.write(&format!("{file}.key"), &issued.key_pem);
        issued.serial
    }

    /// Status and last URL.
    fn curl(&self, arguments: &[&str]) -> String {
        let to = format!("::127.0.0.1:{}", self.server.address.port());
        let ran = Command::new("curl")
            .current_dir(self.folder.path())
            .args([
                "-sS",
                "--cacert",
                "roots.pem",
                "--connect-to",
                &to,
                "-o",
                "out",
                "-w",
                "%{http_code} %{url_effective}",
            ])
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8(ran.stdout).unwrap() + &String::from_utf8_lossy(&ran.stderr)
    }
}

#[test]
fn curl_is_redirected_to_the_step_up_host() {
    let setting = Setting::new();
    setting.issue("erp", "dns:erp.test");
    let revoked = setting.issue("other", "dns:erp.test");
    setting.issue("guest", "dns:guest.test");
    let url = format!("https://{HOST}/invoices/7?x=1");
    let erp = ["--cert", "erp.pem", "--key", "erp.key"];
    for (arguments, expected) in [
        (vec!["-L", &url], "403 https://step.test/invoices/7?x=1".to_owned()),
        (vec![&url], format!("307 {url}")),
        (vec!["-X", "POST", "-d", "x", "--http1.1", "-L", &url], format!("403 {url}")),
        ([&erp[..], &["-L", &url]].concat(), "200 https://step.test/invoices/7?x=1".to_owned()),
        ([&erp[..], &["-L", "--http1.1", &url]].concat(), "200 https://step.test/invoices/7?x=1".to_owned()),
        (
            [&erp[..], &["-L", "--tls-max", "1.2", &url]].concat(),
            "200 https://step.test/invoices/7?x=1".to_owned(),
        ),
        ([&erp[..], &["-I", "-L", &url]].concat(), "200 https://step.test/invoices/7?x=1".to_owned()),
        (
            vec!["--cert", "guest.pem", "--key", "guest.key", "-L", &url],
            "403 https://step.test/invoices/7?x=1".to_owned(),
        ),
    ] {
        assert_eq!(setting.curl(&arguments), expected, "{arguments:?}");
    }
    let text = setting.folder.read("erp.pem");
    let base64: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
    assert_eq!(setting.curl(&[&erp[..], &["-L", &url]].concat()), "200 https://step.test/invoices/7?x=1");
    let seen = setting.folder.read("out").to_lowercase();
    assert!(seen.contains(&format!("client-cert: :{base64}:\r\n").to_lowercase()), "{seen}");
    assert!(seen.contains("x-who: erp.test sha256\r\n"), "{seen}");

    // Revoked while the gateway runs.
    let other = ["--cert", "other.pem", "--key", "other.key", "-L", &url];
    assert_eq!(setting.curl(&other), "200 https://step.test/invoices/7?x=1");
    setting.folder.write("staff.crl", &setting.staff.revocation_list(&[&revoked], FROM, TO).unwrap());
    assert!(setting.server.reload().0);
    until("the revocation", || (!setting.curl(&other).starts_with("200")).then_some(()));
    assert_eq!(setting.curl(&[&erp[..], &["-L", &url]].concat()), "200 https://step.test/invoices/7?x=1");
    setting.server.stop();
}

#[test]
fn faults_of_a_client_authority_and_their_correction_are_reported() {
    let folder = Folder::new(&Settings::default());
    let staff = Authority::new("staff", FROM, TO).unwrap();
    folder.write("staff.pem", &staff.certificate_pem());
    let issued = Authority::new("web", FROM, TO).unwrap().issue(&["step.test"], FROM, TO).unwrap();
    folder.write("step.pem", &issued.chain_pem);
    folder.write("step.key", &issued.key_pem);
    folder.write("cardea.toml", &CONFIGURATION.replace("{origin}", "127.0.0.1:1"));
    let good = staff.revocation_list(&[], Wall::from_unix_seconds(1_000_000_000), TO).unwrap();
    let expired = staff.revocation_list(&[], FROM, Wall::from_unix_seconds(1_000_000_000)).unwrap();
    let line = 1 + CONFIGURATION.lines().position(|line| line == "[[client_authority]]").unwrap();

    folder.write("staff.crl", &good);
    let ran = run(folder.path(), &["check"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "the control");
    for both in [format!("{expired}{good}"), format!("{good}{expired}")] {
        folder.write("staff.crl", &both);
        let ran = run(folder.path(), &["check", "--deny-warnings"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "only the newest is asked");
    }
    folder.write("staff.crl", &expired);
    let ran = run(folder.path(), &["check"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains(&format!("cardea.toml:{line}")), "{ran:?}");
    assert!(ran.stderr.contains("has expired") && ran.stderr.contains("current list"), "{ran:?}");
    assert_eq!(run(folder.path(), &["check", "--deny-warnings"]).code, Some(2));

    let server = Server::start(&folder);
    server.program.stderr.wait_for("clients are refused", 0);
    let what = "client_authority_refuses:staff:";
    assert!(server.ready().1.contains(what), "{}", server.ready().1);
    let status = run(folder.path(), &["status"]);
    assert!(status.stdout.contains(what), "{status:?}");
    let metric = |name: &str| Metrics::of(&server).all(name)[0].1;
    assert_eq!(metric("cardea_tls_client_authority_faults"), 1.0);
    assert_eq!(metric("cardea_tls_client_crl_expiry_timestamp_seconds"), 1_000_000_000.0);

    // Of itself, within some seconds.
    folder.write("staff.crl", &good);
    until("the list is taken", || (!server.ready().1.contains(what)).then_some(()));
    assert_eq!(metric("cardea_tls_client_authority_faults"), 0.0);
    assert_eq!(metric("cardea_tls_client_crl_expiry_timestamp_seconds"), 4_000_000_000.0);

    // Superseded by the one that holds.
    folder.write("staff.crl", &format!("{good}{expired}"));
    let from = server.program.stderr.len();
    assert!(server.reload().0);
    assert!(!server.ready().1.contains("client_authority"), "{}", server.ready().1);
    assert_eq!(metric("cardea_tls_client_authority_faults"), 0.0);
    assert_eq!(metric("cardea_tls_client_crl_expiry_timestamp_seconds"), 4_000_000_000.0);

    // From the future: clients get in.
    let soon = Wall::from_unix_seconds(3_900_000_000);
    folder.write("staff.crl", &staff.revocation_list(&[], soon, TO).unwrap());
    let ran = run(folder.path(), &["check"]);
    assert!(ran.code == Some(0) && ran.stderr.contains("is in the future"), "{ran:?}");
    assert!(server.reload().0);
    server.program.stderr.wait_for("is in the future", from);
    assert!(server.ready().1.contains("client_authority_suspect:staff:"), "{}", server.ready().1);
    assert_eq!(metric("cardea_tls_client_authority_faults"), 0.0);
    let text = server.program.stderr.text();
    assert!(!text.lines().skip(from).any(|line| line.contains("clients are refused")), "{text}");

    // By a reload: that of another authority.
    let other = Authority::new("partners", FROM, TO).unwrap();
    folder.write("staff.crl", &other.revocation_list(&[], FROM, TO).unwrap());
    let from = server.program.stderr.len();
    assert!(server.reload().0);
    server.program.stderr.wait_for("no revocation list is of", from);
    server.stop();
}
