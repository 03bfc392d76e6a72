# Toolchain of the preset arm64: Debian's cross compiler and the sysroot made by "setup --for boards".
# Tests run under qemu-user, without binfmt_misc.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(cairn_sysroot ${CMAKE_CURRENT_LIST_DIR}/../build/deps/sysroot-arm64 ABSOLUTE)
get_filename_component(cairn_cuda ${CMAKE_CURRENT_LIST_DIR}/../build/deps/cuda-arm64 ABSOLUTE)
list(APPEND CMAKE_FIND_ROOT_PATH ${cairn_sysroot} ${cairn_cuda})
if(EXISTS ${cairn_cuda}/stamp) # the compiler of this machine that knows all boards, and goes with the headers
    set(CAIRN_NVCC ${cairn_cuda}/bin/nvcc CACHE FILEPATH "NVIDIA's compiler" FORCE)
    if(EXISTS ${cairn_cuda}/nvrtc/libnvrtc.so.12) # an older one, for the drivers of JetPack 6
        set(CAIRN_NVRTC ${cairn_cuda}/nvrtc/libnvrtc.so.12 CACHE FILEPATH "libnvrtc.so that compiles the kernels" FORCE)
    endif()
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

find_program(qemu_user NAMES qemu-aarch64-static qemu-aarch64)
if(qemu_user)
    set(CMAKE_CROSSCOMPILING_EMULATOR ${qemu_user} -L /usr/aarch64-linux-gnu)
endif()
