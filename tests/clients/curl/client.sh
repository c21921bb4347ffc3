#!/bin/sh
# The whole trip with curl: discovery, a token by both ways of authentication, a call with it and without.
set -eu

fail() {
    echo "curl: $*" >&2
    exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints the status code; the body goes to $work/body, the head to $work/head.
fetch() {
    curl --silent --show-error --cacert "$CARDEA_CA_FILE" --max-time 20 \
        --dump-header "$work/head" --output "$work/body" --write-out '%{http_code}' "$@"
}

# One string member of the flat JSON document in $work/body. Enough here: no value that is asked for has escapes.
member() {
    tr -d '\n' <"$work/body" | sed -n "s/.*\"$1\"[[:space:]]*:[[:space:]]*\"\([^\"]*\)\".*/\1/p"
}

expect() {
    [ "$2" = "$3" ] || fail "$1: expected $3, got $2: $(cat "$work/body")"
}

call_with_token() {
    token=$(member access_token)
    [ -n "$token" ] || fail "$1: no access_token in $(cat "$work/body")"
    expect "$1: token_type" "$(member token_type | tr '[:upper:]' '[:lower:]')" bearer
    grep -qi '^cache-control:.*no-store' "$work/head" || fail "$1: the token response may be cached"
    expect "$1: call with the token" "$(fetch --header "Authorization: Bearer $token" "$CARDEA_API_URL")" 200
    grep -q '^[[:space:]]*[{[]' "$work/body" || fail "$1: the answer is not JSON: $(cat "$work/body")"
}

expect "discovery" "$(fetch "${CARDEA_ISSUER%/}/.well-known/openid-configuration")" 200
expect "issuer" "$(member issuer | sed 's:\\/:/:g')" "$CARDEA_ISSUER"
endpoint=$(member token_endpoint | sed 's:\\/:/:g')
[ -n "$endpoint" ] || fail "the metadata name no token_endpoint"

expect "call without a token" "$(fetch "$CARDEA_API_URL")" 401
grep -qi '^www-authenticate:[[:space:]]*bearer' "$work/head" || fail "the 401 has no Bearer challenge"

set -- --data-urlencode grant_type=client_credentials \
    --data-urlencode "scope=$CARDEA_SCOPE" --data-urlencode "resource=$CARDEA_RESOURCE"
basic="$CARDEA_CLIENT_ID:$CARDEA_CLIENT_SECRET"

expect "client_secret_basic" "$(fetch --user "$basic" "$@" "$endpoint")" 200
call_with_token client_secret_basic

expect "client_secret_post" "$(fetch "$@" --data-urlencode "client_id=$CARDEA_CLIENT_ID" \
    --data-urlencode "client_secret=$CARDEA_CLIENT_SECRET" "$endpoint")" 200
call_with_token client_secret_post

expect "wrong secret" "$(fetch --user "${basic}x" "$@" "$endpoint")" 401
expect "wrong secret: error" "$(member error)" invalid_client
grep -qi '^www-authenticate:[[:space:]]*basic' "$work/head" || fail "wrong secret: no Basic challenge"

echo "ok curl"
