// Any bytes are a graph blob or an error; what is restored can be decoded or refused.
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/onnx/export.h"

#define LIMIT ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_buffer file, again;
    struct cn_layout layout;
    struct cn_onnx *onnx;

    cn_buffer_init(&file, LIMIT);
    cn_buffer_init(&again, 20 * LIMIT);
    if (!cn_export_restore(data, size, NULL, &file) &&
        !cn_onnx_open(file.data, file.size, NULL, &onnx)) {
        if (!cn_onnx_layout(onnx, NULL, &layout)) {
            if (cn_export_graph(onnx, &layout, &again))
                abort();
            cn_layout_deinit(&layout);
        }
        cn_onnx_close(onnx);
    }
    cn_buffer_deinit(&again);
    cn_buffer_deinit(&file);
    return 0;
}
