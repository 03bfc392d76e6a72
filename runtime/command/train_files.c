#include "runtime/command/train_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/export.h"

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

static cn_err write_file(const char *path, const struct cn_buffer *buffer)
{
    FILE *file = fopen(path, "wb");
    bool written;

    if (!file) {
        fprintf(stderr, "error: %s cannot be written\n", path);
        return CN_EIO;
    }
    written = fwrite(buffer->data, 1, buffer->size, file) == buffer->size;
    return fclose(file) == 0 && written ? CN_OK : CN_EIO;
}

cn_err cn_train_files_save(struct cn_session *session, const char *path)
{
    float *weights = calloc(session->layout->total + 1, sizeof(*weights));
    struct cn_buffer file;
    cn_err err;

    if (!weights)
        return CN_ENOMEM;
    cn_buffer_init(&file, CN_ONNX_FILE_MAX);
    err = cn_trainer_get_weights(session->trainer, weights);
    if (!err && ends_with(path, ".onnx"))
        err = cn_export_onnx(session->onnx, session->layout, weights, &file);
    else if (!err)
        err = cn_export_safetensors(session->layout, weights, &file);
    if (!err)
        err = write_file(path, &file);
    cn_buffer_deinit(&file);
    free(weights);
    return err;
}

struct trace {
    FILE *file;
    size_t count;
};

// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: complete events.
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

cn_err cn_train_files_ops(struct cn_session *session, const char *path)
{
    struct trace trace = {.file = fopen(path, "w")};
    cn_err err, discarded;

    if (!trace.file) {
        fprintf(stderr, "error: %s cannot be written\n", path);
        return CN_EIO;
    }
    cn_dataset_train_batch(session->dataset, 0, session->config.job->batch, &session->batch);
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", trace.file);
    err = cn_trainer_time_ops(session->trainer, &session->batch, write_op, &trace);
    discarded = cn_trainer_discard(session->trainer);
    fputs("\n]}\n", trace.file);
    if (fclose(trace.file) && !err)
        err = CN_EIO;
    return err ? err : discarded;
}
