#include "runtime/engine/onnx/onnx_signature.h"

#include <stdlib.h>
#include <string.h>

static const char parameter[] = ": PARAMETER target='";
static const char mutation[] = ": BUFFER_MUTATION target='";

// Returns the text before the next of these characters, where rest then begins; false for none.
static bool take_until(struct cn_text *rest, char mark, struct cn_text *part)
{
    const char *end = rest->size ? memchr(rest->data, mark, rest->size) : NULL;

    if (!end)
        return false;
    *part = (struct cn_text){rest->data, (size_t)(end - rest->data)};
    rest->size -= part->size + 1;
    rest->data = end + 1;
    return true;
}

// Returns the next name in single quotes.
static bool take_quoted(struct cn_text *rest, struct cn_text *name)
{
    return take_until(rest, '\'', name) && take_until(rest, '\'', name);
}

// Returns the target of a line of this kind.
static bool target_of(struct cn_text line, const char *kind, struct cn_text *target)
{
    const size_t size = strlen(kind);
    const char *at = line.size ? memchr(line.data, ':', line.size) : NULL;
    size_t left = at ? line.size - (size_t)(at - line.data) : 0;

    if (left <= size || memcmp(at, kind, size))
        return false;
    line = (struct cn_text){at + size - 1, left - size + 1}; // with the quote
    return take_quoted(&line, target);
}

static int compare(const void *a, const void *b)
{
    const struct cn_text *x = a, *y = b;

    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return x->size ? memcmp(x->data, y->data, x->size) : 0;
}

static size_t take_targets(struct cn_text text, const char *kind, struct cn_text *targets)
{
    struct cn_text line, target;
    size_t count = 0;

    while (take_until(&text, '\n', &line)) {
        if (!target_of(line, kind, &target))
            continue;
        if (targets)
            targets[count] = target;
        count++;
    }
    return count;
}

static cn_err read_targets(struct cn_text text, const char *kind, struct cn_text **targets,
                           size_t *count)
{
    size_t found = take_targets(text, kind, NULL);

    if (!found)
        return CN_OK;
    *targets = calloc(found, sizeof(**targets));
    if (!*targets)
        return CN_ENOMEM;
    *count = take_targets(text, kind, *targets);
    return CN_OK;
}

cn_err cn_onnx_signature_init(struct cn_text text, struct cn_onnx_signature *signature)
{
    cn_err err;

    *signature = (struct cn_onnx_signature){0};
    err = read_targets(text, parameter, &signature->parameters, &signature->count);
    if (!err)
        err = read_targets(text, mutation, &signature->moved, &signature->moved_count);
    if (err) {
        cn_onnx_signature_deinit(signature);
        return err;
    }
    if (signature->count)
        qsort(signature->parameters, signature->count, sizeof(*signature->parameters), compare);
    return CN_OK;
}

void cn_onnx_signature_deinit(struct cn_onnx_signature *signature)
{
    free(signature->parameters);
    free(signature->moved);
    *signature = (struct cn_onnx_signature){0};
}

bool cn_onnx_signature_names(const struct cn_onnx_signature *signature, struct cn_text list)
{
    struct cn_text name;

    while (signature->count && take_quoted(&list, &name))
        if (bsearch(&name, signature->parameters, signature->count, sizeof(name), compare))
            return true;
    return false;
}
