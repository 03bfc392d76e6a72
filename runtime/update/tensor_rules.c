#include "runtime/update/tensor_rules.h"

#include "runtime/base/words.h"
#include "runtime/profile/layer_entry.h"
#include "runtime/update/local_tensors.h"
#include "runtime/update/update_block.h"

static cn_err refuse(const char *key, const char *name, struct cn_diag *diag)
{
    cn_diag_add(diag, "%s: the model has no trained tensor '%s' of %d values or more that travels",
                key, name, CN_UPDATE_SMALL_COUNT);
    return CN_ENOTFOUND;
}

// Returns the next tensor from *at on that may be sparse and whose name matches, or NULL. Moves *at
// behind it.
static struct cn_tensor_info *next_fitting(struct cn_layout *layout, const char *name, size_t *at)
{
    while (*at < layout->tensor_count) {
        struct cn_tensor_info *tensor = &layout->tensors[(*at)++];

        if (tensor->class == CN_TENSOR_PARAM && tensor->count >= CN_UPDATE_SMALL_COUNT &&
            !tensor->stays && tensor->name && cn_words_match(name, tensor->name))
            return tensor;
    }
    return NULL;
}

static cn_err set_densities(struct cn_layout *layout, const char *entries, struct cn_diag *diag)
{
    char entry[CN_WORDS_SIZE], name[CN_WORDS_SIZE];

    while (cn_words_next(&entries, entry, sizeof(entry))) {
        struct cn_tensor_info *tensor;
        size_t at = 0;
        double density;

        if (!cn_layer_entry_density(entry, name, &density))
            return CN_EINVAL;
        tensor = next_fitting(layout, name, &at);
        if (!tensor)
            return refuse("update.densities", name, diag);
        for (; tensor; tensor = next_fitting(layout, name, &at))
            tensor->density = density;
    }
    return CN_OK;
}

static cn_err set_priorities(struct cn_layout *layout, const char *entries, struct cn_diag *diag)
{
    char entry[CN_WORDS_SIZE], name[CN_WORDS_SIZE];

    while (cn_words_next(&entries, entry, sizeof(entry))) {
        struct cn_tensor_info *tensor;
        size_t at = 0;
        int priority;

        if (!cn_layer_entry_priority(entry, name, &priority))
            return CN_EINVAL;
        tensor = next_fitting(layout, name, &at);
        if (!tensor)
            return refuse("update.priorities", name, diag);
        for (; tensor; tensor = next_fitting(layout, name, &at))
            tensor->priority = priority;
    }
    return CN_OK;
}

cn_err cn_tensor_rules_set(struct cn_layout *layout, const struct cn_job *job, struct cn_diag *diag)
{
    cn_err err;

    for (size_t i = 0; i < layout->tensor_count; i++) {
        struct cn_tensor_info *tensor = &layout->tensors[i];

        tensor->density = 0;
        tensor->priority = 0;
        tensor->signs = job->options.small == CN_SMALL_SIGN && tensor->class == CN_TENSOR_PARAM &&
                        tensor->count < CN_UPDATE_SMALL_COUNT;
    }
    err = cn_local_tensors_set(layout, job, diag);
    if (!err)
        err = set_densities(layout, job->options.densities, diag);
    return err ? err : set_priorities(layout, job->options.priorities, diag);
}

bool cn_tensor_rules_sign(const struct cn_layout *layout)
{
    for (size_t i = 0; i < layout->tensor_count; i++)
        if (layout->tensors[i].signs)
            return true;
    return false;
}
