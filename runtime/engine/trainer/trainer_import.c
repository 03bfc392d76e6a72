// trainer_import.c - makes the graph that a trainer runs.
#include "runtime/base/words.h"
#include "runtime/engine/graph/autodiff.h"
#include "runtime/engine/graph/loss.h"
#include "runtime/engine/graph/passes.h"
#include "runtime/engine/import/import.h"
#include "runtime/engine/trainer/trainer.h"
#include "runtime/engine/trainer/trainer_parts.h"

// What a list of patterns does to the tensors that it names.
typedef void mark(struct cn_tensor_info *tensor);

static void freeze(struct cn_tensor_info *tensor)
{
    tensor->frozen = true;
}

static void spare(struct cn_tensor_info *tensor)
{
    tensor->no_decay = true;
}

// Marks the tensors that the patterns of a key name. A pattern that matches no tensor is an error.
static cn_err mark_tensors(const char *key, const char *patterns, mark *do_mark,
                           struct cn_diag *diag, struct cn_layout *layout)
{
    char pattern[CN_WORDS_SIZE];
    cn_err err = CN_OK;

    while (cn_words_next(&patterns, pattern, sizeof(pattern))) {
        size_t found = 0;

        for (size_t i = 0; i < layout->tensor_count; i++)
            if (cn_words_match(pattern, layout->tensors[i].name)) {
                do_mark(&layout->tensors[i]);
                found++;
            }
        if (!found) {
            cn_diag_add(diag, "%s: the model has no tensor '%s'", key, pattern);
            err = CN_ENOTSUP;
        }
    }
    return err;
}

static cn_err build(const struct cn_onnx *onnx, enum cn_loss loss, const struct cn_rules *rules,
                    struct cn_diag *diag, struct cn_layout *layout, struct cn_graph *graph)
{
    cn_err err = mark_tensors("train.freeze", rules->freeze, freeze, diag, layout);
    cn_err spared = mark_tensors("train.no_decay", rules->no_decay, spare, diag, layout);

    err = err ? err : spared;
    if (loss == CN_LOSS_OUTPUT)
        graph->loss_output = rules->output;
    graph->batch_norm = rules->batch_norm;
    if (!err)
        err = cn_import(onnx, layout, diag, graph);
    if (!err)
        err = cn_passes_run(graph);
    if (!err)
        err = cn_loss_add(graph, loss, rules, diag);
    return err ? err : cn_autodiff_run(graph);
}

cn_err cn_trainer_import(const struct cn_onnx *onnx, enum cn_loss loss,
                         const struct cn_rules *rules, struct cn_diag *diag,
                         struct cn_layout *layout, struct cn_graph *graph)
{
    cn_err err = cn_onnx_layout(onnx, diag, layout);

    if (err)
        return err;
    cn_graph_init(graph);
    err = build(onnx, loss, rules, diag, layout, graph);
    if (err) {
        cn_graph_deinit(graph);
        cn_layout_deinit(layout);
    }
    return err;
}
