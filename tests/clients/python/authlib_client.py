"""Authlib's OAuth2Session: metadata, client credentials by both ways, calls with the token."""

from authlib.integrations.base_client.errors import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata

from common import (
    API_URL, CA_FILE, CLIENT_ID, CLIENT_SECRET, RESOURCE, SCOPE, TIMEOUT_SECONDS,
    check, check_answer, check_refused_without_token, metadata,
)


def session(method, secret):
    """A session that authenticates by `method`."""
    return OAuth2Session(CLIENT_ID, secret, scope=SCOPE, token_endpoint_auth_method=method)


def fetch(client):
    """Asks for a token."""
    return client.fetch_token(
        endpoint, grant_type="client_credentials", resource=RESOURCE, verify=CA_FILE, timeout=TIMEOUT_SECONDS
    )


document = metadata()
AuthorizationServerMetadata(document).validate()
endpoint = document["token_endpoint"]
check_refused_without_token()

for method in ("client_secret_basic", "client_secret_post"):
    check(method in document["token_endpoint_auth_methods_supported"], f"metadata do not list {method}")
    with session(method, CLIENT_SECRET) as client:
        token = fetch(client)
        check(token["token_type"].lower() == "bearer", f"{method}: token_type is {token['token_type']}")
        check(token["expires_in"] > 0, f"{method}: expires_in is {token['expires_in']}")
        check_answer(method, client.get(API_URL, verify=CA_FILE, timeout=TIMEOUT_SECONDS))

    with session(method, CLIENT_SECRET + "x") as client:
        try:
            fetch(client)
            check(False, f"{method}: a wrong secret was accepted")
        except OAuthError as error:
            check(error.error == "invalid_client", f"{method}: a wrong secret gives {error.error}")

print("ok authlib")
