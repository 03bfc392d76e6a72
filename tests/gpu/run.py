#!/usr/bin/env python3
"""Everything that wants a GPU, in one command: tests, compute-sanitizer, benches. Leaves a folder of results.

    run.py BUILD FOLDER [--part PART]... [--seconds N] [--exported MODELS]
                                        on a machine with a GPU; BUILD is build/release, or a folder that --pack made
    run.py BUILD --pack FILE.tar.gz [--exported MODELS]
                                        the tests with what they need, for a machine without compilers or cmocka

PART is tests, sanitizers, benches or products; all without it. FOLDER gets summary.md, logs.tar.gz with the output of
each test and sanitizer, bench.md, the tables of tests/peers/torch/gpu.py, and products.md, the times of the matrix
products of a GPT by cuBLASLt's proposals and by PyTorch. They are written again after each step, the tables after each
row, so that a run which is cut off leaves what it had. MODELS is what `gpu_worker.py export MODELS`
left: the machine with the GPU then spends no time on exporting. With --seconds nothing runs longer than that in all; what did
not begin in time is named. A test that is skipped counts as failed: here is a GPU. Those that want several (label
gpus) are left out where there is one. Ends with 0 when all passed, 1 when something failed, 77 and a line that says
why where nothing can be run. What is not installed (compute-sanitizer, PyTorch) is named in the summary and left out.
NVIDIA's libraries are found as any program finds them, or else beside PyTorch in this Python's packages. Needs
Python 3.
"""
import argparse
import ctypes
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
LIST = "gpu-tests.json"  # of a pack: the tests as ctest has them
CARRIED = ("tests/gpu", "tests/end_to_end", "tests/data/digits", "tests/peers", "boards")
EXPORTED = "models"  # of a pack: the exported models of the benches
SANITIZED = "port_compute"  # how the names begin of the tests that the sanitizers run
# What a short run is to find out first. A test comes before another when its word stands earlier here.
FIRST = ("precision", "pairs", "bits", "attention", "flat", "buckets", "mixed", "norm", "recurrent", "planes",
         "port_compute_cuda", "moves", "maps", "stages", "layers")
TEST_LIMIT_S = 90  # of one test, so that one that hangs leaves time for the others
SANITIZER_LIMIT_S = 110  # of one test under a sanitizer, for the same reason
PRODUCTS = ("4096", "768", "50257")  # tokens, width and classes of a GPT of 124 million weights
PRODUCTS_EMULATED = ("64", "32", "70")
PRODUCTS_LIMIT_S = 120
BENCH_END_S = 5  # what the benches leave of the time, to write the summary
# The sanitizers, the most telling first, with the tests that each looks at. The kernels of these use shared memory.
SHARED_MEMORY = ("attention", "norm", "recurrent", "port_compute_cuda")
TOOLS = {"racecheck": SHARED_MEMORY, "memcheck": (), "initcheck": ("port_compute_cuda",)}  # no words: all tests
OWN_KERNELS = "cuda_kernel_"  # how the names of the port's own kernels begin; those of libraries are not looked at
WANTED = ("cuBLASLt", "cuDNN")  # without these a run proves little
EMULATED = "a GPU on the host"  # the name of the emulated device
LIBRARIES = {  # what the port opens, and the function that tells its version
    "cuBLASLt": (("libcublasLt.so.13", "libcublasLt.so.12"), "cublasLtGetVersion"),
    "cuDNN": (("libcudnn.so.9",), "cudnnGetVersion"),
    "NCCL": (("libnccl.so.2",), "ncclGetVersion"),
}
TELL = """
import ctypes, sys
for name in sys.argv[2:]:
    try:
        tell, version = getattr(ctypes.CDLL(name), sys.argv[1]), ctypes.c_int(0)
    except (OSError, AttributeError):
        continue
    tell.restype = ctypes.c_size_t
    done = tell(ctypes.byref(version)) if sys.argv[1].startswith("nccl") else tell()
    print(name, version.value or done)
    break
"""


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
        if "command" not in entry:
            refuse(f"{build} has not all of its tests: {entry['name']} is not built")
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


def pack(build, file, exported):
    """Programs under build/, the rest as in the repository, paths of the list counted from the top."""
    tests = list_tests(build)
    programs = {build / name for name in ("bin/cairn-node", "bin/cairn-aggregator", "tests/bench/bench_products")
                if (build / name).exists()}
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
    with tempfile.TemporaryDirectory() as folder, tarfile.open(file, "w:xz" if file.suffix == ".xz" else "w:gz") as archive:
        listed = pathlib.Path(folder) / LIST
        listed.write_text(json.dumps(tests, indent=1))
        archive.add(listed, f"cairn-gpu/{LIST}")
        for path in sorted(programs):
            archive.add(path, f"cairn-gpu/build/{path.relative_to(build)}")
        for name in CARRIED:
            archive.add(SOURCE / name, f"cairn-gpu/{name}",
                        filter=lambda info: None if "__pycache__" in info.name else info)
        if exported:
            archive.add(exported, f"cairn-gpu/{EXPORTED}")
        for path in libraries_of(programs):
            archive.add(path.resolve(), f"cairn-gpu/build/lib/{path.name}")
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
    """(name, capability, driver) of the first GPU and how many there are, asked of the driver itself."""
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
            f"{version.value // 1000}.{version.value % 1000 // 10}"), count.value


def packaged_libraries():
    """Folders of NVIDIA's libraries that came with PyTorch."""
    places = [pathlib.Path(place) / "nvidia" for place in sys.path if place]
    return [str(folder) for place in places if place.is_dir() for folder in sorted(place.glob("*/lib"))]


def environment_of(build, test=None):
    values, own = dict(os.environ), build / "build" / "lib"
    folders = [str(own) if own.is_dir() else "", values.get("LD_LIBRARY_PATH", ""), *packaged_libraries()]
    values["LD_LIBRARY_PATH"] = ":".join(filter(None, folders))
    values.update(entry.split("=", 1) for entry in (test or {}).get("environment", []))
    return values


def find_libraries(build):
    """A line for each library: what was found is what the tests used."""
    lines = []
    for name, (files, function) in LIBRARIES.items():
        told = subprocess.run([sys.executable, "-c", TELL, function, *files], stdout=subprocess.PIPE, text=True,
                              env=environment_of(build), check=False).stdout.split()
        lines.append(f"{name}: {told[0]}, version {told[1]}" if len(told) == 2 else
                     f"{name}: **not found**: nothing below is about it")
    return lines


# Running


class Run:
    """What a run has come to, and how long it may go on."""

    def __init__(self, build, folder, logs, seconds, exported=None):
        self.build, self.folder, self.logs, self.rows = build, folder, logs, []
        self.exported = exported or (build / EXPORTED if (build / EXPORTED).is_dir() else None)
        self.end = time.monotonic() + seconds if seconds else float("inf")
        self.gpu, self.gpus = find_gpu()
        self.libraries, self.warnings = find_libraries(build), []
        for line in self.libraries:
            if "**not found**" in line and line.startswith(WANTED) and not emulated(self.gpu):
                self.rows.append((line.split(":")[0], "failed: the library was not found", 0.0))

    def add(self, what, result, seconds=0.0):
        self.rows.append((what, result, seconds))
        print(f"{what}: {result}, {seconds:.0f} s", flush=True)
        self.write()

    def left(self):
        return self.end - time.monotonic()

    def execute(self, command, log, environment, timeout):
        """(exit code, seconds); 124 for what did not end in time, None for what did not begin."""
        if self.left() < 1:
            return None, 0.0
        return execute(command, log, environment, min(timeout, self.left()))

    def write(self):
        write_summary(self)
        with tarfile.open(self.folder / "logs.tar.gz", "w:gz") as archive:
            archive.add(self.logs, "logs")


def execute(command, log, environment, timeout):
    begun = time.monotonic()
    with open(log, "wb") as out:
        try:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment,
                                       start_new_session=True)
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it started
            process.wait()
            code = 124
        except OSError as error:
            out.write(f"{error}\n".encode())
            code = 126
    return code, time.monotonic() - begun


def verdict(code):
    known = {None: "did not begin in time", 0: "passed", 77: "skipped: not seen on this GPU", 124: "did not end"}
    return known.get(code, f"failed ({code})")


def emulated(gpu):
    return gpu[0] == EMULATED


def value_of(test):
    """How early a test is to run."""
    return next((i for i, word in enumerate(FIRST) if word in test["name"]), len(FIRST))


def note_warnings(run, test, log):
    """What the port says that it does without: what libraries turned down is the main news of a first run."""
    for line in log.read_text(errors="replace").splitlines():
        if re.search(r"warn\s+cuda:", line) and (entry := (line.strip(), test["name"])) not in run.warnings:
            run.warnings.append(entry)


def run_tests(run, tests):
    for test in sorted(tests, key=value_of):
        if test.get("several") and run.gpus < 2:
            run.add(test["name"], "left out: wants two GPUs")
            continue
        log = run.logs / f"{test['name']}.log"
        limit = test["timeout"] if emulated(run.gpu) else min(test["timeout"], TEST_LIMIT_S)
        code, seconds = run.execute(test["command"], log, environment_of(run.build, test), limit)
        if log.exists():
            note_warnings(run, test, log)
        alone = code == 77 and "collective" in test["name"]
        run.add(test["name"], "left out: wants NCCL" if alone else verdict(code), seconds)


def run_sanitizers(run, tests):
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if not program:
        run.add("compute-sanitizer", "left out: not installed")
        return
    for tool, words in TOOLS.items():
        for test in sorted(tests, key=value_of):
            if not test["name"].startswith(SANITIZED) or not (not words or any(word in test["name"] for word in words)):
                continue
            command = [program, "--tool", tool, "--kernel-name", f"kns={OWN_KERNELS}", "--error-exitcode", "99",
                       "--print-limit", "20", *test["command"]]
            code, seconds = run.execute(command, run.logs / f"{tool}-{test['name']}.log",
                                        {**environment_of(run.build, test), "CAIRN_TRIAL": "once"},
                                        SANITIZER_LIMIT_S)
            run.add(f"{tool} {test['name']}", verdict(code), seconds)


def bench_command(run, node):
    """gpu.py ends a little before the run does, and prints each row when it is done."""
    top = SOURCE if (SOURCE / "tests/peers/torch/gpu.py").exists() else run.build
    command = [sys.executable, str(top / "tests/peers/torch/gpu.py"), str(node)]
    command += ["--exported", str(run.exported)] if run.exported else []
    if run.end == float("inf"):
        return [*command, "--rounds", "5", "--seconds", "2"]
    return [*command, "--until", f"{max(run.left() - BENCH_END_S, 0):.0f}"]


def run_benches(run, _tests):
    places = (run.build / "bin/cairn-node", run.build / "build/bin/cairn-node")
    node, log = next((path for path in places if path.exists()), None), run.folder / "bench.md"
    code, seconds = run.execute(bench_command(run, node), log, environment_of(run.build), 7200)
    last = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
    run.add("benches", f"left out: {last[0] if last else 'no reason'}" if code == 77 else verdict(code), seconds)


def run_products(run, _tests):
    """The proposals of cuBLASLt for the products of a GPT, and PyTorch's times of the same."""
    places = (run.build / "tests/bench/bench_products", run.build / "build/tests/bench/bench_products")
    bench, out = next((path for path in places if path.exists()), None), run.folder / "products.md"
    top = SOURCE if (SOURCE / "tests/peers/torch/products.py").exists() else run.build
    sizes = PRODUCTS_EMULATED if emulated(run.gpu) else PRODUCTS
    if not bench:
        run.add("products", "left out: bench_products is not built")
        return
    sides = {"cuBLASLt": [str(bench), *sizes], "PyTorch": [sys.executable, str(top / "tests/peers/torch/products.py"), *sizes]}
    text = ""
    for side, command in sides.items():
        log = run.logs / f"products-{side}.log"
        code, seconds = run.execute(command, log, environment_of(run.build), PRODUCTS_LIMIT_S)
        said = log.read_text(errors="replace") if log.exists() else ""
        text += f"## {side}, products of {' '.join(sizes)}\n\n{said}\n"
        out.write_text(text)
        run.add(f"products {side}", f"left out: {said.strip()}" if code == 77 else verdict(code), seconds)


RUNNERS = {"tests": run_tests, "sanitizers": run_sanitizers, "products": run_products, "benches": run_benches}


def failures(run):
    return [row for row in run.rows if not row[1].startswith(("passed", "left out"))]


def write_summary(run):
    name, capability, driver = run.gpu
    lines = [f"# {name}, compute capability {capability}, driver for CUDA {driver}", "",
             f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {platform.machine()}, {platform.release()}. "
             f"{len(run.rows) - len(failures(run))} of {len(run.rows)} passed or left out.", "",
             *[f"- {line}" for line in run.libraries], "", "| what | result | s |", "|---|---|---|"]
    lines += [f"| {what} | {result} | {seconds:.1f} |" for what, result, seconds in run.rows]
    if run.warnings:
        lines += ["", "What the port did without:", "", *[f"- {line} ({test})" for line, test in run.warnings[:60]]]
    (run.folder / "summary.md").write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("--pack", type=pathlib.Path, metavar="FILE.tar.gz")
    parser.add_argument("--part", choices=RUNNERS, action="append")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--exported", type=lambda path: pathlib.Path(path).resolve(), metavar="MODELS")
    options = parser.parse_args()
    build = options.build.resolve()
    if options.pack:
        pack(build, options.pack, options.exported)
        return 0
    if not options.folder:
        parser.error("FOLDER or --pack is needed")
    with tempfile.TemporaryDirectory() as logs:
        run = Run(build, options.folder.resolve(), pathlib.Path(logs), options.seconds, options.exported)
        tests = list_tests(build)
        run.folder.mkdir(parents=True, exist_ok=True)
        for part in options.part or RUNNERS:
            RUNNERS[part](run, tests)
        run.write()
    print(f"{run.folder / 'summary.md'}: {len(failures(run))} of {len(run.rows)} failed")
    return 1 if failures(run) else 0


if __name__ == "__main__":
    sys.exit(main())
