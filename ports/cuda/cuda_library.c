#include "ports/cuda/cuda_library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "runtime/base/log.h"

// The name of a function and its place in a table.
struct symbol {
    const char *name;
    size_t offset;
};

#define DRIVER_SYMBOL(member, function) {#function, offsetof(struct cuda_driver, member)},
#define BLAS_SYMBOL(member, function) {#function, offsetof(struct cuda_blas, member)},
#define DNN_SYMBOL(member, function) {#function, offsetof(struct cuda_dnn, member)},

static const struct symbol driver_symbols[] = {CUDA_DRIVER_FUNCTIONS(DRIVER_SYMBOL){NULL, 0}};
static const struct symbol blas_symbols[] = {CUDA_BLAS_FUNCTIONS(BLAS_SYMBOL){NULL, 0}};
static const struct symbol dnn_symbols[] = {CUDA_DNN_FUNCTIONS(DNN_SYMBOL){NULL, 0}};

static const char *const driver_files[] = {"libcuda.so.1", NULL};
// A library for CUDA 13 does not start on a driver for CUDA 12; an older library does on a newer
// driver.
static const char *const blas_files[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
static const char *const dnn_files[] = {"libcudnn.so.9", NULL};

// Opens the first of the files that is there and fills in a table of its functions. Returns NULL if
// that fails; *why is then the last reason.
static void *open_table(const char *const *files, const struct symbol *symbols, void *table,
                        const char **why)
{
    void *handle = NULL;

    // NODELETE, because the libraries keep threads, and code that runs when a thread ends.
    for (; *files && !handle; files++)
        handle = dlopen(*files, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        *why = dlerror();
        return NULL;
    }
    for (; symbols->name; symbols++) {
        void *function = dlsym(handle, symbols->name);

        if (!function) {
            *why = symbols->name;
            dlclose(handle);
            return NULL;
        }
        memcpy((char *)table + symbols->offset, &function, sizeof(function));
    }
    return handle;
}

cn_err cuda_library_open(struct cuda_library *library, enum cn_log_level absence)
{
    const char *why = "";
    int version = 0;

    *library = (struct cuda_library){0};
    library->handles[0] = open_table(driver_files, driver_symbols, &library->driver, &why);
    if (!library->handles[0]) {
        cn_log(absence, "cuda", "no GPU is used: the driver's library: %s", why);
        return CN_ENOTSUP;
    }
    if (library->driver.driver_version(&version))
        version = 0;
    library->handles[1] =
        open_table(blas_files + (version < 13000), blas_symbols, &library->blas, &why);
    if (!library->handles[1]) {
        cn_log(CN_LOG_WARN, "cuda", "without cuBLASLt products are slower: %s", why);
        library->blas = (struct cuda_blas){0};
    }
    library->handles[2] = open_table(dnn_files, dnn_symbols, &library->dnn, &why);
    if (!library->handles[2]) {
        cn_log(CN_LOG_WARN, "cuda", "without cuDNN convolutions are slower: %s", why);
        library->dnn = (struct cuda_dnn){0};
    }
    return CN_OK;
}

void cuda_library_close(struct cuda_library *library)
{
    for (int i = 0; i < 3; i++)
        if (library->handles[i])
            dlclose(library->handles[i]);
    *library = (struct cuda_library){0};
}
