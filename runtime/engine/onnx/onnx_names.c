#include "runtime/engine/onnx/onnx_names.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/hash.h"

cn_err cn_onnx_names_init(size_t room, struct cn_onnx_names *names)
{
    size_t size = 64;

    while (size < 2 * room)
        size *= 2;
    *names = (struct cn_onnx_names){.slots = calloc(size, sizeof(*names->slots)),
                                    .order = calloc(room + 1, sizeof(*names->order)),
                                    .mask = size - 1};
    if (names->slots && names->order)
        return CN_OK;
    cn_onnx_names_deinit(names);
    return CN_ENOMEM;
}

void cn_onnx_names_deinit(struct cn_onnx_names *names)
{
    free(names->slots);
    free(names->order);
    *names = (struct cn_onnx_names){0};
}

static size_t hash_of(struct cn_text text)
{
    uint64_t hash = cn_hash64(text.data, text.size);

    return (size_t)(hash ^ hash >> 29);
}

// Returns the slot of a name, or the free slot where it belongs.
static size_t slot_of(const struct cn_onnx_names *names, struct cn_text text)
{
    size_t at = hash_of(text) & names->mask;

    while (names->slots[at].text.data && !cn_text_same(names->slots[at].text, text))
        at = (at + 1) & names->mask;
    return at;
}

bool cn_onnx_names_add(struct cn_onnx_names *names, struct cn_text text, uint32_t value)
{
    size_t slot = slot_of(names, text);

    if (names->slots[slot].text.data)
        return false;
    assert(2 * names->count <= names->mask);
    names->slots[slot] = (struct cn_onnx_name){text, value};
    names->order[names->count++] = slot;
    return true;
}

bool cn_onnx_names_find(const struct cn_onnx_names *names, struct cn_text text, uint32_t *value)
{
    const struct cn_onnx_name *name = &names->slots[slot_of(names, text)];

    if (name->text.data)
        *value = name->value;
    return name->text.data != NULL;
}

// Removes the last name first. Then no remaining name was placed after a removed one.
void cn_onnx_names_forget(struct cn_onnx_names *names, size_t count)
{
    while (names->count > count)
        names->slots[names->order[--names->count]] = (struct cn_onnx_name){0};
}
