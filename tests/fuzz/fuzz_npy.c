// Any bytes are an array inside them or an error.
#include <stdlib.h>

#include "runtime/engine/data/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char type[CN_NPY_TYPE_SIZE];
    struct cn_diag diag;
    struct cn_npy npy;
    int64_t sum = 0;

    cn_diag_init(&diag);
    if (cn_npy_parse(data, size, "fuzz.npy", &diag, &npy)) {
        if (diag.count == 0)
            abort();
        return 0;
    }
    cn_npy_type_text(&npy, type);
    for (size_t i = 0; i < npy.count; i++)
        sum ^= cn_npy_int(&npy, i);
    if (npy.count == 0 && sum != 0) // never: it only makes every element count
        abort();
    return 0;
}
