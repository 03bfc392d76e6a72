"""What happened at a gateway: over HTTP, in a file, on the terminal, and told to a program of the site.

    events.py BUILD [SCENARIO...]
"""

import http.server
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import threading

from cluster import ENDLESS, SOURCE
from errors import own_data, spoil
from http_view import gateway_with_http, get, is_up, wait_until
from scenarios import Scenarios

HOOKS = os.path.join(SOURCE, "boards", "examples", "hooks")
scenario = Scenarios()


def events(cluster, first=0):
    return json.loads(get(cluster, f"/v1/events?from={first}")[1])["events"]


def kinds(cluster, first=0):
    return [event["kind"] for event in events(cluster, first)]


def add_hook(cluster, lines, wanted="alarms", limit="30 s"):
    cluster.write("hook", f"#!/bin/sh\n{lines}\n")
    os.chmod(cluster.path("hook"), 0o700)
    with open(cluster.path("gateway.yaml"), "a") as file:
        file.write(f"hooks: {{on_event: {cluster.path('hook')}, events: {wanted}, limit: {limit}}}\n")


def told(cluster):
    try:
        with open(cluster.path("told")) as file:
            return [line for line in file.read().splitlines() if line.endswith(";")]
    except FileNotFoundError:
        return []


@scenario
def a_failure_is_told_everywhere_and_numbers_go_on_after_a_kill(build):
    with gateway_with_http(build, groups={"hall": ["board-1"], "yard": ["board-2"]}, rounds=ENDLESS, quorum=1) as cluster:
        add_hook(cluster, 'echo "$CAIRN_EVENT|$CAIRN_SUBJECT|$CAIRN_TEXT|$(cat);" >>"${0%hook}told"')
        spoil(own_data(cluster, "board-1"))
        cluster.start("gateway")
        wait_until(lambda: is_up(cluster), "the gateway answers")
        cluster.start("board-2")
        wait_until(lambda: "version_made" in kinds(cluster), "versions are events")
        cluster.start("board-1")
        wait_until(lambda: "board_failed" in kinds(cluster, 1), "the failure is an event")
        failed = next(event for event in events(cluster, 1) if event["kind"] == "board_failed")
        assert failed["subject"] == "board-1" and "label 77" in failed["text"] and failed["alarm"], failed
        first = kinds(cluster, 1)[0]
        assert first == "gateway_started", first
        wait_until(lambda: told(cluster), "the hook is told")
        kind, subject, text, line = told(cluster)[0].split("|")
        said = json.loads(line.rstrip(";"))
        assert (kind, subject) == ("board_failed", "board-1") and "label 77" in text, told(cluster)
        assert said["gateway"] == "gateway" and said["job"] == "digits" and said["event"] == failed, (said, failed)
        assert not [entry for entry in told(cluster) if entry.startswith("version_made")], told(cluster)
        state = json.loads(get(cluster, "/v1/state")[1])
        assert state["events"] >= failed["seq"], state["events"]

        cluster.command(cluster.aggregator, "pause", "gateway.yaml")
        wait_until(lambda: "command" in kinds(cluster), "a person's command is an event")
        cluster.command(cluster.aggregator, "snapshot", "gateway.yaml", "copy")
        wait_until(lambda: [event for event in events(cluster) if event["text"].startswith("snapshot: done: to ")],
                   "a command beside the gateway is an event")

        cluster.kill("gateway")
        printed = cluster.command(cluster.aggregator, "events", "gateway.yaml").stdout
        assert f"board_failed board-1: {failed['text']}" in printed, printed
        alarms = cluster.command(cluster.aggregator, "events", "--alarms", "gateway.yaml").stdout
        assert "board_failed board-1:" in alarms and "gateway_started" not in alarms, alarms
        lines = cluster.command(cluster.aggregator, "events", "--json", "gateway.yaml").stdout.splitlines()
        numbers = [json.loads(line)["seq"] for line in lines]
        assert numbers == list(range(1, len(numbers) + 1)), numbers
        cluster.start("gateway")
        wait_until(lambda: is_up(cluster), "the gateway answers again")
        wait_until(lambda: kinds(cluster, 1).count("gateway_started") == 2, "the start is an event")
        assert [event["seq"] for event in events(cluster, 1)][:len(numbers)] == numbers
        cluster.stop_all()


@scenario
def events_are_followed_as_they_happen(build):
    with gateway_with_http(build, rounds=2, quorum=1, groups={"hall": ["board-1"]}) as cluster:
        cluster.start("gateway")
        wait_until(lambda: is_up(cluster), "the gateway answers")
        follow = subprocess.Popen([cluster.aggregator, "events", "--follow", "gateway.yaml"], cwd=cluster.directory,
                                  stdout=subprocess.PIPE, text=True)
        try:
            cluster.start("board-1")
            seen = next(line for line in follow.stdout if " run_ended: " in line)
            assert "after 2 rounds: all rounds are done" in seen, seen
        finally:
            follow.terminate()
            follow.wait(60)
            follow.stdout.close()
        cluster.wait_for_end(120)


@scenario
def a_hook_that_hangs_is_ended_and_the_run_goes_on(build):
    with gateway_with_http(build, rounds=ENDLESS, quorum=1, groups={"hall": ["board-1"]}) as cluster:
        add_hook(cluster, 'echo "$CAIRN_EVENT;" >>"${0%hook}told"; sleep 1000', wanted='"*"', limit="1 s")
        cluster.start("gateway")
        cluster.start("board-1")
        cluster.wait_for_line("gateway", "hooks.on_event: ")
        assert "was ended after 1 s" in cluster.log("gateway"), cluster.log("gateway")
        wait_until(lambda: len(told(cluster)) >= 3, "further events are told")
        cluster.stop_all()


class Receiver(http.server.BaseHTTPRequestHandler):
    got = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Receiver.got.append((body, self.headers["X-Cairn-Signature"]))
        self.send_response(503 if len(Receiver.got) == 1 else 204)  # the second try arrives
        self.end_headers()

    def log_message(self, *arguments):
        pass


def run_example(name, cluster, **settings):
    """Runs an example as the gateway does, with its settings in a file."""
    conf = cluster.path(name + ".conf")
    with open(conf, "w") as file:
        file.writelines(f"{key}='{value}'\n" for key, value in settings.items())
    event = {"CAIRN_EVENT": "board_failed", "CAIRN_SUBJECT": "board-7", "CAIRN_TEXT": "the disk is full",
             "CAIRN_DATE": "2026-11-23T01:02:03Z", "CAIRN_GATEWAY": "gateway", "CAIRN_JOB": "digits", "CAIRN_RUN": "4f"}
    return subprocess.run([os.path.join(HOOKS, name)], input='{"v":1}\n', text=True, capture_output=True, timeout=60,
                          env={"PATH": f"{cluster.directory}:{os.environ['PATH']}", **event,
                               name.removesuffix(".sh").upper() + "_CONF": conf, "no_proxy": "127.0.0.1"}, check=True)


@scenario
def the_examples_tell_a_web_address_a_mailbox_and_a_broker(build):
    with gateway_with_http(build) as cluster:
        for name in ("sendmail", "mosquitto_pub"):  # say what they were given
            cluster.write(name, f'#!/bin/sh\n{{ echo "$@"; cat; }} >"{cluster.path("sent-" + name)}"\n')
            os.chmod(cluster.path(name), 0o700)
        run_example("mail.sh", cluster, MAIL_TO="ops@example.org")
        with open(cluster.path("sent-sendmail")) as file:
            mail = file.read()
        assert mail.startswith("-i -- ops@example.org\nTo: ops@example.org\n"), mail
        assert "Subject: [gateway] board_failed board-7\n" in mail and "board-7: the disk is full\n" in mail, mail
        run_example("mqtt.sh", cluster, MQTT_HOST="broker")
        with open(cluster.path("sent-mosquitto_pub")) as file:
            published = file.read()
        assert published == '-h broker -p 1883 -q 1 -t cairn/gateway/board_failed -s\n{"v":1}\n', published
        if not shutil.which("curl") or not shutil.which("openssl"):
            return "webhook.sh was not tried: no curl or openssl"
        for name in ("curl", "openssl", "od", "wc"):  # say how they were called
            cluster.write(name, f'#!/bin/sh\necho "{name} $*" >>"{cluster.path("called")}"\nexec {shutil.which(name)} "$@"\n')
            os.chmod(cluster.path(name), 0o700)
        server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            for secret in ("horse staple", "64 bytes" * 8, "a longer one that is hashed first " * 3, "sch\u00f6n"):
                run_example("webhook.sh", cluster, WEBHOOK_URL=f"http://127.0.0.1:{server.server_port}/hush", WEBHOOK_SECRET=secret)
                body, signature = Receiver.got[-1]
                wanted = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
                assert body == b'{"v":1}' and signature == "sha256=" + wanted, (secret, Receiver.got)
                with open(cluster.path("called")) as file:
                    called = file.read()
                assert "curl " in called and "openssl " in called and secret not in called and "hush" not in called, called
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
        assert len(Receiver.got) == 5, Receiver.got


if __name__ == "__main__":
    scenario.main()
