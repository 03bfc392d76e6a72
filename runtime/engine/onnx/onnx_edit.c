#include "runtime/engine/onnx/onnx_edit.h"

#include <stdlib.h>

#include "runtime/engine/onnx/onnx.h"

void cn_onnx_edits_init(struct cn_onnx_edits *edits)
{
    *edits = (struct cn_onnx_edits){.list = NULL};
    cn_buffer_init(&edits->inserted, CN_ONNX_FILE_MAX);
}

void cn_onnx_edits_deinit(struct cn_onnx_edits *edits)
{
    free(edits->list);
    cn_buffer_deinit(&edits->inserted);
    *edits = (struct cn_onnx_edits){.list = NULL};
}

static cn_err reserve(struct cn_onnx_edits *edits)
{
    size_t capacity = edits->capacity ? 2 * edits->capacity : 64;
    struct cn_onnx_edit *list;

    if (edits->count < edits->capacity)
        return CN_OK;
    list = realloc(edits->list, capacity * sizeof(*list));
    if (!list)
        return CN_ENOMEM;
    edits->list = list;
    edits->capacity = capacity;
    return CN_OK;
}

cn_err cn_onnx_edits_add(struct cn_onnx_edits *edits, const uint8_t *at, size_t removed,
                         const void *bytes, size_t size)
{
    size_t from = edits->inserted.size;
    cn_err err = reserve(edits);

    if (!err)
        err = cn_buffer_append(&edits->inserted, bytes, size);
    if (err)
        return err;
    edits->list[edits->count++] =
        (struct cn_onnx_edit){.at = at, .removed = removed, .from = from, .size = size};
    return CN_OK;
}

cn_err cn_onnx_edits_open(struct cn_onnx_edits *edits, const uint8_t *start,
                          const struct cn_wire_field *field, size_t *opened)
{
    *opened = edits->count;
    return cn_onnx_edits_add(edits, start, (size_t)(field->bytes.at - start), NULL, 0);
}

cn_err cn_onnx_edits_close(struct cn_onnx_edits *edits, const struct cn_wire_field *field,
                           size_t opened)
{
    struct cn_onnx_edit *header = &edits->list[opened];
    size_t size = cn_wire_size(field->bytes);

    if (edits->count == opened + 1) {
        edits->count = opened;
        return CN_OK;
    }
    for (size_t i = opened + 1; i < edits->count; i++)
        size += edits->list[i].size - edits->list[i].removed;
    header->from = edits->inserted.size;
    header->size = cn_wire_field_size(field->number, size) - size;
    return cn_wire_append_header(&edits->inserted, field->number, size);
}

cn_err cn_onnx_edits_write(const struct cn_onnx_edits *edits, size_t *next, const uint8_t *at,
                           const uint8_t *end, cn_onnx_write *write, void *context)
{
    for (; *next < edits->count && edits->list[*next].at < end; ++*next) {
        const struct cn_onnx_edit *edit = &edits->list[*next];
        cn_err err = write(context, at, (size_t)(edit->at - at));

        if (!err && edit->size)
            err = write(context, edits->inserted.data + edit->from, edit->size);
        if (err)
            return err;
        at = edit->at + edit->removed;
    }
    return write(context, at, (size_t)(end - at));
}
