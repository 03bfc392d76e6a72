#include "runtime/command/check_export.h"

#include <string.h>

#include "runtime/engine/onnx/onnx_signature.h"

#define EXPORT_WHOLE "dynamo=False and training=TrainingMode.TRAINING, or with optimize=False"

// Counts names that were not found, and keeps the first of them.
struct lost {
    size_t count;
    struct cn_text first;
};

static void lose(struct lost *lost, struct cn_text name)
{
    if (!lost->count++)
        lost->first = name;
}

static int shown(struct cn_text name)
{
    return name.size < 100 ? (int)name.size : 100;
}

static bool ends_with(struct cn_text name, const char *end)
{
    size_t size = strlen(end);

    return name.size >= size && !memcmp(name.data + name.size - size, end, size);
}

// Returns whether the exporter recorded that it computed another initializer from this parameter.
static bool is_worked_in(const struct cn_onnx *onnx, struct cn_text name)
{
    const struct cn_onnx_signature one = {.parameters = &name, .count = 1};

    for (size_t i = 0; i < onnx->role_count; i++)
        if (onnx->roles[i].folded.size && cn_onnx_initializer_find(onnx, onnx->roles[i].name) &&
            cn_onnx_signature_names(&one, onnx->roles[i].folded))
            return true;
    return false;
}

static void find_parameters(const struct cn_onnx *onnx, const struct cn_onnx_signature *signature,
                            struct lost *missing, struct lost *worked_in)
{
    for (size_t i = 0; i < signature->count; i++)
        if (!cn_onnx_initializer_find(onnx, signature->parameters[i]))
            lose(is_worked_in(onnx, signature->parameters[i]) ? worked_in : missing,
                 signature->parameters[i]);
}

static void check_parameters(const struct cn_onnx *onnx, const struct cn_onnx_signature *signature,
                             struct cn_diag *diag)
{
    struct lost missing = {0}, worked_in = {0};

    find_parameters(onnx, signature, &missing, &worked_in);
    if (missing.count)
        cn_diag_add(diag,
                    "%zu parameters of the module have no tensor in the file ('%.*s'): the "
                    "exporter folded them into others, merged them with what holds the same, or "
                    "found them unused. Unless they are tied, export with " EXPORT_WHOLE,
                    missing.count, shown(missing.first), missing.first.data);
    if (worked_in.count)
        cn_diag_add(
            diag,
            "%zu parameters of the module train as what the exporter made of them ('%.*s'), "
            "under other names; export with " EXPORT_WHOLE " to train them themselves",
            worked_in.count, shown(worked_in.first), worked_in.first.data);
}

static void check_statistics(const struct cn_onnx *onnx, const struct cn_onnx_signature *signature,
                             enum cn_batch_norm_use use, struct cn_diag *diag)
{
    struct lost missing = {0}, kept = {0};

    for (size_t i = 0; i < signature->moved_count; i++) {
        struct cn_text name = signature->moved[i];

        if (ends_with(name, "running_mean"))
            lose(cn_onnx_initializer_find(onnx, name) ? &kept : &missing, name);
    }
    if (missing.count)
        cn_diag_add(diag,
                    "%zu batch normalizations of the module have no statistics in the file "
                    "('%.*s'): the exporter folded them into the layers before them, where they "
                    "do not train, or merged them. Export with " EXPORT_WHOLE,
                    missing.count, shown(missing.first), missing.first.data);
    if (kept.count && use == CN_BATCH_NORM_MODEL)
        cn_diag_add(diag,
                    "the module was exported while it trains ('%.*s' moves), but batch "
                    "normalization in the file is for inference: with 'train: {bn: train}' in the "
                    "profile it trains as in the module",
                    shown(kept.first), kept.first.data);
}

static bool has_batch_norm(const struct cn_onnx *onnx)
{
    for (size_t i = 0; i < onnx->node_count; i++)
        if (cn_text_equal(onnx->nodes[i].op, "BatchNormalization"))
            return true;
    return false;
}

void cn_check_export(const struct cn_onnx *onnx, enum cn_batch_norm_use use, struct cn_diag *diag)
{
    struct cn_onnx_signature signature;

    if (use != CN_BATCH_NORM_MODEL && !has_batch_norm(onnx))
        cn_diag_add(diag,
                    "train.bn is '%s', but the model has no BatchNormalization: an export for "
                    "inference folds it into the layers before; export with " EXPORT_WHOLE,
                    use == CN_BATCH_NORM_TRAIN ? "train" : "frozen");
    if (cn_onnx_signature_init(onnx->signature, &signature))
        return; // no memory for names: nothing is said of them
    check_parameters(onnx, &signature, diag);
    check_statistics(onnx, &signature, use, diag);
    cn_onnx_signature_deinit(&signature);
}

bool cn_check_export_is_whole(const struct cn_onnx *onnx)
{
    struct cn_onnx_signature signature;
    struct lost missing = {0}, worked_in = {0};
    bool whole;

    if (cn_onnx_signature_init(onnx->signature, &signature))
        return false;
    find_parameters(onnx, &signature, &missing, &worked_in);
    whole = signature.count && !missing.count;
    cn_onnx_signature_deinit(&signature);
    return whole;
}
