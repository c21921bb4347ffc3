"""MSAL's ConfidentialClientApplication with a generic OpenID authority (`oidc_authority`).

MSAL discovers by itself and authenticates by client_secret_post; it offers no other way for a secret.
"""

from urllib.parse import urlsplit

import msal
import requests

from common import (
    API_URL, CA_FILE, CLIENT_ID, CLIENT_SECRET, ISSUER, SCOPE, TIMEOUT_SECONDS,
    check, check_answer, check_refused_without_token,
)

check_refused_without_token()

# MSAL insists on a path in the authority. Where the issuer has none, "/." is a path that normalisation takes
# away again before the request is sent (RFC 3986 section 6.2.2.3).
authority = ISSUER if urlsplit(ISSUER).path.strip("/") else ISSUER.rstrip("/") + "/."


def application(secret):
    """An application that trusts the authority of the server under test."""
    return msal.ConfidentialClientApplication(
        CLIENT_ID,
        client_credential=secret,
        oidc_authority=authority,
        verify=CA_FILE,
        timeout=TIMEOUT_SECONDS,
    )


client = application(CLIENT_SECRET)
result = client.acquire_token_for_client(scopes=SCOPE.split())
check("access_token" in result, f"no token: {result.get('error')}: {result.get('error_description')}")
check(result["token_type"].lower() == "bearer", f"token_type is {result['token_type']}")
headers = {"Authorization": "Bearer " + result["access_token"]}
check_answer("call", requests.get(API_URL, headers=headers, verify=CA_FILE, timeout=TIMEOUT_SECONDS))

refused = application(CLIENT_SECRET + "x").acquire_token_for_client(scopes=SCOPE.split())
check(refused.get("error") == "invalid_client", f"a wrong secret gives {refused.get('error')}")

print("ok msal")
