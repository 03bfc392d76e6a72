"""Compiles the kernels by NVRTC, which is CUDA's compiler as a library. So the code for boards can be made by an older
release of CUDA than that of nvcc, and older drivers load it. The architecture is sm_80 for machine code of these GPUs,
or compute_80 for PTX.

usage: compile_kernels.py NVRTC SOURCE ARCHITECTURE OUTPUT
"""

import ctypes
import os
import sys

# NVRTC has no C library. These are the parts of its headers that the kernels and runtime/port/compute.h use, for
# hosts with long of 64 bits.
HEADERS = {
    "math.h": "#define INFINITY __int_as_float(0x7f800000)\n",
    "stdbool.h": "",
    "stddef.h": "",
    "stdint.h": """
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long uintptr_t;
#define INT32_MAX 2147483647
#define INT32_MIN (-INT32_MAX - 1)
#define UINT32_MAX 4294967295u
""",
}


def strings(values):
    return (ctypes.c_char_p * len(values))(*[value.encode() for value in values])


class Program:
    def __init__(self, library, path):
        self.library, self.handle = library, ctypes.c_void_p()
        with open(path, "rb") as file:
            text = file.read()
        # The name is part of the code's names, so it has no path.
        self.require("CreateProgram", ctypes.byref(self.handle), text, os.path.basename(path).encode(), len(HEADERS),
                     strings(HEADERS.values()), strings(HEADERS.keys()), of_this=False)

    def call(self, function, *arguments, of_this=True):
        first = (self.handle,) if of_this else ()
        return getattr(self.library, "nvrtc" + function)(*first, *arguments)

    def require(self, function, *arguments, of_this=True):
        result = self.call(function, *arguments, of_this=of_this)
        if result:
            self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
            sys.exit(f"nvrtc{function}: {self.library.nvrtcGetErrorString(result).decode()}")

    def get(self, what):
        size = ctypes.c_size_t()
        self.require(f"Get{what}Size", ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self.require(f"Get{what}", data)
        return data.raw

    def compile(self, *options):
        result = self.call("CompileProgram", len(options), strings(options))
        log = self.get("ProgramLog").rstrip(b"\0").decode()
        if log.strip():
            print(log, file=sys.stderr)
        if result:
            sys.exit(f"NVRTC does not compile the kernels ({result})")


def main(library, source, architecture, output):
    program = Program(ctypes.CDLL(library), os.path.join(source, "ports", "cuda", "kernels", "kernels.cu"))
    # The headers of the runtime declare functions of the host too. No kernel calls them.
    program.compile(f"--include-path={source}", f"--gpu-architecture={architecture}", "--device-as-default-execution-space")
    data = program.get("CUBIN") if architecture.startswith("sm_") else program.get("PTX").rstrip(b"\0")
    with open(output + ".part", "wb") as file:
        file.write(data)
    os.replace(output + ".part", output)


if __name__ == "__main__":
    main(*sys.argv[1:])
