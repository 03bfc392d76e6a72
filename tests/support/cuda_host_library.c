// What the GPU on the host is like where it is a library: CAIRN_CUDA_HOST names settings of
// cuda_host.h.
#include <stdlib.h>
#include <string.h>

#include "tests/support/cuda_host.h"

__attribute__((constructor)) static void read_settings(void)
{
    const char *names = getenv("CAIRN_CUDA_HOST");

    if (!names)
        return;
    cuda_host_settings.unified = strstr(names, "unified") != NULL;
    cuda_host_settings.managed = strstr(names, "managed") != NULL;
    cuda_host_settings.devices = strstr(names, "two") ? 2 : 1;
}
