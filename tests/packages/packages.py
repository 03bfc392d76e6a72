"""The Debian packages: lint, hardening, what they ship, and state across upgrade, downgrade, remove, purge.

usage: packages.py BUILD [EMULATOR...]
       packages.py BUILD again      only: the packages are the same when they are made again

Packages are installed into a folder (dpkg --root), so nothing of this machine is touched. A check whose
tool is missing is said and left out.
"""

import fnmatch
import glob
import grp
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path += [os.path.join(SOURCE, "tests", "end_to_end"), os.path.join(SOURCE, "tests", "boot")]

from flashing import change_package  # noqa: E402

EXPOSURE_MAX = 2.0
SERVICES = {"cairn-node": "var/lib/cairn", "cairn-aggregator": "var/lib/cairn-aggregator"}


WRITTEN = {"cairn-node": 4, "cairn-aggregator": 4}  # formats of state that today's programs write
PROGRAMS = [*SERVICES, "cairn-flash"]


def run(*command, check=True, **options):
    result = subprocess.run(command, capture_output=True, text=True, **options)
    if check and result.returncode:
        raise AssertionError(f"{' '.join(command)}: {result.returncode}\n{result.stdout}{result.stderr}")
    return result


def make_packages(build, folder):
    run("cpack", "--config", os.path.join(build, "CPackConfig.cmake"), "-B", folder)
    shutil.rmtree(os.path.join(folder, "_CPack_Packages"), ignore_errors=True)
    return sorted(glob.glob(os.path.join(folder, "*.deb")))


def package_of(packages, name):
    return next(path for path in packages if os.path.basename(path).startswith(f"{name}_"))


def the_packages_are_the_same_when_made_again(build):
    with tempfile.TemporaryDirectory(prefix="cairn-packages-") as folder:
        packages, again = (make_packages(build, os.path.join(folder, name)) for name in ("once", "again"))
        assert [os.path.basename(p) for p in again] == [os.path.basename(p) for p in packages]
        for one, two in zip(packages, again):
            with open(one, "rb") as a, open(two, "rb") as b:
                assert a.read() == b.read(), f"{os.path.basename(one)} differs"


def lintian_has_no_complaint(packages):
    if not shutil.which("lintian"):
        return print("left out: no lintian")
    result = run("lintian", "--allow-root", "--fail-on", "error,warning", *packages, check=False)
    assert result.returncode == 0 and not result.stdout.strip(), result.stdout + result.stderr


def units_are_confined(folder):
    if not shutil.which("systemd-analyze"):
        return print("left out: no systemd-analyze")
    for name in (*SERVICES, "cairn-node@"):
        root = os.path.join(folder, "unpacked", name.rstrip("@"))
        unit = os.path.join(root, "usr/lib/systemd/system", f"{name}.service")
        with open(unit) as file:
            text = file.read()
        assert "\nLimitCORE=0\n" in text, f"{unit} leaves cores with keys"
        # Usage, profile and state: what does not mend itself is not started again for ever.
        assert "\nRestartPreventExitStatus=2 3 7\n" in text, f"{unit} starts again what cannot start"
        text = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit).stdout
        exposure = float(text.strip().splitlines()[-1].split(":")[1].split()[0])
        print(f"{name}.service: exposure {exposure}")
        assert exposure <= EXPOSURE_MAX, text


def several_nodes_share_nothing_but_a_limit(folder):
    """cairn-node@NAME is cairn-node with other files; systemd-analyze verify knows every line of it."""
    units = os.path.join(folder, "unpacked/cairn-node/usr/lib/systemd/system")
    with open(os.path.join(units, "cairn-node.service")) as one, open(os.path.join(units, "cairn-node@.service")) as many:
        one, many = one.read().splitlines(), many.read().splitlines()
    assert sorted(set(many) - set(one)) == sorted([
        "Description=Cairn, training on this board (%i)", "ConditionPathExists=/etc/cairn/nodes/%i.yaml",
        "ExecStart=/usr/bin/cairn-node run --key ${CREDENTIALS_DIRECTORY}/node.key $CAIRN_OPTIONS "
        "/etc/cairn/nodes/%i.yaml", "LoadCredential=node.key:/etc/cairn/nodes/%i.key",
        "StateDirectory=cairn-nodes/%i", "Environment=CUDA_CACHE_PATH=%S/cairn-nodes/%i/cuda",
        "Slice=cairn-nodes.slice", "User=cairn-%i"]), many
    assert len(many) == len(one) + 2, "a line of cairn-node.service is missing"
    if not shutil.which("systemd-analyze"):
        return print("left out: no systemd-analyze")
    verified = os.path.join(folder, "verified")
    shutil.copytree(units, verified)
    program = os.path.join(folder, "unpacked/cairn-node/usr/bin/cairn-node")
    with open(os.path.join(verified, "cairn-node@board-2.service"), "w") as unit:
        unit.write("\n".join(many).replace("/usr/bin/cairn-node", program) + "\n")
    result = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
                 os.path.join(verified, "cairn-node@board-2.service"), os.path.join(verified, "cairn-nodes.slice"),
                 check=False)
    said = [line for line in (result.stdout + result.stderr).splitlines() if "cairn-node" in line]
    assert not result.returncode and not said, result.stdout + result.stderr


def sections_are_in(page, *sections):
    """And man finds nothing to complain of."""
    if not shutil.which("man"):
        return
    result = run("man", "--warnings", "-l", page, env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
    assert not result.stderr, result.stderr
    for section in sections:
        assert f"\n{section}\n" in result.stdout, f"{page} has no section {section}"


def the_manual_of_profiles_has_every_key(folder):
    page = os.path.join(folder, "unpacked/cairn-boards/usr/share/man/man5/cairn-profile.5.gz")
    sections_are_in(page, "DESCRIPTION", "KEYS OF A BOARD OR SITE", "KEYS OF A JOB", "EXAMPLES", "FILES", "SEE ALSO")
    with open(os.path.join(SOURCE, "runtime/profile/PROFILES.md")) as file:
        keys = re.findall(r"^\| `([a-z0-9_.]+)` \|.*\|.*\|.*\|", file.read(), re.MULTILINE)
    manual = run("zcat", page).stdout
    assert len(keys) > 100, keys
    for key in keys:
        assert key == "schema" or f"\n.B {key}\n" in manual, f"{key} is not in cairn-profile(5)"


PURL = re.compile(r"pkg:(deb/(cairn|debian)|github/[a-z-]+|generic(/nvidia)?)/[A-Za-z0-9.-]+(@[A-Za-z0-9.%-]+)?(\?arch=\w+)?")
CPE = re.compile(r"cpe:2\.3:a:[a-z]+:[a-z_.]+:[0-9.]+(:\*){7}")


def the_bill_is_whole(bill, name):
    """NTIA's minimum elements, and what a scanner matches by."""
    digest = bill["documentNamespace"].rsplit(":", 1)[1]
    assert re.fullmatch("[0-9a-f]{32}", digest) and bill["creationInfo"]["creators"], bill
    parts = {part["name"]: part for part in bill["packages"]}
    wanted = {"cairn-boards": set(), "cairn-update": set(), "cairn-flash": {"mbedtls", "libyaml"}}.get(name, {"mbedtls", "libyaml", "libcoap"})
    assert {name} | wanted <= set(parts), sorted(parts)
    related = {end for relation in bill["relationships"] for end in (relation["spdxElementId"], relation["relatedSpdxElement"])}
    for part in parts.values():
        assert part["versionInfo"] and re.match("(Organization|Person): .", part["supplier"]), part
        found = {ref["referenceType"]: ref["referenceLocator"] for ref in part["externalRefs"]}
        assert PURL.fullmatch(found["purl"]), found
        assert part["name"].startswith(("cairn-", "libcu", "libnccl")) or CPE.fullmatch(found["cpe23Type"]), found
        assert part["SPDXID"] in related, f"nothing says how {part['name']} belongs to {name}"


def no_file_names_the_folder_it_was_built_in(folder):
    """A name of a folder would make other bytes in another one."""
    for path in glob.glob(os.path.join(folder, "unpacked", "**"), recursive=True):
        if not os.path.isfile(path) or os.path.islink(path):
            continue
        with open(path, "rb") as file:
            content = file.read()
        found = re.search(rb"[!-~]*/build/deps/[!-~]*", content)
        assert SOURCE.encode() not in content and not found, \
            f"{path} has {found.group().decode() if found else SOURCE}; after a change of its recipe run cmake/setup/setup"


def manuals_and_bills_are_readable(folder, emulator):
    for name in PROGRAMS:
        root = os.path.join(folder, "unpacked", name, "usr/share")
        bill = run("zcat", os.path.join(root, "doc", name, "sbom.spdx.json.gz")).stdout
        the_bill_is_whole(json.loads(bill), name)
        page = os.path.join(root, "man/man1", f"{name}.1.gz")
        sections_are_in(page, "COMMANDS", "EXIT STATUS", "EXAMPLES", "FILES", "SEE ALSO")
        manual = run("zcat", page).stdout
        for command in commands_of(*emulator, os.path.join(folder, "unpacked", name, "usr/bin", name)):
            assert f".SH {name} {command}".upper() in manual.upper(), f"{command} is not in the manual of {name}"


# Below /usr/share the folders of both packages, for this process and its children only.
INSTALLED = """
mount -t overlay overlay -o lowerdir="$1/cairn-boards/usr/share:/usr/share" /usr/share && cd / &&
exec "$1/cairn-node/usr/bin/cairn-node" check --board auto --sysroot "$2"
"""


def the_installed_boards_are_found(folder, emulator):
    unpacked, board = os.path.join(folder, "unpacked"), os.path.join(folder, "board")
    os.makedirs(os.path.join(board, "sys/firmware/devicetree/base"))
    with open(os.path.join(board, "sys/firmware/devicetree/base/compatible"), "wb") as file:
        file.write(b"raspberrypi,5-model-b\0brcm,bcm2712\0")
    probe = run("unshare", "-m", "true", check=False)
    if probe.returncode or emulator:
        return print("left out: the installed root needs root and a program for this machine")
    said = run("unshare", "-m", "sh", "-c", INSTALLED, "sh", unpacked, board).stdout
    assert "raspberrypi-5" in said, said


# /proc/devices of L4T r36 on an Orin, as far as it is of interest, and misc devices: after NVIDIA's sources of nvmap
# and nvgpu. What CUDA opens there, by its class or path.
ORIN_CLASSES = ["mem", "misc", "drm", "nvidia-uvm", "17000000.gpu", "17000000.gpu", "nvhost-ctrl", "rtc"]
ORIN_OPENED = {"/dev/nvmap": "misc", "/dev/host1x-fence": "misc", "/dev/dri/renderD128": "drm",
               "/dev/nvgpu/igpu0/ctrl": "17000000.gpu", "/dev/nvgpu/igpu0/as": "17000000.gpu"}


def the_gpu_of_an_orin_may_be_opened(folder, packages):
    """systemd.resource-control(5): a path, or char- and a pattern of a name in /proc/devices."""
    root = Root(os.path.join(folder, "root-orin"))
    root.write("proc/device-tree/compatible", b"nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0")
    root.dpkg("-i", package_of(packages, "cairn-node"))
    dropin = root.path("etc/systemd/system/cairn-node.service.d/jetson-gpu.conf")
    with open(root.path("usr/lib/systemd/system/cairn-node.service")) as unit, open(dropin) as more:
        lines = unit.read().splitlines() + more.read().splitlines()
    allowed = [line.split("=", 1)[1].split() for line in lines if line.startswith("DeviceAllow=")]
    for path, name in ORIN_OPENED.items():
        assert name in ORIN_CLASSES
        assert any(access == "rw" and (what == path or fnmatch.fnmatchcase("char-" + name, what))
                   for what, access in allowed), f"CUDA may not open {path}"
    known = {group.gr_name for group in grp.getgrall()}
    for group in ("video", "render"):  # a unit with a group that is not there does not start
        assert (f"SupplementaryGroups={group}" in lines) == (group in known), group
    assert any(line.startswith("Environment=CUDA_CACHE_PATH=") for line in lines)
    root.dpkg("-i", package_of(packages, "cairn-node"))
    for path in (dropin, dropin.replace("cairn-node.", "cairn-node@.")):
        with open(path) as file:
            assert file.read().count("DeviceAllow=/dev/nvmap") == 1, path
    root.dpkg("--purge", "cairn-node")
    assert not root.has("etc/systemd/system/cairn-node.service.d"), "purge left the drop-in"
    assert not root.has("etc/systemd/system/cairn-node@.service.d"), "purge left the drop-in of instances"
    other = Root(os.path.join(folder, "root-other"))
    other.dpkg("-i", package_of(packages, "cairn-node"))
    assert not other.has("etc/systemd/system/cairn-node.service.d"), "it is no Jetson"


def commands_of(*program):
    commands = re.findall(r"^  ([a-z]+) ", run(*program, "--help").stdout, re.MULTILINE)
    assert commands, f"{program[-1]} --help names no command"
    return commands


class Root:
    """A folder with a package database of its own."""

    def __init__(self, folder):
        self.folder = folder
        for part in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "tmp"):
            os.makedirs(os.path.join(folder, part))
        open(os.path.join(folder, "var/lib/dpkg/status"), "w").close()

    def dpkg(self, *arguments, check=True):
        return run("dpkg", f"--root={self.folder}", "--log=/dev/null", "--force-not-root", "--force-depends",
                   "--force-architecture", "--force-bad-path", "--force-script-chrootless", *arguments, check=check)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, content):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(content)

    def has(self, name):
        return os.path.exists(self.path(name))


def write_state(root, name, version):
    root.write(SERVICES[name] + "/written_by", f"{name} 0.0.{version}\x1b[2J\n".encode())
    if name == "cairn-node":
        root.write("var/lib/cairn/checkpoint.a", f"cairnck{version}".encode() + bytes(300))
        return
    os.makedirs(root.path(SERVICES[name]), exist_ok=True)
    path = root.path(SERVICES[name], "ledger.sqlite")
    with sqlite3.connect(path) as ledger:
        ledger.execute(f"PRAGMA user_version={version}")


def a_service_keeps_its_state_until_purge(folder, packages, name):
    root = Root(os.path.join(folder, "root-" + name))
    package, state = package_of(packages, name), SERVICES[name]
    profile = "etc/cairn/node.yaml" if name == "cairn-node" else "etc/cairn/gateway.yaml"
    options = f"etc/default/{name}"
    root.dpkg("-i", package)
    root.write(profile, b"schema: cairn/site/v1\n")
    root.write(options, b"CAIRN_OPTIONS=--log-level debug\n")
    write_state(root, name, WRITTEN[name])
    root.dpkg("-i", package)
    assert root.has(state) and b"debug" in open(root.path(options), "rb").read(), "an upgrade lost something"
    write_state(root, name, 9)
    refused = root.dpkg("-i", package, check=False)
    assert refused.returncode and "format 9" in refused.stderr, "a downgrade was not refused\n" + refused.stderr
    assert f"written by {name} 0.0.92J.\n" in refused.stderr, refused.stderr
    write_state(root, name, WRITTEN[name])
    later = change_package(package, os.path.join(folder, "later.deb"), "9.0.1",
                           ("preinst", r"^oldest=\d+", f"oldest={WRITTEN[name] + 1}"))
    refused = root.dpkg("-i", later, check=False)
    assert refused.returncode and "Before the upgrade" in refused.stderr, "an upgrade was not refused\n" + refused.stderr
    write_state(root, name, WRITTEN[name])
    root.dpkg("-i", package)
    root.dpkg("--remove", name)
    assert root.has(state) and root.has(profile) and root.has(options), "remove took too much"
    assert not root.has(f"usr/bin/{name}")
    root.dpkg("-i", package)
    root.dpkg("--purge", name)
    assert not root.has(state) and not root.has(profile) and not root.has(options), "purge left something"


def the_updater_is_whole(folder, packages):
    """Its parts find each other where the package puts them; nothing happens on a board without RAUC's settings."""
    root = Root(os.path.join(folder, "root-update"))
    root.dpkg("-i", package_of(packages, "cairn-update"))
    sections_are_in(root.path("usr/share/man/man8/cairn-update.8.gz"), "SYNOPSIS", "COMMANDS", "RESULTS", "FILES")
    for unit in ("cairn-update-keep.service", "cairn-update-check.service",
                 "nv-l4t-bootloader-config.service.d/cairn-update.conf"):
        with open(root.path("usr/lib/systemd/system", unit)) as file:
            assert re.search("^ConditionPathExists=!?/etc/rauc/system.conf$", file.read(), re.MULTILINE), unit
    inside = {name for name in os.listdir(root.path("usr/lib/cairn-update"))}
    with open(root.path("usr/sbin/cairn-update")) as file:
        wanted = set(re.findall(r'^\. "\$library/(.*)"$', file.read(), re.MULTILINE))
    assert wanted and wanted <= inside and {"cairn-boot", "boot-uboot.sh", "boot-tryboot.sh", "boot-nvbootctrl.sh"} <= inside
    root.write("etc/default/cairn-update", b"CAIRN_BOOT=uboot\n")
    root.write("proc/cmdline", b"rauc.slot=C\n")
    environment = {**os.environ, "CAIRN_SYSROOT": root.folder}
    library = root.path("usr/lib/cairn-update")
    said = run(os.path.join(library, "cairn-boot"), "get-current", check=False, env=environment)
    assert said.returncode == 1 and "names no slot" in said.stderr, said
    root.write("var/lib/private/cairn-update/result", b"1.0 A good\n")
    root.dpkg("--purge", "cairn-update")
    assert not root.has("var/lib/private/cairn-update") and not root.has("etc/default/cairn-update")


def each_of_several_nodes_keeps_its_state_until_purge(folder, packages):
    root = Root(os.path.join(folder, "root-several"))
    package, state = package_of(packages, "cairn-node"), "var/lib/cairn-nodes/two/checkpoint.a"
    root.dpkg("-i", package)
    own = [f"etc/cairn/nodes/{name}" for name in ("one.yaml", "two.yaml", "two.key")]
    for name in own:
        root.write(name, b"-")
    root.write("var/lib/cairn-nodes/one/checkpoint.a", f"cairnck{WRITTEN['cairn-node']}".encode() + bytes(300))
    root.write(state, b"cairnck9" + bytes(300))
    root.write("var/lib/cairn-nodes/two/written_by", b"cairn-node 0.0.9\n")
    refused = root.dpkg("-i", package, check=False)
    assert refused.returncode and "written by cairn-node 0.0.9." in refused.stderr, refused.stderr
    root.write(state, f"cairnck{WRITTEN['cairn-node']}".encode() + bytes(300))
    root.dpkg("-i", package)
    root.dpkg("--remove", "cairn-node")
    assert root.has(state) and all(map(root.has, own)), "remove took too much"
    root.dpkg("-i", package)
    root.dpkg("--purge", "cairn-node")
    assert not root.has("var/lib/cairn-nodes") and not root.has("etc/cairn"), "purge left something"


def main(build, *emulator):
    """The emulator, with its options, runs programs of another machine."""
    folder = tempfile.mkdtemp(prefix="cairn-packages-")
    try:
        packages = make_packages(build, os.path.join(folder, "once"))
        for path in packages:
            print(f"{os.path.getsize(path):9} {os.path.basename(path)}")
        lintian_has_no_complaint(packages)
        for name in [*PROGRAMS, "cairn-boards", "cairn-update"]:
            os.makedirs(os.path.join(folder, "unpacked", name))
            run("dpkg", "-x", package_of(packages, name), os.path.join(folder, "unpacked", name))
        units_are_confined(folder)
        several_nodes_share_nothing_but_a_limit(folder)
        manuals_and_bills_are_readable(folder, emulator)
        no_file_names_the_folder_it_was_built_in(folder)
        bill = run("zcat", os.path.join(folder, "unpacked/cairn-boards/usr/share/doc/cairn-boards/sbom.spdx.json.gz"))
        the_bill_is_whole(json.loads(bill.stdout), "cairn-boards")
        the_updater_is_whole(folder, packages)
        the_manual_of_profiles_has_every_key(folder)
        the_installed_boards_are_found(folder, emulator)
        the_gpu_of_an_orin_may_be_opened(folder, packages)
        for name in SERVICES:
            a_service_keeps_its_state_until_purge(folder, packages, name)
        each_of_several_nodes_keeps_its_state_until_purge(folder, packages)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    if not shutil.which("cpack") or not shutil.which("dpkg"):
        print("skipped: needs cpack and dpkg")
        sys.exit(77)
    if sys.argv[2:] == ["again"]:
        the_packages_are_the_same_when_made_again(sys.argv[1])
    else:
        main(*sys.argv[1:])
