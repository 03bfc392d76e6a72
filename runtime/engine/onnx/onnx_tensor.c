#include "runtime/engine/onnx/onnx_tensor.h"

#include <assert.h>
#include <string.h>

size_t cn_onnx_tensor_element_size(int32_t type)
{
    switch (type) {
    case CN_ONNX_UINT8:
    case CN_ONNX_BOOL:
        return 1;
    case CN_ONNX_FLOAT:
    case CN_ONNX_INT32:
        return 4;
    case CN_ONNX_INT64:
        return 8;
    default:
        return 0;
    }
}

bool cn_onnx_tensor_run(const struct cn_onnx_tensor *tensor, struct cn_wire *rest,
                        struct cn_wire *run)
{
    struct cn_wire_field field;

    if (tensor->raw) {
        *run = *rest;
        rest->at = rest->end;
        return run->at < run->end;
    }
    while (!cn_wire_next(rest, &field) && field.number) {
        if (field.number != CN_ONNX_FLOAT_DATA)
            continue;
        if (field.type == CN_WIRE_BYTES)
            *run = field.bytes;
        else
            *run = (struct cn_wire){rest->at - sizeof(float), rest->at};
        if (run->at < run->end)
            return true;
    }
    return false;
}

const struct cn_onnx_tensor *cn_onnx_tensor_of(const struct cn_onnx *onnx,
                                               const struct cn_tensor_info *info)
{
    struct cn_text name = {info->name, strlen(info->name)};
    const struct cn_onnx_tensor *tensor = cn_onnx_initializer_find(onnx, name);

    if (!tensor || tensor->type != CN_ONNX_FLOAT || tensor->count != info->count)
        return NULL;
    return tensor;
}

cn_err cn_onnx_tensor_floats(const struct cn_onnx_tensor *tensor, float *values)
{
    struct cn_wire rest = {tensor->data, tensor->data + tensor->size};
    struct cn_wire run;
    uint8_t *to = (uint8_t *)values;

    if (tensor->type != CN_ONNX_FLOAT)
        return CN_EINVAL;
    while (tensor->count && cn_onnx_tensor_run(tensor, &rest, &run)) {
        memcpy(to, run.at, cn_wire_size(run));
        to += cn_wire_size(run);
    }
    assert(to == (uint8_t *)(values + tensor->count));
    return CN_OK;
}

static int64_t raw_int(const struct cn_onnx_tensor *tensor, size_t i)
{
    switch (tensor->type) {
    case CN_ONNX_INT64:
        return (int64_t)cn_get_u64(tensor->data + 8 * i);
    case CN_ONNX_INT32:
        return (int32_t)cn_get_u32(tensor->data + 4 * i);
    default:
        return tensor->data[i];
    }
}

// int32_data holds the low 32 bits of sign-extended varints.
static int64_t varint_int(int32_t type, uint64_t value)
{
    return type == CN_ONNX_INT64 ? (int64_t)value : (int32_t)(uint32_t)value;
}

static cn_err typed_ints(const struct cn_onnx_tensor *tensor, uint32_t number, int64_t *values)
{
    struct cn_wire rest = {tensor->data, tensor->data + tensor->size};
    struct cn_wire_field field;
    uint64_t value;
    size_t count = 0;

    while (!cn_wire_next(&rest, &field) && field.number) {
        if (field.number != number)
            continue;
        if (field.type == CN_WIRE_VARINT) {
            values[count++] = varint_int(tensor->type, field.value);
            continue;
        }
        while (!cn_wire_varint(&field.bytes, &value))
            values[count++] = varint_int(tensor->type, value);
    }
    assert(count == tensor->count);
    return CN_OK;
}

cn_err cn_onnx_tensor_ints(const struct cn_onnx_tensor *tensor, int64_t *values)
{
    if (tensor->type == CN_ONNX_FLOAT || !cn_onnx_tensor_element_size(tensor->type))
        return CN_EINVAL;
    if (!tensor->raw) {
        uint32_t number = tensor->type == CN_ONNX_INT64 ? CN_ONNX_INT64_DATA : CN_ONNX_INT32_DATA;

        return typed_ints(tensor, number, values);
    }
    for (size_t i = 0; i < tensor->count; i++)
        values[i] = raw_int(tensor, i);
    return CN_OK;
}
