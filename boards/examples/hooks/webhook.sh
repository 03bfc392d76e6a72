#!/bin/sh
# webhook.sh - sends an event of the gateway to a web address, as JSON.
#
#   hooks: {on_event: /usr/local/bin/webhook.sh}
#
# It needs curl, and openssl for a signature. Settings, in the environment or in the file
# /etc/cairn/webhook.conf (lines NAME=value):
#   WEBHOOK_URL     where to send it
#   WEBHOOK_SECRET  optional: key of the header X-Cairn-Signature, HMAC-SHA-256 of the body
set -eu

conf=${WEBHOOK_CONF:-/etc/cairn/webhook.conf}
if [ -r "$conf" ]; then
    # shellcheck source=/dev/null
    . "$conf"
fi
: "${WEBHOOK_URL:?set WEBHOOK_URL in $conf}"

body=$(cat)
set -- --header 'Content-Type: application/json'
if [ -n "${WEBHOOK_SECRET:-}" ]; then
    signature=$(printf '%s' "$body" | openssl dgst -sha256 -hmac "$WEBHOOK_SECRET" -r)
    set -- "$@" --header "X-Cairn-Signature: sha256=${signature%% *}"
fi
# Three tries, 8 s each: within the 30 s of hooks.limit.
exec curl --silent --show-error --fail --max-time 8 --retry 2 --retry-delay 1 --retry-all-errors \
    --output /dev/null "$@" --data-binary "$body" "$WEBHOOK_URL"
