// passed_net.h - the graph that the passes leave of a net, for tests of what they fuse.
#pragma once

#include "runtime/engine/graph/passes.h"
#include "runtime/engine/import/import.h"
#include "tests/unit/gradient_check.h"

// Names of values are borrowed from model, which the caller keeps until it has closed *onnx.
static inline void import_message(const struct message *model, struct cn_onnx **onnx,
                                  struct cn_graph *graph)
{
    struct cn_layout layout;
    struct cn_diag diag;

    cn_diag_init(&diag);
    cn_graph_init(graph);
    assert_int_equal(cn_onnx_open(model->bytes, model->size, &diag, onnx), CN_OK);
    assert_int_equal(cn_onnx_layout(*onnx, &diag, &layout), CN_OK);
    if (cn_import(*onnx, &layout, &diag, graph))
        fail_msg("%s", cn_diag_first(&diag));
    cn_layout_deinit(&layout);
}

static inline void run_passes(const struct net *net, struct cn_graph *graph)
{
    struct message model = net_message(net);
    struct cn_onnx *onnx;

    import_message(&model, &onnx, graph);
    assert_int_equal(cn_passes_run(graph), CN_OK);
    cn_onnx_close(onnx);
}
