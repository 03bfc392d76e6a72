// Dropout.
#include "runtime/engine/import_emit.h"

cn_err cn_import_dropout(struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0);
    float ratio = cn_import_float(node, "ratio", 0.5f);
    bool training = false;

    if (!x->batched)
        return cn_import_refuse(node, "the input must be computed from the samples");
    if (cn_import_has(node, 1)) {
        const struct cn_value *value = cn_import_value(node, 1);

        if (value->kind != CN_VALUE_CONST || value->words != 1)
            return cn_import_refuse(node, "the ratio must be a Constant");
        ratio = node->graph->constants[value->offset];
    }
    if (cn_import_has(node, 2)) {
        const struct cn_value *value = cn_import_value(node, 2);

        if (value->kind != CN_VALUE_SHAPE || value->words != 1)
            return cn_import_refuse(node, "the training mode must be a Constant");
        training = node->graph->numbers[value->offset] != 0;
    }
    if (training && ratio != 0)
        return cn_import_refuse(
            node, "a ratio of %g in training mode is not supported yet, wanted 0", (double)ratio);
    return cn_import_identity(node);
}
