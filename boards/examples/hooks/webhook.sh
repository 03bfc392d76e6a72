#!/bin/sh
# webhook.sh - sends an event of the gateway to a web address, as JSON.
#
#   hooks: {on_event: /usr/local/bin/webhook.sh}
#
# It needs curl, and openssl for a signature. Settings, in the file
# /etc/cairn/webhook.conf (lines NAME=value), which only the gateway's user should be able to read:
#   WEBHOOK_URL     where to send it
#   WEBHOOK_SECRET  optional: key of the header X-Cairn-Signature, HMAC-SHA-256 of the body
set -eu

conf=${WEBHOOK_CONF:-/etc/cairn/webhook.conf}
if [ -r "$conf" ]; then
    # shellcheck source=/dev/null
    . "$conf"
fi
: "${WEBHOOK_URL:?set WEBHOOK_URL in $conf}"

# HMAC of RFC 2104. Everyone can read the arguments of a program, so neither the secret nor the
# address is one. printf is a part of the shell.
numbers() { od -An -v -tu1; }

masked_key() { # $1: the number that masks each byte
    for byte in $key; do
        # shellcheck disable=SC2059 # the format is the byte
        printf "\\$(printf '%03o' $((byte ^ $1)))"
    done
}

sign() {
    if [ "$(printf '%s' "$WEBHOOK_SECRET" | wc -c)" -le 64 ]; then
        key=$(printf '%s' "$WEBHOOK_SECRET" | numbers)
    else
        key=$(printf '%s' "$WEBHOOK_SECRET" | openssl dgst -sha256 -binary | numbers)
    fi
    while [ "$(echo "$key" | wc -w)" -lt 64 ]; do
        key="$key 0"
    done
    {
        masked_key 92
        { masked_key 54 && printf '%s' "$body"; } | openssl dgst -sha256 -binary
    } | openssl dgst -sha256 -r
}

body=$(cat)
set -- --header 'Content-Type: application/json'
if [ -n "${WEBHOOK_SECRET:-}" ]; then
    signature=$(sign)
    set -- "$@" --header "X-Cairn-Signature: sha256=${signature%% *}"
fi
# Three tries, 8 s each: within the 30 s of hooks.limit.
printf 'url = "%s"\n' "$WEBHOOK_URL" |
    curl --config - --silent --show-error --fail --max-time 8 --retry 2 --retry-delay 1 \
        --retry-all-errors --output /dev/null "$@" --data-binary "$body"
