#include "aggregator/store/model_file.h"

#include <string.h>

cn_err cn_model_file_init(struct cn_model_file *file, const char *path, struct cn_diag *diag)
{
    memset(file, 0, sizeof(*file));
    cn_buffer_init(&file->graph, CN_ONNX_FILE_MAX);
    cn_err err = cn_onnx_file_open(path, diag, &file->file);
    if (err)
        return err;
    err = cn_onnx_open(file->file.data, file->file.size, diag, &file->onnx);
    if (!err)
        err = cn_onnx_layout(file->onnx, diag, &file->layout);
    if (!err)
        err = cn_export_graph(file->onnx, &file->layout, &file->graph);
    if (err && diag->count == 0)
        cn_diag_add(diag, "%s: %s", path, cn_err_text(err));
    if (!err)
        cn_crypto_digest(file->graph.data, file->graph.size, file->digest);
    return err;
}

void cn_model_file_deinit(struct cn_model_file *file)
{
    cn_buffer_deinit(&file->graph);
    cn_layout_deinit(&file->layout);
    cn_onnx_close(file->onnx);
    cn_onnx_file_close(&file->file);
    memset(file, 0, sizeof(*file));
}
