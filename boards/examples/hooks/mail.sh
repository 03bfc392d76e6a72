#!/bin/sh
# mail.sh - mails an event of the gateway.
#
#   hooks: {on_event: /usr/local/bin/mail.sh}
#
# It needs a sendmail, for example of the packages msmtp-mta or postfix. Settings, in the file
# /etc/cairn/mail.conf (lines NAME=value), which the gateway's user must be able to read:
#   MAIL_TO    who gets it
#   MAIL_FROM  optional: who sends it
#   SENDMAIL   optional: the program, else sendmail
set -eu

conf=${MAIL_CONF:-/etc/cairn/mail.conf}
if [ -r "$conf" ]; then
    # shellcheck source=/dev/null
    . "$conf"
fi
: "${MAIL_TO:?set MAIL_TO in $conf}"

# Texts of events have no line breaks, so they cannot add lines to the head. "-t" would read
# addresses from the head; the address is an argument instead.
{
    printf 'To: %s\n' "$MAIL_TO"
    [ -z "${MAIL_FROM:-}" ] || printf 'From: %s\n' "$MAIL_FROM"
    printf 'Subject: [%s] %s %s\n' "$CAIRN_GATEWAY" "$CAIRN_EVENT" "$CAIRN_SUBJECT"
    printf 'Content-Type: text/plain; charset=utf-8\n\n'
    printf '%s: %s\n\n' "${CAIRN_SUBJECT:-$CAIRN_GATEWAY}" "$CAIRN_TEXT"
    printf 'Gateway %s, job %s, run %s, at %s.\n' "$CAIRN_GATEWAY" "$CAIRN_JOB" "$CAIRN_RUN" \
        "$CAIRN_DATE"
} | "${SENDMAIL:-sendmail}" -i -- "$MAIL_TO"
