// Any bytes as an update: refused, or finite values of exactly the layout's size. The digest is
// made to fit for a second try; a block is decoded before its CRC is looked at.
#include "runtime/update/update.h"
#include "tests/fuzz/sealed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct cn_tensor_info tensors[] = {
    {.name = (char *)"matrix", .class = CN_TENSOR_PARAM, .offset = 0, .count = 1500},
    {.name = (char *)"bias", .class = CN_TENSOR_PARAM, .offset = 1500, .count = 4},
    {.name = (char *)"mean", .class = CN_TENSOR_STAT, .offset = 1504, .count = 4},
};
static const struct cn_layout layout = {.tensors = tensors, .tensor_count = 3, .total = 1508};

static cn_err visit(void *context, size_t offset, const float *values, size_t count)
{
    size_t *visited = context;

    if (offset != *visited || count > layout.total - offset)
        abort();
    for (size_t i = 0; i < count; i++) {
        if (!(values[i] >= -CN_UPDATE_VALUE_MAX && values[i] <= CN_UPDATE_VALUE_MAX))
            abort();
    }
    *visited += count;
    return CN_OK;
}

static void try_frame(const uint8_t *frame, size_t size)
{
    struct cn_update_header header;
    struct cn_diag diag;
    size_t visited = 0;
    cn_err err;

    cn_diag_init(&diag);
    err = cn_update_check(frame, size, &layout, &diag, &header);
    if (err) {
        if (diag.count == 0)
            abort();
        // Decoding is total too; what it visited before the error was within the limits.
        (void)!cn_update_decode(frame, size, &layout, visit, &visited);
        return;
    }
    if (cn_update_decode(frame, size, &layout, visit, &visited) || visited != layout.total)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return try_sealed(data, size, try_frame);
}
