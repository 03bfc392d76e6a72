#include "runtime/command/train_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/engine/onnx/export.h"
#include "runtime/engine/onnx/onnx_inference.h"
#include "runtime/engine/trainer/trainer_state.h"

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), wanted = strlen(end);

    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

bool cn_train_files_known(const char *path)
{
    if (ends_with(path, ".onnx") || ends_with(path, ".safetensors"))
        return true;
    fprintf(stderr, "error: --save '%s' ends neither in .onnx nor in .safetensors\n", path);
    return false;
}

static cn_err write_piece(void *context, const void *piece, size_t size)
{
    return fwrite(piece, 1, size, context) == size ? CN_OK : CN_EIO;
}

static FILE *open_file(const char *path, struct cn_diag *diag)
{
    FILE *file = fopen(path, "wb");

    if (!file)
        cn_diag_add(diag, "%s: cannot be written: %s", path, strerror(errno));
    return file;
}

static cn_err write_weights(const struct cn_session *session, const float *weights,
                            const char *path, enum cn_export_form form, struct cn_diag *diag)
{
    const struct cn_layout *layout = cn_session_layout(session);
    FILE *file = open_file(path, diag);
    cn_err err;

    if (!file)
        return CN_EIO;
    err = ends_with(path, ".onnx")
              ? cn_export_onnx_pieces(cn_session_onnx(session), layout, weights, form, write_piece,
                                      file)
              : cn_export_safetensors_pieces(layout, weights, write_piece, file);
    if (fclose(file) && !err)
        err = CN_EIO;
    if (err)
        cn_diag_add(diag, "%s: is not complete: %s", path, cn_err_text(err));
    return err;
}

// Warns of a node that draws random numbers and that a model for inference cannot leave out.
static void warn_random(const struct cn_onnx *onnx, const char *path)
{
    const struct cn_onnx_node *node = cn_onnx_inference_random(onnx);

    if (node)
        fprintf(stderr,
                "warning: %s: node '%.*s' (%.*s) draws random numbers in inference, too; if the "
                "module in eval() does not, save a .safetensors file and load it into the module\n",
                path, (int)node->name.size, node->name.size ? node->name.data : "",
                (int)node->op.size, node->op.data);
}

cn_err cn_train_files_save(struct cn_session *session, const char *path, enum cn_export_form form,
                           struct cn_diag *diag)
{
    struct cn_trainer *trainer = cn_session_trainer(session);
    float *weights;
    cn_err err = cn_trainer_share_weights(trainer, &weights), returned;

    if (err)
        return err;
    if (form == CN_EXPORT_INFERENCE && ends_with(path, ".onnx"))
        warn_random(cn_session_onnx(session), path);
    err = write_weights(session, weights, path, form, diag);
    returned = cn_trainer_return_weights(trainer);
    return err ? err : returned;
}

struct trace {
    FILE *file;
    size_t count;
};

// Writes a complete event of Chrome's Trace Event Format:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
static void write_op(void *context, const struct cn_trainer_op *op)
{
    struct trace *trace = context;

    fprintf(trace->file,
            "%s\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,"
            "\"pid\":1,\"tid\":%d,\"args\":{\"call\":%zu,\"flops_per_sample\":%.0f}}",
            trace->count ? "," : "", op->name, op->forward ? "forward" : "backward", op->us,
            op->duration_us, op->forward ? 1 : 2, trace->count, op->flops);
    trace->count++;
}

cn_err cn_train_files_ops(struct cn_session *session, const char *path, struct cn_diag *diag)
{
    struct cn_trainer *trainer = cn_session_trainer(session);
    struct trace trace = {.file = open_file(path, diag)};
    cn_err err, discarded;

    if (!trace.file)
        return CN_EIO;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", trace.file);
    err = cn_trainer_time_ops(trainer, cn_session_first_batch(session), write_op, &trace);
    discarded = cn_trainer_discard(trainer);
    fputs("\n]}\n", trace.file);
    if (fclose(trace.file) && !err)
        err = CN_EIO;
    if (err)
        cn_diag_add(diag, "%s: is not complete: %s", path, cn_err_text(err));
    return err ? err : discarded;
}
