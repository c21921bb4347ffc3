#!/usr/bin/env python3
"""What part of a request's instructions authentication is, on a connection that shows the same token each time.

    cargo build --release --package cardea
    python3 bench/share/share.py target/release/cardea

Runs the program under valgrind's callgrind with the configuration of the bench `authenticated` (TLS 1.3, a token by
ES256, an access log), sends few requests and then many over one connection, and divides what the functions that read
the credentials, find the verdict and compare the route's demand with it cost more by what all of the program did.
What is done once cancels out. The program has to be one whose functions are not inlined across crates: the profile
`release`, not `dist`. Needs valgrind and openssl; a busy machine makes no difference.
"""

import base64
import json
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

FEW, MANY = 200, 4200
ISSUER, AUDIENCE = "https://issuer.example", "https://api.example"
CONFIGURATION = pathlib.Path(__file__).parent.parent / "peers" / "authenticated-cardea.toml"
# As callgrind names them; none calls another.
AUTHENTICATION = [
    "cardea_identity::bearer::bearer_credentials",
    "cardea_identity::authenticator::Authenticator::recall",
    "cardea_identity::remembered::ConnectionTokenCache::put_back",
    "cardea_gateway::decision::identify::meets_demand",
]


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*arguments, data=None):
    return subprocess.run(["openssl", *arguments], input=data, capture_output=True, check=True).stdout


def fixed(der):
    """A signature as r and s of 32 octets each, from its DER form (RFC 7518, section 3.4)."""
    numbers, rest = b"", der[2:]
    for _ in range(2):
        length = rest[1]
        numbers += rest[2 : 2 + length].lstrip(b"\0").rjust(32, b"\0")
        rest = rest[2 + length :]
    return numbers


def token(folder):
    """Makes a key, its key set and a certificate in `folder`; a token that the key has signed."""
    key, options = str(folder / "signing.key"), ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
    openssl("genpkey", *options, "-out", key)
    point = openssl("pkey", "-in", key, "-pubout", "-outform", "DER")[-64:]
    jwk = {"kty": "EC", "crv": "P-256", "kid": "1", "x": base64url(point[:32]), "y": base64url(point[32:])}
    (folder / "jwks.json").write_text(json.dumps({"keys": [jwk]}))
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "caller", "client_id": "caller", "iat": now, "exp": now + 3600}
    parts = [{"alg": "ES256", "typ": "at+jwt", "kid": "1"}, claims | {"jti": "1", "padding": "x" * 80}]
    signed = ".".join(base64url(json.dumps(part).encode()) for part in parts)
    signature = fixed(openssl("dgst", "-sha256", "-sign", key, data=signed.encode()))
    own = ["-keyout", str(folder / "certificate.key"), "-out", str(folder / "certificate.pem"), "-days", "1"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *own, *names)
    return f"{signed}.{base64url(signature)}"


def serve(listener):
    """An origin that answers whatever it is sent, for as long as it is sent something."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=[connection], daemon=True).start()


def answer(connection):
    while connection.recv(65536):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def request(folder, port, bearer, count):
    """Sends so many requests over one connection, one after the other."""
    context = ssl.create_default_context(cafile=folder / "certificate.pem")
    deadline = time.monotonic() + 120
    while True:
        try:
            plain = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    head = f"GET /small HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {bearer}\r\n\r\n".encode()
    with context.wrap_socket(plain, server_hostname="localhost") as connection:
        for _ in range(count):
            connection.sendall(head)
            response = b""
            while not response.endswith(b"\r\n\r\nok"):
                received = connection.recv(65536)
                assert received, response
                response += received
            assert response.startswith(b"HTTP/1.1 200 "), response


def count(program, folder, bearer, origin, requests):
    """Instructions of a whole run, and of authentication in it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    values = {"DIRECTORY": folder, "LISTEN": f"127.0.0.1:{port}", "ISSUER": ISSUER, "AUDIENCE": AUDIENCE}
    values |= {"ALGORITHM": "ES256", "KEYS": folder, "ORIGIN": f"127.0.0.1:{origin}"}
    text = CONFIGURATION.read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    (folder / "cardea.toml").write_text(text)
    profile = folder / "profile"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}", program, "run"]
    server = subprocess.Popen([*command, "--config", folder / "cardea.toml"], stderr=subprocess.DEVNULL)
    try:
        request(folder, port, bearer, requests)
    finally:
        server.terminate()
        server.wait()
    options = ["--inclusive=yes", "--threshold=100", profile]
    lines = subprocess.run(["callgrind_annotate", *options], capture_output=True, check=True, text=True).stdout
    total, parts = 0, dict.fromkeys(AUTHENTICATION, 0)
    for line in lines.splitlines():
        found = re.match(r"\s*([\d,]+) \(\s*[\d.]+%\)\s+(\S.*)", line)
        if not found:
            continue
        instructions, name = int(found[1].replace(",", "")), found[2].split(" [")[0].split(":", 1)[-1]
        if found[2].startswith("PROGRAM TOTALS"):
            total = instructions
        elif name in parts:
            # A function has a line for each file that something of it was inlined from; the largest is the whole.
            parts[name] = max(parts[name], instructions)
    return total, parts


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=[listener], daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        bearer = token(folder)
        origin = listener.getsockname()[1]
        (few, few_parts), (many, many_parts) = (
            count(program, folder, bearer, origin, requests) for requests in (FEW, MANY)
        )
    whole = (many - few) / (MANY - FEW)
    parts = {name: (many_parts[name] - few_parts[name]) / (MANY - FEW) for name in AUTHENTICATION}
    missing = [name for name, cost in parts.items() if cost <= 0]
    if missing:
        sys.exit(f"not found in the profile: {', '.join(missing)}")
    for name, cost in parts.items():
        print(f"{cost:8.0f}  {name}")
    print(f"{whole:8.0f}  instructions per request, {100 * sum(parts.values()) / whole:.2f} % of them to authenticate")


if __name__ == "__main__":
    main()
