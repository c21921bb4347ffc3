"""requests-oauthlib's BackendApplicationClient: client credentials by both ways, calls with the token."""

from oauthlib.oauth2 import BackendApplicationClient, InvalidClientError
from requests.auth import HTTPBasicAuth
from requests_oauthlib import OAuth2Session

from common import (
    API_URL, CA_FILE, CLIENT_ID, CLIENT_SECRET, RESOURCE, SCOPE, TIMEOUT_SECONDS,
    check, check_answer, check_refused_without_token, metadata,
)

# The library has no discovery of its own.
endpoint = metadata()["token_endpoint"]
check_refused_without_token()


def credentials(method, secret):
    """The arguments of fetch_token for a way of authentication."""
    if method == "client_secret_basic":
        return {"auth": HTTPBasicAuth(CLIENT_ID, secret)}
    return {"client_secret": secret, "include_client_id": True}


def fetch(client, method, secret):
    """Asks for a token by `method` with `secret`."""
    return client.fetch_token(
        endpoint, verify=CA_FILE, timeout=TIMEOUT_SECONDS, resource=RESOURCE, **credentials(method, secret)
    )


for method in ("client_secret_basic", "client_secret_post"):
    with OAuth2Session(client=BackendApplicationClient(CLIENT_ID, scope=SCOPE.split())) as client:
        token = fetch(client, method, CLIENT_SECRET)
        check(token["token_type"].lower() == "bearer", f"{method}: token_type is {token['token_type']}")
        check(token["expires_in"] > 0, f"{method}: expires_in is {token['expires_in']}")
        check_answer(method, client.get(API_URL, verify=CA_FILE, timeout=TIMEOUT_SECONDS))

    with OAuth2Session(client=BackendApplicationClient(CLIENT_ID, scope=SCOPE.split())) as client:
        try:
            fetch(client, method, CLIENT_SECRET + "x")
            check(False, f"{method}: a wrong secret was accepted")
        except InvalidClientError:
            pass

print("ok requests-oauthlib")
