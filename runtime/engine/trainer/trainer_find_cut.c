// trainer_find_cut.c - the cut that a job wants, found without opening a trainer.
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/engine/trainer/trainer_private.h"

cn_err cn_trainer_find_cut(const struct cn_graph *graph, const struct cn_layout *layout,
                           const char *names, uint32_t parts, struct cn_diag *diag,
                           struct cn_cut *cut)
{
    return names[0] ? cn_cut_read(graph, layout, names, diag, cut)
                    : cn_trainer_choose_cut(graph, parts, diag, cut);
}

cn_err cn_trainer_check_cut(const struct cn_onnx *onnx, const struct cn_job *job,
                            struct cn_diag *diag)
{
    struct cn_layout layout;
    struct cn_graph graph;
    struct cn_diag lines; // import also warns
    struct cn_cut cut;
    cn_err err;

    cn_diag_init(&lines);
    err = cn_trainer_import(onnx, job->loss, &job->rules, &lines, &layout, &graph);
    if (!err) {
        err = cn_trainer_find_cut(&graph, &layout, job->pipeline.cut, job->pipeline.parts, &lines,
                                  &cut);
        if (!err && job->parallel.shard > 1)
            err =
                cn_trainer_refuse_stage(&graph, job->pipeline.parts,
                                        CN_STAGE_OPTIMIZER + (uint32_t)job->parallel.stage, &lines);
        cn_graph_deinit(&graph);
        cn_layout_deinit(&layout);
    }
    for (size_t i = 0; err && i < lines.count && i < CN_DIAG_LINES; i++)
        cn_diag_add(diag, "%s", lines.lines[i]);
    return err;
}
