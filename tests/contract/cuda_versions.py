"""ports/cuda uses nothing of the CUDA libraries that is newer than CUDA 12.6 and cuDNN 9.3, whatever headers it is
compiled with. The names, values, sizes and functions of those versions are recorded in cuda_versions.txt. Each name that
the port uses is there, and the present headers agree.

usage: cuda_versions.py COMPILER SOURCE INCLUDE...
       cuda_versions.py --record COMPILER SOURCE INCLUDE... >cuda_versions.txt    (with the headers of those versions)
"""

import glob
import os
import re
import subprocess
import sys

RECORD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cuda_versions.txt")
NAME = re.compile(r"\b(?:CU|CUBLAS|CUBLASLT|CUDNN)_\w+|\bCUDA_(?:SUCCESS|ERROR_\w+|R_\w+)")
TYPES = ["cublasLtMatmulAlgo_t", "cublasLtMatmulHeuristicResult_t"]
INCLUDES = "#include <cublasLt.h>\n#include <cuda.h>\n#include <cudnn_graph.h>\n"


def used_by(source):
    """The constants and macros that the port uses, and the functions that it looks up."""
    names, functions = set(), set()
    for path in glob.glob(os.path.join(source, "ports", "cuda", "*.[ch]")):
        with open(path) as file:
            text = re.sub("//.*", "", file.read())
        names.update(NAME.findall(text))
        functions.update(re.findall(r"X\(\w+, (c\w+)\)", text))
    assert len(names) > 100 and len(functions) > 50
    return sorted(names), sorted(functions)


def compile_c(compiler, includes, text, *options):
    folders = [word for folder in includes for word in ("-isystem", folder)]
    return subprocess.run([*compiler.split(), "-std=c17", *folders, *options, "-x", "c", "-"], input=INCLUDES + text,
                          capture_output=True, text=True)


def assertion(name, value):
    return f'_Static_assert((long long)({name}) == {value}, "{name} is not {value}");\n'


def value_of(compiler, includes, expression):
    """The value of a constant, from the assembler's text; None for a macro with arguments. A 0 would have no text."""
    result = compile_c(compiler, includes, f"long long found = (long long)({expression}) + 1;", "-S", "-o", "-")
    found = re.search(r"^found:\n\s+\.[a-z0-9]+\s+(-?\d+)", result.stdout, re.MULTILINE)
    return int(found[1]) - 1 if found else None


def record(compiler, source, includes):
    names, functions = used_by(source)
    print("# What ports/cuda uses of CUDA 12.6 and cuDNN 9.3, by cuda_versions.py --record.")
    for name in names:
        value = value_of(compiler, includes, name)
        print(f"macro {name}" if value is None else f"value {name} {value}")
    for name in TYPES:
        print(f"size {name} {value_of(compiler, includes, f'sizeof({name})')}")
    text = re.sub(r"^#.*", "", compile_c(compiler, includes, "", "-E").stdout, flags=re.MULTILINE)
    for name in functions:
        declared = re.search(rf"([\w ]+\s\**)\b{name}\s*\(([^;{{]*)\)\s*;", text)
        print("function " + re.sub(r"\s+", " ", f"{declared[1]}{name}({declared[2]});").strip())


def check(compiler, source, includes):
    with open(RECORD) as file:
        lines = [line.rstrip("\n").split(" ", 1) for line in file if not line.startswith("#")]
    text, known = "", set()
    for kind, rest in lines:
        name = rest.split()[0]
        if kind == "value":
            text += assertion(*rest.split())
        elif kind == "size":
            text += assertion(f"sizeof({name})", rest.split()[1])
        elif kind == "macro":
            text += f"#ifndef {name}\n#error {name} is not defined\n#endif\n"
        else:  # a declaration that differs from the header's does not compile
            name = re.search(r"\b(\w+)\(", rest)[1]
            text += rest + "\n"
        known.add(name)
    newer = [name for names in used_by(source) for name in names if name not in known]
    print(f"{len(known)} names of CUDA 12.6 and cuDNN 9.3, {len(newer)} others used")
    assert not newer, f"not in CUDA 12.6 or cuDNN 9.3, or not recorded: {newer}"
    result = compile_c(compiler, includes, text, "-fsyntax-only")
    assert result.returncode == 0, result.stderr


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--record"]
    (record if "--record" in sys.argv else check)(arguments[0], arguments[1], arguments[2:])
