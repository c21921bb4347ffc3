//! What an authority says of our certificate is fetched from its responder and sent along to clients.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::support::{Connection, Folder, Server, folder::Settings, until};

const OPENSSL: &str = "
[req]
distinguished_name = dn
[dn]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
[leaf]
subjectAltName = DNS:stapled.test
authorityInfoAccess = OCSP;URI:http://ADDRESS/responder
";

fn openssl(folder: &Path, arguments: &str) {
    let ran = Command::new("openssl")
        .current_dir(folder)
        .args(arguments.split(' '))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{arguments}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// A responder that lets OpenSSL answer what is posted to it.
fn responder(folder: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).unwrap() > 0 {}
            assert!(head.starts_with("POST /responder HTTP/1.1\r\n"), "{head}");
            for line in head.to_ascii_lowercase().lines() {
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            fs::write(folder.join("asked.der"), body).unwrap();
            openssl(
                &folder,
                "ocsp -reqin asked.der -index index.txt -CA ocsp-ca.pem -rsigner ocsp-ca.pem -rkey ocsp-ca.key -ndays 2 -respout answer.der",
            );
            let answer = fs::read(folder.join("answer.der")).unwrap();
            let head =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", answer.len());
            stream.get_mut().write_all(&[head.as_bytes(), &answer].concat()).unwrap();
        }
    });
    address
}

#[test]
fn a_response_is_fetched_and_sent_along() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("SKIPPED: no openssl on this machine");
        return;
    }
    let folder = Folder::new(&Settings::default());
    let path = folder.path();
    let address = responder(path.to_owned());
    folder.write("x.cnf", &OPENSSL.replace("ADDRESS", &address.to_string()));
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(
        path,
        &format!(
            "req -x509 -config x.cnf -extensions ca {key} -keyout ocsp-ca.key -out ocsp-ca.pem -days 30 -subj /CN=ca"
        ),
    );
    openssl(path, &format!("req -config x.cnf {key} -keyout leaf.key -out leaf.csr -subj /CN=leaf"));
    openssl(
        path,
        "x509 -req -in leaf.csr -CA ocsp-ca.pem -CAkey ocsp-ca.key -set_serial 7 -days 20 -extfile x.cnf -extensions leaf -out leaf.pem",
    );
    folder.write("stapled.pem", &(folder.read("leaf.pem") + &folder.read("ocsp-ca.pem")));
    folder.write("index.txt", "V\t401231235959Z\t\t07\tunknown\t/CN=leaf\n");
    let more = "\n[[listener.tls.certificate]]\nchain = \"stapled.pem\"\nkey = \"leaf.key\"\nocsp_staple = \"fetch\"\n\n[authorization_server]\n";
    folder.write("cardea.toml", &folder.read("cardea.toml").replace("\n[authorization_server]\n", more));
    let server = Server::start(&folder);
    let to = server.address.to_string();
    let said = until("the staple", || {
        let ran = Command::new("openssl")
            .current_dir(path)
            .args([
                "s_client",
                "-status",
                "-CAfile",
                "ocsp-ca.pem",
                "-servername",
                "stapled.test",
                "-connect",
                &to,
            ])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Some(String::from_utf8_lossy(&ran.stdout).into_owned())
            .filter(|said| said.contains("OCSP Response Status"))
    });
    assert!(said.contains("Cert Status: good") && said.contains("Verify return code: 0 (ok)"), "{said}");
    let mut admin = Connection::plain(server.admin).unwrap();
    admin.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let metrics = admin.answer().unwrap().unwrap().text();
    for name in [
        "cardea_tls_certificate_expiry_timestamp_seconds{",
        "cardea_tls_ocsp_staple_expiry_timestamp_seconds{",
    ] {
        assert!(
            metrics.lines().any(|line| line.starts_with(name) && line.contains("stapled.pem")),
            "{metrics}"
        );
    }
    server.stop();
}
