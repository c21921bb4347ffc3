"""What the Python programs share: the environment, the checks, the way to end."""

import os
import sys

import requests

ISSUER = os.environ["CARDEA_ISSUER"]
CA_FILE = os.environ["CARDEA_CA_FILE"]
CLIENT_ID = os.environ["CARDEA_CLIENT_ID"]
CLIENT_SECRET = os.environ["CARDEA_CLIENT_SECRET"]
SCOPE = os.environ["CARDEA_SCOPE"]
RESOURCE = os.environ["CARDEA_RESOURCE"]
API_URL = os.environ["CARDEA_API_URL"]
TIMEOUT_SECONDS = 20

# `requests` lets these win over the authority that a session was given.
for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
    os.environ.pop(name, None)


def check(holds, what):
    """Ends the program with `what` unless it holds. Not `assert`, which -O removes."""
    if not holds:
        raise SystemExit(f"{sys.argv[0]}: {what}")


def check_refused_without_token():
    """A call without a token is answered 401, with a Bearer challenge (RFC 6750 section 3)."""
    answer = requests.get(API_URL, verify=CA_FILE, timeout=TIMEOUT_SECONDS)
    check(answer.status_code == 401, f"without a token: expected 401, got {answer.status_code}")
    challenge = answer.headers.get("WWW-Authenticate", "")
    check(challenge.lower().startswith("bearer"), f"without a token: challenge is {challenge!r}")


def check_answer(what, answer):
    """A call with a token is answered 200, with JSON."""
    check(answer.status_code == 200, f"{what}: expected 200, got {answer.status_code}: {answer.text}")
    answer.json()


def metadata():
    """The discovery document, its issuer checked (RFC 8414 section 3.3)."""
    url = ISSUER.rstrip("/") + "/.well-known/openid-configuration"
    answer = requests.get(url, verify=CA_FILE, timeout=TIMEOUT_SECONDS)
    check(answer.status_code == 200, f"discovery: expected 200, got {answer.status_code}")
    document = answer.json()
    check(document["issuer"] == ISSUER, f"discovery: issuer is {document['issuer']}, not {ISSUER}")
    return document
