// A file in other floats becomes one in float32 or stays; there is nothing to widen in the result.
// A file whose tensors have several roles becomes larger or stays.
#include <stdlib.h>

#include "runtime/engine/onnx/onnx.h"
#include "runtime/engine/onnx/onnx_split.h"
#include "runtime/engine/onnx/onnx_widen.h"

#define LIMIT ((size_t)1 << 22)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_buffer once, twice;
    struct cn_onnx *onnx;

    cn_buffer_init(&once, LIMIT);
    cn_buffer_init(&twice, LIMIT);
    if (!cn_onnx_widen(data, size, &once) && once.size) {
        if (cn_onnx_widen(once.data, once.size, &twice) || twice.size)
            abort();
        if (!cn_onnx_open(once.data, once.size, NULL, &onnx))
            cn_onnx_close(onnx);
    }
    cn_buffer_deinit(&twice);
    cn_buffer_init(&twice, LIMIT);
    if (!cn_onnx_split(data, size, &twice) && twice.size && twice.size <= size)
        abort();
    cn_buffer_deinit(&twice);
    cn_buffer_deinit(&once);
    return 0;
}
