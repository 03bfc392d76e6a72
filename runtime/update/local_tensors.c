#include "runtime/update/local_tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/words.h"
#include "runtime/port/crypto.h"

static bool is_named(const char *patterns, const struct cn_tensor_info *tensor)
{
    char pattern[CN_WORDS_SIZE];

    while (cn_words_next(&patterns, pattern, sizeof(pattern)))
        if (tensor->name && cn_words_match(pattern, tensor->name))
            return true;
    return false;
}

// A frozen tensor has the same values on all boards. Statistics move also where train.freeze names
// them.
static bool is_known_to_all(const struct cn_job *job, const struct cn_tensor_info *tensor)
{
    return job->options.frozen == CN_FROZEN_LOCAL && tensor->class == CN_TENSOR_PARAM &&
           is_named(job->rules.freeze, tensor);
}

static cn_err check_pattern(const struct cn_layout *layout, const char *pattern,
                            struct cn_diag *diag)
{
    for (size_t i = 0; i < layout->tensor_count; i++)
        if (layout->tensors[i].name && cn_words_match(pattern, layout->tensors[i].name))
            return CN_OK;
    cn_diag_add(diag, "update.local: the model has no tensor '%s'", pattern);
    return CN_ENOTFOUND;
}

// Without a trained tensor that travels, groups would learn nothing from each other.
static cn_err check_rest(const struct cn_layout *layout, struct cn_diag *diag)
{
    if (!cn_local_tensors_stay(layout))
        return CN_OK;
    for (size_t i = 0; i < layout->tensor_count; i++)
        if (layout->tensors[i].class == CN_TENSOR_PARAM && !layout->tensors[i].stays)
            return CN_OK;
    cn_diag_add(diag, "update.local and train.freeze: they name all tensors of the model; expected "
                      "one or more that travel");
    return CN_EINVAL;
}

cn_err cn_local_tensors_set(struct cn_layout *layout, const struct cn_job *job,
                            struct cn_diag *diag)
{
    const char *rest = job->options.local;
    char pattern[CN_WORDS_SIZE];
    cn_err err = CN_OK;

    for (size_t i = 0; i < layout->tensor_count; i++) {
        struct cn_tensor_info *tensor = &layout->tensors[i];
        bool named = is_named(job->options.local, tensor);

        tensor->stays = named || is_known_to_all(job, tensor);
        tensor->local =
            named || (job->statistics == CN_STATISTICS_LOCAL && tensor->class == CN_TENSOR_STAT);
    }
    while (!err && cn_words_next(&rest, pattern, sizeof(pattern)))
        err = check_pattern(layout, pattern, diag);
    return err ? err : check_rest(layout, diag);
}

bool cn_local_tensors_stay(const struct cn_layout *layout)
{
    for (size_t i = 0; i < layout->tensor_count; i++)
        if (layout->tensors[i].stays)
            return true;
    return false;
}

void cn_local_tensors_digest(const struct cn_layout *layout, const uint8_t graph[CN_DIGEST_SIZE],
                             const float *weights, uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_sha256 sha;

    cn_sha256_init(&sha);
    cn_sha256_add(&sha, graph, CN_DIGEST_SIZE);
    for (size_t i = 0; i < layout->tensor_count; i++) {
        const struct cn_tensor_info *tensor = &layout->tensors[i];

        if (tensor->stays)
            cn_sha256_add(&sha, weights + tensor->offset, tensor->count * sizeof(float));
    }
    cn_sha256_finish(&sha, digest);
}

// Appends as many names as fit.
static void add_names(const struct cn_layout *layout, size_t count, char *text, size_t size)
{
    size_t length = 0, shown = 0;

    for (size_t i = 0; i < layout->tensor_count; i++) {
        const struct cn_tensor_info *tensor = &layout->tensors[i];
        const char *name = tensor->name ? tensor->name : "?";

        if (!tensor->local)
            continue;
        if (length + strlen(name) + sizeof(", and 4294967295 more") > size)
            break;
        length += (size_t)snprintf(text + length, size - length, "%s%s", shown ? ", " : "", name);
        shown++;
    }
    if (shown < count)
        snprintf(text + length, size - length, " and %zu more", count - shown);
}

void cn_local_tensors_text(const struct cn_layout *layout, char text[CN_LOCAL_TEXT_SIZE])
{
    size_t count = 0, values = 0;

    text[0] = 0;
    for (size_t i = 0; i < layout->tensor_count; i++)
        if (layout->tensors[i].local) {
            count++;
            values += layout->tensors[i].count;
        }
    if (!count)
        return;
    int length = snprintf(text, CN_LOCAL_TEXT_SIZE, "%zu tensor%s of %zu values: ", count,
                          count == 1 ? "" : "s", values);
    add_names(layout, count, text + length, CN_LOCAL_TEXT_SIZE - (size_t)length);
}
