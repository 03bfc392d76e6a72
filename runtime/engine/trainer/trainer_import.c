// trainer_import.c - makes the graph that a trainer runs.
#include "runtime/base/words.h"
#include "runtime/engine/graph/autodiff.h"
#include "runtime/engine/graph/loss.h"
#include "runtime/engine/graph/passes.h"
#include "runtime/engine/import/import.h"
#include "runtime/engine/trainer/trainer.h"
#include "runtime/engine/trainer/trainer_parts.h"

// Marks the tensors that train.freeze names. A pattern that matches no tensor is an error.
static cn_err freeze(const struct cn_rules *rules, struct cn_diag *diag, struct cn_layout *layout)
{
    const char *rest = rules->freeze;
    char pattern[CN_WORDS_SIZE];
    cn_err err = CN_OK;

    while (cn_words_next(&rest, pattern, sizeof(pattern))) {
        size_t found = 0;

        for (size_t i = 0; i < layout->tensor_count; i++)
            if (cn_words_match(pattern, layout->tensors[i].name)) {
                layout->tensors[i].frozen = true;
                found++;
            }
        if (!found) {
            cn_diag_add(diag, "train.freeze: the model has no tensor '%s'", pattern);
            err = CN_ENOTSUP;
        }
    }
    return err;
}

static cn_err build(const struct cn_onnx *onnx, enum cn_loss loss, const struct cn_rules *rules,
                    struct cn_diag *diag, struct cn_layout *layout, struct cn_graph *graph)
{
    cn_err err = freeze(rules, diag, layout);

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
