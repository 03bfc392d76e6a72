#!/usr/bin/env python3
"""Everything that wants a GPU, in one command: tests, compute-sanitizer, benches. Leaves a folder of results.

    run.py BUILD FOLDER [--quick]       on a machine with a GPU; BUILD is build/release, or a folder that --pack made
    run.py BUILD --pack FILE.tar.gz     the tests with what they need, for a machine without compilers or cmocka

FOLDER gets summary.md, a log for each test and sanitizer, and the tables of tests/peers/torch/gpu.py. A test that is
skipped counts as failed: here is a GPU. Those that want several (label gpus) are left out where there is one. Ends
with 0 when all passed, 1 when something failed, 77 and a line that says why where nothing can be run. What is not
installed (compute-sanitizer, PyTorch) is named in the summary and left out. --quick leaves out the sanitizers and
benches. Needs Python 3.
"""
import argparse
import ctypes
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
LIST = "gpu-tests.json"  # of a pack: the tests as ctest has them
CARRIED = ("tests/gpu", "tests/end_to_end", "tests/data/digits", "tests/peers", "boards")
TOOLS = ("memcheck", "racecheck", "initcheck")
SANITIZED = "port_compute"  # how the names begin of the tests that the sanitizers run


def refuse(why):
    print(f"run.py: {why}", file=sys.stderr)
    sys.exit(77)


# The tests, from ctest or from a pack. A test: name, command, environment, timeout, whether it wants several GPUs.


def ask_ctest(build):
    if not (build / "CTestTestfile.cmake").exists():
        refuse(f"{build} is no build: neither CTestTestfile.cmake nor {LIST} is in it")
    if not shutil.which("ctest"):
        refuse("ctest is not installed; on a machine with it: run.py BUILD --pack FILE.tar.gz")
    done = subprocess.run(["ctest", "--test-dir", str(build), "-L", "^gpus?$", "--show-only=json-v1"],
                          stdout=subprocess.PIPE, text=True, check=True)
    tests = []
    for entry in json.loads(done.stdout)["tests"]:
        properties = {each["name"]: each["value"] for each in entry["properties"]}
        tests.append({"name": entry["name"], "command": entry["command"],
                      "environment": properties.get("ENVIRONMENT", []), "timeout": properties.get("TIMEOUT", 300),
                      "several": "gpus" in properties.get("LABELS", [])})
    return tests


def list_tests(build):
    if (build / LIST).exists():
        tests = json.loads((build / LIST).read_text())
        for test in tests:
            test["command"] = [word.replace("@", f"{build}/", 1) if word.startswith("@") else word
                               for word in test["command"]]
        return tests
    tests = ask_ctest(build)
    if not tests:
        refuse(f"{build} has no tests with the label gpu: it was built without nvcc (CAIRN_CUDA)")
    return tests


def pack(build, file):
    """Programs under build/, the rest as in the repository, paths of the list counted from the top."""
    tests, programs = list_tests(build), {build / "bin" / name for name in ("cairn-node", "cairn-aggregator")}
    for test in tests:
        for i, word in enumerate(test["command"]):
            path = pathlib.Path(word)
            if path.is_relative_to(build):
                programs |= {path} if path.is_file() else set()
                test["command"][i] = f"@build/{path.relative_to(build)}"
            elif path.is_relative_to(SOURCE):
                test["command"][i] = f"@{path.relative_to(SOURCE)}"
            elif re.fullmatch(r"python3[.\d]*", path.name):
                test["command"][i] = "python3"
    with tempfile.TemporaryDirectory() as folder, tarfile.open(file, "w:gz") as archive:
        listed = pathlib.Path(folder) / LIST
        listed.write_text(json.dumps(tests, indent=1))
        archive.add(listed, f"cairn-gpu/{LIST}")
        for path in sorted(programs):
            archive.add(path, f"cairn-gpu/build/{path.relative_to(build)}")
        for name in CARRIED:
            archive.add(SOURCE / name, f"cairn-gpu/{name}",
                        filter=lambda info: None if "__pycache__" in info.name else info)
        for path in libraries_of(programs):
            archive.add(path, f"cairn-gpu/build/lib/{path.name}")
    print(f"{file}: {len(tests)} tests; there: tar xf {file.name}, then cairn-gpu/tests/gpu/run.py cairn-gpu FOLDER")


def libraries_of(programs):
    """Those that a machine may lack: what the tests' framework is in."""
    found = set()
    for path in programs:
        lines = subprocess.run(["ldd", str(path)], stdout=subprocess.PIPE, text=True, check=False).stdout
        found |= {pathlib.Path(match) for match in re.findall(r"=> (\S*libcmocka\S*)", lines)}
    return {path.parent / path.name for path in found}


# The machine


def find_gpu():
    """(name, capability, driver) of the first GPU, asked of the driver itself."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        refuse(f"no GPU: {error}")
    count, device, version, name = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(128)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        refuse("libcuda.so.1 is there, a GPU is not")
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGet(ctypes.byref(device), 0)
    driver.cuDeviceGetName(name, 128, device)
    parts = [ctypes.c_int(), ctypes.c_int()]
    for part, attribute in zip(parts, (75, 76)):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
        driver.cuDeviceGetAttribute(ctypes.byref(part), attribute, device)
    return (name.value.decode(), f"{parts[0].value}.{parts[1].value}",
            f"{version.value // 1000}.{version.value % 1000 // 10}")


def environment_of(build, test=None):
    values = dict(os.environ)
    own = build / "build" / "lib"
    if own.is_dir():
        values["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(own), values.get("LD_LIBRARY_PATH")]))
    values.update(entry.split("=", 1) for entry in (test or {}).get("environment", []))
    return values


# Running


def execute(command, log, environment, timeout):
    """(exit code, seconds); 124 for what did not end in time."""
    begun = time.monotonic()
    with open(log, "wb") as out:
        try:
            code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=environment, timeout=timeout,
                                  check=False).returncode
        except subprocess.TimeoutExpired:
            code = 124
        except OSError as error:
            out.write(f"{error}\n".encode())
            code = 126
    return code, time.monotonic() - begun


def verdict(code):
    return {0: "passed", 77: "skipped: not seen on this GPU", 124: "did not end"}.get(code, f"failed ({code})")


def run_tests(tests, build, folder, rows):
    for test in tests:
        code, seconds = execute(test["command"], folder / f"{test['name']}.log", environment_of(build, test),
                                test["timeout"])
        alone = test.get("several") and code == 77
        rows.append((test["name"], "left out: wants NCCL and two GPUs" if alone else verdict(code), seconds))
        print(f"{test['name']}: {rows[-1][1]}, {seconds:.0f} s", flush=True)


def run_sanitizers(tests, build, folder, rows):
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    chosen = [test for test in tests if test["name"].startswith(SANITIZED)]
    if not program:
        rows.append(("compute-sanitizer", "left out: not installed", 0))
        return
    for tool in TOOLS:
        for test in chosen:
            name = f"{tool} {test['name']}"
            command = [program, "--tool", tool, "--error-exitcode", "99", "--print-limit", "20", *test["command"]]
            code, seconds = execute(command, folder / f"{tool}-{test['name']}.log", environment_of(build, test), 1800)
            rows.append((name, verdict(code), seconds))
            print(f"{name}: {rows[-1][1]}, {seconds:.0f} s", flush=True)


def run_benches(build, folder, rows):
    node = next((path for path in (build / "bin/cairn-node", build / "build/bin/cairn-node") if path.exists()), None)
    top = SOURCE if (SOURCE / "tests/peers/torch/gpu.py").exists() else build
    for precision in ("float32", "bfloat16", "float16"):
        log = folder / f"bench-{precision}.md"
        command = [sys.executable, str(top / "tests/peers/torch/gpu.py"), str(node), "--precision", precision]
        code, seconds = execute(command, log, environment_of(build), 7200)
        left_out = log.read_text().strip().splitlines()[-1:] if code == 77 else []
        rows.append((f"bench {precision}", f"left out: {left_out[0]}" if left_out else verdict(code), seconds))
        print(f"bench {precision}: {rows[-1][1]}", flush=True)


def write_summary(folder, gpu, rows):
    name, capability, driver = gpu
    bad = [row for row in rows if not row[1].startswith(("passed", "left out"))]
    lines = [f"# {name}, compute capability {capability}, driver for CUDA {driver}", "",
             f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {platform.machine()}, {platform.release()}. "
             f"{len(rows) - len(bad)} of {len(rows)} passed or left out.", "", "| what | result | s |", "|---|---|---|"]
    lines += [f"| {what} | {result} | {seconds:.1f} |" for what, result, seconds in rows]
    (folder / "summary.md").write_text("\n".join(lines) + "\n")
    print(f"{folder / 'summary.md'}: {len(bad)} of {len(rows)} failed")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("--pack", type=pathlib.Path, metavar="FILE.tar.gz")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    build = options.build.resolve()
    if options.pack:
        pack(build, options.pack)
        return 0
    if not options.folder:
        parser.error("FOLDER or --pack is needed")
    gpu, tests, rows = find_gpu(), list_tests(build), []
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = options.folder.resolve()
    run_tests(tests, build, folder, rows)
    if not options.quick:
        run_sanitizers(tests, build, folder, rows)
        run_benches(build, folder, rows)
    return write_summary(folder, gpu, rows)


if __name__ == "__main__":
    sys.exit(main())
