#!/bin/sh
# mqtt.sh - publishes an event of the gateway over MQTT, as JSON.
#
#   hooks: {on_event: /usr/local/bin/mqtt.sh}
#
# It needs mosquitto_pub (package mosquitto-clients). Settings, in the file
# /etc/cairn/mqtt.conf (lines NAME=value), which the gateway's user must be able to read:
#   MQTT_HOST     the broker
#   MQTT_PORT     optional: its port, else 1883
#   MQTT_TOPIC    optional: else cairn; the topic is MQTT_TOPIC/GATEWAY/KIND
#   MQTT_OPTIONS  optional: more options of mosquitto_pub, such as --cafile /etc/ssl/broker.pem
set -eu

conf=${MQTT_CONF:-/etc/cairn/mqtt.conf}
if [ -r "$conf" ]; then
    # shellcheck source=/dev/null
    . "$conf"
fi
: "${MQTT_HOST:?set MQTT_HOST in $conf}"

# The options are several words.
# shellcheck disable=SC2086
exec mosquitto_pub -h "$MQTT_HOST" -p "${MQTT_PORT:-1883}" ${MQTT_OPTIONS:-} -q 1 \
    -t "${MQTT_TOPIC:-cairn}/$CAIRN_GATEWAY/$CAIRN_EVENT" -s
