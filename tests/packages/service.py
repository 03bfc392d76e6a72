"""The packages' services under a real systemd: what they may open, when they start again, a second state directory.

usage: service.py BUILD

systemd runs as the first process of its own namespaces (processes, mounts, cgroups, network, names), over a copy of
this machine's files that is kept in memory and with device files of its own. Nothing of this machine is changed. The
kernel's table of device classes (/proc/devices) and the device files are those of a Jetson Orin; no driver is behind
them, so that opening one that the unit allows gives "no such device", and another "not permitted".
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

from packages import SOURCE, SERVICES, Root, make_packages, package_of

STATES = os.path.join(SOURCE, "tests", "data", "states")
DIGITS = os.path.join(SOURCE, "tests", "data", "digits")
INIT = "/lib/systemd/systemd"
SECONDS = 200  # for all of it, which takes five on an idle machine

# Mode and group as udev's rules of L4T r36 have them; /dev/other is none of the GPU's.
CLASSES = "Character devices:\n  1 mem\n 10 misc\n226 drm\n510 17000000.gpu\n511 17000000.gpu\n512 other\n\nBlock devices:\n"
DEVICES = {"nvmap": (10, 250, "video"), "host1x-fence": (10, 251, "video"), "dri/renderD128": (226, 128, "render"),
           "nvgpu/igpu0/ctrl": (510, 0, "video"), "nvgpu/igpu0/as": (511, 3, "video"), "other": (512, 0, "video"),
           "null": (1, 3, "root"), "zero": (1, 5, "root"), "random": (1, 8, "root"), "urandom": (1, 9, "root"),
           "tty": (5, 0, "root"), "full": (1, 7, "root")}
GPU = ["nvmap", "host1x-fence", "dri/renderD128", "nvgpu/igpu0/ctrl", "nvgpu/igpu0/as"]

BOOT = """\
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
cp -a "$2" "$1/system" # a layer must not lie within another one
mount -t overlay overlay -o "lowerdir=$1/system:/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --bind "$3/devices" proc/devices
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for folder in run tmp dev; do mount -t tmpfs tmpfs "$folder"; done
sh "$3/nodes"
mkdir out
mount --bind "$3" out
test "${4:-}" != probe || exit 0
mkdir old
pivot_root . old # a service has no user namespace of its own below a chroot
umount -l old
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin %s --unit=cairn-test.target --show-status=no \\
    --log-target=journal </dev/null
""" % INIT

TARGET = "[Unit]\nRequires=cairn-test.service\n"
DRIVER = """\
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh /out/drive
StandardOutput=file:/out/said
StandardError=inherit
"""

# In place of cairn-node: opens the devices as the service.
OPENER = """\
#!/usr/bin/python3
import errno, json, os, socket, sys
found = {}
for name in %s:
    try:
        os.close(os.open("/dev/" + name, os.O_RDWR))
        found[name] = "OK"
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
found["cache"] = os.environ.get("CUDA_CACHE_PATH")
with open("/dev/nvgpu/igpu0/power") as file:
    found["power"] = file.read()
with open(os.path.join(os.environ["STATE_DIRECTORY"], "found.json"), "w") as file:
    json.dump(found, file)
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
"""

DRIVE = """\
# A service that has failed, or will be started again: what systemd decided.
decided()
{
    systemctl reset-failed "$1" 2>/dev/null
    systemctl start "$1"
    while :; do
        case $(systemctl show -P SubState "$1") in
        failed | auto-restart | dead) break ;;
        esac
        sleep 0.1
    done
    echo "$(systemctl show -P SubState "$1") $(systemctl show -P ExecMainStatus "$1")" >"/out/$2"
    systemctl stop "$1"
}

cp /usr/bin/cairn-node /run/cairn-node
cp /out/opener /usr/bin/cairn-node
decided cairn-node opened
cp -L /var/lib/cairn/found.json /out/found.json
rm /etc/systemd/system/cairn-node.service.d/jetson-gpu.conf
systemctl daemon-reload
decided cairn-node opened.without
cp -L /var/lib/cairn/found.json /out/found.without.json

decided cairn-node@one opened.one
cp -L /var/lib/cairn-nodes/one/found.json /out/found.one.json

cp /run/cairn-node /usr/bin/cairn-node
# docs/run-a-site.md, "Several nodes on one machine".
systemctl start --no-block cairn-node@one cairn-node@two
for name in one two; do
    for _ in $(seq 100); do [ -e /var/lib/cairn-nodes/$name/written_by ] || sleep 0.1; done
    stat -L -c '%U %a' /var/lib/cairn-nodes/$name
    systemctl show -P ControlGroup cairn-node@$name
done >/out/several
systemctl stop cairn-node@one cairn-node@two
systemctl start --no-block cairn-node@three # has no profile
systemctl show -P ActiveState cairn-node@three >/out/no_profile

mkdir -p /var/lib/private/cairn
cp /out/checkpoint.a /var/lib/private/cairn/
decided cairn-node later_state
rm /var/lib/private/cairn/checkpoint.a
echo 'nonsense: 1' >>/etc/cairn/node.yaml
decided cairn-node wrong_profile

decided cairn-aggregator no_job
cp /out/job.yaml /etc/cairn/job.yaml
systemd-sysusers cairn-aggregator.conf
systemctl daemon-reload
systemctl reset-failed cairn-aggregator
systemctl start cairn-aggregator
systemctl show -P SubState cairn-aggregator >/out/first_run
cairn-aggregator enroll /etc/cairn/gateway.yaml board-1 -o /tmp/board-1.key
stat -c '%n %a %U %G' /run/cairn-aggregator/*.sock >/out/sockets
steer()
{
    setpriv --reuid 4321 --regid nogroup --groups "$1" cairn-aggregator "$2" /etc/cairn/gateway.yaml 2>&1
}
{ steer cairn-operator pause; steer cairn-operator stop; steer cairn-view resume; } >/out/steered
systemctl stop cairn-aggregator
# The sockets are stopped because the service was, a moment later.
for _ in $(seq 50); do [ -z "$(ls -A /run/cairn-aggregator)" ] || sleep 0.1; done
ls -A /run/cairn-aggregator >/out/sockets_after

# docs/run-a-site.md, "Go on from a trained model with other values", as a service.
sed -i 's|^state: .*|state: /var/lib/cairn-aggregator-2|' /etc/cairn/gateway.yaml
mkdir -p /etc/systemd/system/cairn-aggregator.service.d
printf '[Service]\\nStateDirectory=cairn-aggregator-2\\n' >/etc/systemd/system/cairn-aggregator.service.d/override.conf
systemctl daemon-reload
cairn-aggregator init --after /var/lib/cairn-aggregator --version none /etc/cairn/gateway.yaml
systemctl start cairn-aggregator
systemctl show -P SubState cairn-aggregator >/out/next_run
cairn-aggregator status --json /etc/cairn/gateway.yaml >/out/next_status
ls -ld /var/lib/cairn-aggregator-2
systemctl stop cairn-aggregator

# A board with two systems whose nvbootctrl is a script: nothing happens before RAUC has its settings.
systemctl is-enabled cairn-update-keep cairn-update-check >/out/update_enabled 2>&1
systemctl start cairn-update-check
{ systemctl show -P ConditionResult cairn-update-check; ls /run/cairn-update 2>/dev/null; } >/out/update_without
mkdir -p /etc/rauc
: >/etc/rauc/system.conf
echo CAIRN_BOOT=nvbootctrl >/etc/default/cairn-update
cp /out/nvbootctrl /usr/local/bin/
systemctl start cairn-update-check
for _ in $(seq 100); do [ -e /run/cairn-update/report ] || sleep 0.1; done
cat /run/cairn-update/report >/out/update_report
systemctl start cairn-update-keep 2>/dev/null || true
systemctl show -P Result cairn-update-keep >/out/update_keep # no partition is mounted for what both systems share
journalctl --no-pager -o cat >/out/journal 2>&1
echo done >/out/end
systemctl --force --force poweroff
"""

NVBOOTCTRL = """\
#!/bin/sh
echo "$*" >>/out/update_calls
if [ "$1" = -t ]; then
    printf 'Current rootfs slot: A\\nActive rootfs slot: A\\nnum_slots: 2\\n'
    for slot in 0 1; do echo "slot: $slot,             retry_count: 3,             status: normal"; done
fi
"""

# A credential's file has an access list, which not every kernel gives to a file system in memory.
KEY = """\
[Service]
LoadCredential=
ExecStartPre=+/bin/sh -c 'cd /var/lib/private/cairn && cp /etc/cairn/node.key node.key && chown --reference . node.key'
ExecStart=
ExecStart=/usr/bin/cairn-node run --key /var/lib/cairn/node.key $CAIRN_OPTIONS /etc/cairn/node.yaml
"""

INSTANCE_KEY = KEY.replace("private/cairn", "private/cairn-nodes/%i").replace("lib/cairn/", "lib/cairn-nodes/%i/") \
                  .replace("/etc/cairn/node.", "/etc/cairn/nodes/%i.")

NODE = """\
schema: cairn/site/v1
extends: generic-x86-64
name: board-1
state: /var/lib/cairn
aggregator: {address: "127.0.0.1:5684", key: node.key}
data:
  digits: {inputs: images.npy, labels: labels.npy}
"""
GATEWAY = """\
schema: cairn/site/v1
extends: generic-x86-64
name: gateway
state: /var/lib/cairn-aggregator
gateway: {listen: "0.0.0.0:5684"}
job: job.yaml
"""
JOB = """\
schema: cairn/job/v1
name: digits
model: model.onnx
loss: cross_entropy
data: {set: digits}
train: {learning_rate: 0.05}
rounds: {count: 5, quorum: 1}
"""


def write(folder, name, text, mode=0o644):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


def write_nodes(out):
    lines = ["umask 022", "cd dev", "mkdir -p dri nvgpu/igpu0 shm pts", "ln -s /proc/self/fd fd",
             "mount -t devpts -o newinstance,ptmxmode=666 devpts pts", "ln -s pts/ptmx ptmx",
             "echo 0 >nvgpu/igpu0/power", "chmod 644 nvgpu/igpu0/power"]
    for name, (major, minor, group) in DEVICES.items():
        lines.append(f"mknod -m {666 if group == 'root' else 660} {name} c {major} {minor}")
        lines.append(f"chgrp {group} {name} 2>/dev/null || chmod 666 {name}")  # as where there is no such group
    write(out, "nodes", "\n".join(["set -e", *lines]) + "\n")


def prepare(build, folder):
    out, root = os.path.join(folder, "out"), Root(os.path.join(folder, "system"))
    packages = make_packages(build, os.path.join(folder, "packages"))
    root.write("proc/device-tree/compatible", b"nvidia,p3768-0000+p3767-0005\0nvidia,tegra234\0")
    root.dpkg("-i", *(package_of(packages, name) for name in (*SERVICES, "cairn-boards", "cairn-update")))
    for part in ("proc", "tmp", "var/lib/dpkg"):  # what the machine below has itself
        shutil.rmtree(root.path(part))
    write(out, "devices", CLASSES)
    write(out, "opener", OPENER % json.dumps([*GPU, "other"]), 0o755)
    write(out, "drive", DRIVE)
    write(out, "nvbootctrl", NVBOOTCTRL, 0o755)
    write(out, "job.yaml", JOB)
    write_nodes(out)
    write(root.folder, "etc/systemd/system/cairn-test.target", TARGET)
    write(root.folder, "etc/systemd/system/cairn-test.service", DRIVER)
    write(root.folder, "etc/cairn/node.yaml", NODE)
    write(root.folder, "etc/cairn/gateway.yaml", GATEWAY)
    write(root.folder, "etc/cairn/node.key", f"cairn-key-1 board-1 {'5a' * 32}\n", 0o600)
    write(root.folder, "etc/systemd/system/cairn-node.service.d/key.conf", KEY)
    for name in ("one", "two"):
        profile = NODE.replace("board-1", name).replace("lib/cairn", f"lib/cairn-nodes/{name}")
        write(root.folder, f"etc/cairn/nodes/{name}.yaml", re.sub(r"(images|labels)\.npy", r"../\g<0>", profile))
        write(root.folder, f"etc/cairn/nodes/{name}.key", f"cairn-key-1 {name} {'5b' * 32}\n", 0o600)
    write(root.folder, "etc/systemd/system/cairn-node@.service.d/key.conf", INSTANCE_KEY)
    shutil.copy(os.path.join(DIGITS, "digits-mlp.onnx"), root.path("etc/cairn/model.onnx"))
    for part in ("images", "labels"):
        shutil.copy(os.path.join(DIGITS, f"board-1-{part}.npy"), root.path(f"etc/cairn/{part}.npy"))
    state = sorted(os.listdir(STATES))[0]
    with tarfile.open(os.path.join(STATES, state)) as archive:
        later = b"cairnck9" + archive.extractfile("state/board-1/checkpoint.a").read()[8:]
    with open(os.path.join(out, "checkpoint.a"), "wb") as file:
        file.write(later)
    write(folder, "boot", BOOT)
    os.mkdir(os.path.join(folder, "memory"))
    return out, root


def boot(folder, out, root, *words):
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net", "--cgroup", "sh",
               os.path.join(folder, "boot"), os.path.join(folder, "memory"), root.folder, out, *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)


def said(out, name):
    with open(os.path.join(out, name)) as file:
        return file.read().strip()


def the_gpu_is_open_and_nothing_else(out):
    assert said(out, "opened") == "dead 0", said(out, "opened")
    found = json.loads(said(out, "found.json"))
    print("as a service:", ", ".join(f"{name} {found[name]}" for name in [*GPU, "other"]))
    for name in GPU:
        assert found[name] in ("OK", "ENXIO", "ENODEV"), f"the service may not open /dev/{name}: {found[name]}"
    assert found["power"] == "1\n", "the GPU had no power before the service began"
    assert found["cache"] == "/var/lib/cairn/cuda", found["cache"]
    without = json.loads(said(out, "found.without.json"))
    if found["other"] not in ("EPERM", "EACCES") and without["other"] == found["other"]:
        return print("left out: this kernel lets no control group limit devices")
    assert found["other"] == "EPERM", "the service may open what is not the GPU's"
    assert all(without[name] in ("EPERM", "EACCES") for name in GPU), f"the drop-in is not what opens the GPU: {without}"


def each_of_several_nodes_has_a_state_and_a_user_of_its_own(out):
    with open(os.path.join(out, "found.one.json")) as file:
        found = json.load(file)
    assert found["cache"] == "/var/lib/cairn-nodes/one/cuda", found
    assert all(found[name] in ("OK", "ENXIO", "ENODEV") for name in GPU), f"cairn-node@one may not open the GPU: {found}"
    owner, group, other, other_group = said(out, "several").splitlines()
    print("several nodes:", owner, other)
    assert owner.endswith(" 700") and other.endswith(" 700") and owner != other, (owner, other)
    assert group == "/cairn.slice/cairn-nodes.slice/cairn-node@one.service", group
    assert other_group == group.replace("@one", "@two"), other_group
    assert said(out, "no_profile") == "inactive", said(out, "no_profile")


def what_does_not_mend_itself_is_not_started_again(out):
    for name, wanted in {"later_state": "failed 7", "wrong_profile": "failed 3", "no_job": "failed 3"}.items():
        assert said(out, name) == wanted, f"{name}: '{said(out, name)}', wanted '{wanted}'"


def the_next_run_has_a_state_directory_of_its_own(out):
    assert said(out, "first_run") == "running" and said(out, "next_run") == "running", said(out, "said")
    run, *boards = map(json.loads, said(out, "next_status").splitlines())
    assert [board["board"] for board in boards if "board" in board] == ["board-1"], boards
    assert "-> private/cairn-aggregator-2" in said(out, "said"), said(out, "said")


def who_reaches_a_socket_has_its_role(out):
    """The groups are the package's; the sockets go with the service."""
    wanted = [f"/run/cairn-aggregator/{role}.sock 660 root cairn-{role}" for role in ("admin", "operator", "view")]
    assert said(out, "sockets").splitlines() == wanted, said(out, "sockets")
    paused, stopped, resumed = said(out, "steered").splitlines()
    assert paused.startswith("paused until `resume`: "), paused
    assert stopped == "error: stop needs the role admin; this socket gives the role operator", stopped
    assert resumed == "error: resume needs the role operator; this socket gives the role view", resumed
    assert said(out, "sockets_after") == "", said(out, "sockets_after")


def a_boot_of_one_of_two_systems_is_confirmed(out):
    assert said(out, "update_enabled").split() == ["enabled", "enabled"], said(out, "update_enabled")
    assert said(out, "update_without") == "no", "a board with one system is touched"
    assert said(out, "update_report") == "A unknown none", said(out, "update_report")
    assert "verify" in said(out, "update_calls").splitlines(), "the tries of the running system are not ended"
    assert said(out, "update_keep") == "exit-code", said(out, "update_keep")


def main(build):
    folder = tempfile.mkdtemp(prefix="cairn-service-")
    try:
        out, root = prepare(build, folder)
        probe = boot(folder, out, root, "probe")
        if probe.returncode:
            print(f"skipped: systemd cannot have namespaces of its own here: {probe.stderr.strip()}")
            sys.exit(77)
        result = boot(folder, out, root)
        log = "".join(f"--- {name}\n{said(out, name)}\n" for name in ("said", "journal")
                      if os.path.exists(os.path.join(out, name)))
        assert os.path.exists(os.path.join(out, "end")), f"{result.stdout}{result.stderr}{log}"
        try:
            the_gpu_is_open_and_nothing_else(out)
            each_of_several_nodes_has_a_state_and_a_user_of_its_own(out)
            what_does_not_mend_itself_is_not_started_again(out)
            the_next_run_has_a_state_directory_of_its_own(out)
            who_reaches_a_socket_has_its_role(out)
            a_boot_of_one_of_two_systems_is_confirmed(out)
        except AssertionError:
            print(log)
            raise
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    missing = [tool for tool in ("cpack", "dpkg", "unshare", "systemctl", "journalctl", INIT) if not shutil.which(tool)]
    if missing or os.geteuid():
        print(f"skipped: needs root and {', '.join(missing) or 'nothing else'}")
        sys.exit(77)
    main(os.path.abspath(sys.argv[1]))
