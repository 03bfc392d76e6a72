// Any bytes are an ONNX model or an error; a model survives stripping, restoring and writing back.
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/onnx/export.h"
#include "runtime/engine/onnx/onnx_normalize.h"

#define LIMIT (1u << 24)

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void read_integers(const struct cn_onnx_tensor *tensor)
{
    int64_t *values = malloc(tensor->count * sizeof(*values) + 1);

    if (values && tensor->type != CN_ONNX_FLOAT)
        require(cn_onnx_tensor_ints(tensor, values) == CN_OK);
    free(values);
}

static void read_tensors(const struct cn_onnx *onnx)
{
    for (size_t i = 0; i < onnx->initializer_count; i++) {
        read_integers(&onnx->initializers[i]);
        require(cn_onnx_initializer_find(onnx, onnx->initializers[i].name) ==
                &onnx->initializers[i]);
    }
    for (size_t i = 0; i < onnx->node_count; i++) {
        for (size_t j = 0; j < onnx->nodes[i].attribute_count; j++) {
            if (onnx->nodes[i].attributes[j].tensor.type)
                read_integers(&onnx->nodes[i].attributes[j].tensor);
        }
    }
}

static void strip_and_write(const struct cn_onnx *onnx, const struct cn_layout *layout,
                            const float *weights)
{
    struct cn_buffer blob, restored, written;
    struct cn_onnx *again = NULL;

    cn_buffer_init(&blob, LIMIT);
    cn_buffer_init(&restored, LIMIT);
    cn_buffer_init(&written, LIMIT);
    require(cn_export_graph(onnx, layout, &blob) == CN_OK);
    require(cn_export_restore(blob.data, blob.size, NULL, &restored) == CN_OK);
    require(cn_onnx_open(restored.data, restored.size, NULL, &again) == CN_OK);
    require(cn_export_onnx(again, layout, weights, CN_EXPORT_TRAINING, &written) == CN_OK);
    require(written.size == onnx->file_size && memcmp(written.data, onnx->file, written.size) == 0);
    cn_onnx_close(again);
    written.size = 0;
    require(cn_export_onnx(onnx, layout, weights, CN_EXPORT_INFERENCE, &written) == CN_OK);
    require(written.size <= onnx->file_size);
    require(cn_onnx_open(written.data, written.size, NULL, &again) == CN_OK);
    cn_onnx_close(again);
    written.size = 0;
    require(cn_export_safetensors(layout, weights, &written) == CN_OK);
    cn_buffer_deinit(&written);
    cn_buffer_deinit(&restored);
    cn_buffer_deinit(&blob);
}

// A model whose input is normalized is a model, too, and is not normalized twice.
static void normalize(const struct cn_onnx *onnx, struct cn_diag *diag)
{
    const float mean = 1, factor = 2;
    const struct cn_normalization numbers = {.mean = &mean, .factor = &factor};
    struct cn_buffer changed, twice;
    struct cn_onnx *again = NULL;

    cn_buffer_init(&changed, LIMIT);
    cn_buffer_init(&twice, LIMIT);
    if (!cn_onnx_normalize(onnx, &numbers, diag, &changed)) {
        require(changed.size > onnx->file_size);
        require(cn_onnx_open(changed.data, changed.size, NULL, &again) == CN_OK);
        require(again->node_count == onnx->node_count + 4);
        require(cn_onnx_normalize(again, &numbers, diag, &twice) == CN_ENOTSUP);
    }
    cn_onnx_close(again);
    cn_buffer_deinit(&twice);
    cn_buffer_deinit(&changed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_onnx *onnx;
    struct cn_layout layout;
    struct cn_diag diag;
    float *weights;

    cn_diag_init(&diag);
    if (size > LIMIT / 16 || cn_onnx_open(data, size, &diag, &onnx))
        return 0;
    read_tensors(onnx);
    normalize(onnx, &diag);
    if (!cn_onnx_layout(onnx, &diag, &layout)) {
        weights = malloc(layout.total * sizeof(*weights));
        if (weights) {
            require(cn_onnx_weights(onnx, &layout, weights) == CN_OK);
            strip_and_write(onnx, &layout, weights);
        }
        free(weights);
        cn_layout_deinit(&layout);
    }
    cn_onnx_close(onnx);
    return 0;
}
