// Writes a model with the weights 0, 1, 2, ... as OUT.onnx and OUT.safetensors.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/engine/onnx/export.h"
#include "runtime/engine/onnx/onnx_file.h"

#define LIMIT (1u << 24)

static cn_err write_file(const char *stem, const char *suffix, const struct cn_buffer *content)
{
    char path[4096];
    FILE *file;
    size_t written;

    snprintf(path, sizeof(path), "%s%s", stem, suffix);
    file = fopen(path, "wb");
    if (!file)
        return CN_EIO;
    written = fwrite(content->data, 1, content->size, file);
    return fclose(file) || written != content->size ? CN_EIO : CN_OK;
}

static cn_err export_both(const struct cn_onnx *onnx, const struct cn_layout *layout,
                          const float *weights, const char *stem)
{
    struct cn_buffer out;
    cn_err err;

    cn_buffer_init(&out, LIMIT);
    err = cn_export_onnx(onnx, layout, weights, CN_EXPORT_TRAINING, &out);
    if (!err)
        err = write_file(stem, ".onnx", &out);
    out.size = 0;
    if (!err)
        err = cn_export_safetensors(layout, weights, &out);
    if (!err)
        err = write_file(stem, ".safetensors", &out);
    cn_buffer_deinit(&out);
    return err;
}

int main(int argc, char **argv)
{
    struct cn_onnx_file file;
    struct cn_layout layout;
    struct cn_onnx *onnx;
    float *weights;
    cn_err err;

    if (argc != 3) {
        fprintf(stderr, "usage: write_exports MODEL.onnx OUT\n");
        return 2;
    }
    if (cn_onnx_file_open(argv[1], NULL, &file) ||
        cn_onnx_open(file.data, file.size, NULL, &onnx) || cn_onnx_layout(onnx, NULL, &layout))
        return 1;
    weights = malloc(layout.total * sizeof(*weights));
    if (!weights)
        return 1;
    for (size_t i = 0; i < layout.total; i++)
        weights[i] = (float)i;
    err = export_both(onnx, &layout, weights, argv[2]);
    free(weights);
    cn_layout_deinit(&layout);
    cn_onnx_close(onnx);
    cn_onnx_file_close(&file);
    return err ? 1 : 0;
}
