#include "runtime/engine/onnx/onnx_decode.h"
#include "runtime/engine/onnx/onnx_tensor.h"

static int shown_size(struct cn_text text)
{
    return text.size < 100 ? (int)text.size : 100;
}

struct tensor_scan {
    struct cn_onnx_tensor *tensor;
    struct cn_wire message;
    struct cn_wire raw;
    struct cn_wire typed;  // content of the last typed field
    uint32_t typed_number; // number of that field; 0: none so far
    size_t typed_pieces, typed_values;
    bool other_data; // there is data in a typed field that no supported element type uses
    bool external;
};

static cn_err add_dim(struct cn_onnx_decoder *decoder, struct tensor_scan *scan, uint64_t dim)
{
    struct cn_onnx_tensor *tensor = scan->tensor;

    if (dim > INT64_MAX)
        return cn_onnx_walk_malformed(decoder, scan->message.at, "tensor",
                                      "a dimension is negative");
    if (tensor->rank == CN_ONNX_RANK_MAX)
        return cn_onnx_walk_malformed(decoder, scan->message.at, "tensor",
                                      "it has more than 8 dimensions");
    tensor->dims[tensor->rank++] = dim;
    return CN_OK;
}

static cn_err add_dims(struct cn_onnx_decoder *decoder, struct tensor_scan *scan,
                       const struct cn_wire_field *field)
{
    struct cn_wire rest = field->bytes;

    if (field->type == CN_WIRE_VARINT)
        return add_dim(decoder, scan, field->value);
    while (rest.at < rest.end) {
        uint64_t dim;
        cn_err err = cn_wire_varint(&rest, &dim);

        if (err)
            return cn_onnx_walk_malformed(decoder, field->bytes.at, "tensor",
                                          "its dimensions are cut off");
        err = add_dim(decoder, scan, dim);
        if (err)
            return err;
    }
    return CN_OK;
}

static cn_err add_typed(struct cn_onnx_decoder *decoder, struct tensor_scan *scan,
                        const struct cn_wire_field *field)
{
    size_t element_size = field->number == CN_ONNX_FLOAT_DATA ? sizeof(float) : 0;
    cn_err err = cn_onnx_walk_packed(decoder, field, element_size);

    if (err)
        return err;
    if (scan->typed_number && scan->typed_number != field->number)
        return cn_onnx_walk_malformed(decoder, scan->message.at, "tensor",
                                      "it has numbers of two types");
    scan->typed_number = field->number;
    scan->typed_pieces += field->type == CN_WIRE_BYTES ? 1 : 2;
    scan->typed_values += cn_wire_field_values(field, element_size);
    scan->typed = field->bytes;
    return CN_OK;
}

static cn_err tensor_take(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                          void *object)
{
    struct tensor_scan *scan = object;

    switch (field->number) {
    case 1:
        return add_dims(decoder, scan, field);
    case 2:
        scan->tensor->type = cn_onnx_walk_int32(field);
        return CN_OK;
    case CN_ONNX_FLOAT_DATA:
    case CN_ONNX_INT32_DATA:
    case CN_ONNX_INT64_DATA:
        return add_typed(decoder, scan, field);
    case 6:
    case 10:
    case 11:
        scan->other_data = true;
        return CN_OK;
    case 8:
        return cn_onnx_walk_name(decoder, field, &scan->tensor->name);
    case CN_ONNX_RAW_DATA:
        scan->raw = field->bytes;
        return CN_OK;
    case 14:
        scan->external = field->value == 1;
        return CN_OK;
    default:
        return CN_OK;
    }
}

static const struct cn_onnx_rule tensor_rules[] = {
    {1, CN_ONNX_VARINT | CN_ONNX_BYTES, false},
    {2, CN_ONNX_VARINT, true},
    {CN_ONNX_FLOAT_DATA, CN_ONNX_FIXED32 | CN_ONNX_BYTES, false},
    {CN_ONNX_INT32_DATA, CN_ONNX_VARINT | CN_ONNX_BYTES, false},
    {CN_ONNX_INT64_DATA, CN_ONNX_VARINT | CN_ONNX_BYTES, false},
    {8, CN_ONNX_BYTES, true},
    {CN_ONNX_RAW_DATA, CN_ONNX_BYTES, true},
    {14, CN_ONNX_VARINT, true},
};
static const struct cn_onnx_kind tensor_kind = CN_ONNX_KIND("tensor", tensor_rules, tensor_take);

static cn_err count_elements(struct cn_onnx_decoder *decoder, struct tensor_scan *scan)
{
    struct cn_onnx_tensor *tensor = scan->tensor;

    // A product that overflows is refused even when a later dimension is 0.
    tensor->count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (cn_size_multiply(tensor->count, tensor->dims[i], &tensor->count))
            return cn_onnx_walk_malformed(decoder, scan->message.at, "tensor",
                                          "its size overflows");
    }
    return CN_OK;
}

static uint32_t typed_field_of(int32_t type)
{
    if (type == CN_ONNX_FLOAT)
        return CN_ONNX_FLOAT_DATA;
    return type == CN_ONNX_INT64 ? CN_ONNX_INT64_DATA : CN_ONNX_INT32_DATA;
}

// Sets data to the numbers that the scan found and checks how many there are.
static cn_err find_data(struct cn_onnx_decoder *decoder, const struct tensor_scan *scan)
{
    struct cn_onnx_tensor *tensor = scan->tensor;
    struct cn_wire data = scan->message;
    size_t element_size = cn_onnx_tensor_element_size(tensor->type);
    bool fits;

    tensor->raw = !scan->typed_number;
    if (tensor->raw) {
        data = scan->raw;
        fits = tensor->count == cn_wire_size(data) / element_size &&
               cn_wire_size(data) % element_size == 0;
    } else {
        fits = scan->typed_number == typed_field_of(tensor->type) && !cn_wire_size(scan->raw) &&
               tensor->count == scan->typed_values;
        if (tensor->type == CN_ONNX_FLOAT && scan->typed_pieces == 1) {
            data = scan->typed;
            tensor->raw = true;
        }
    }
    if (!fits || scan->other_data)
        return cn_onnx_walk_malformed(decoder, scan->message.at, "tensor",
                                      "its data does not fit its shape");
    if (!tensor->count)
        return CN_OK;
    tensor->data = data.at;
    tensor->size = cn_wire_size(data);
    tensor->file_offset = (uint64_t)(data.at - decoder->onnx->file);
    return CN_OK;
}

static void unsupported_tensor(struct cn_onnx_decoder *decoder, const struct cn_onnx_tensor *tensor,
                               bool external)
{
    decoder->unsupported = true;
    if (external)
        cn_diag_add(decoder->diag,
                    "tensor %.*s: its data is in another file; export the model with its data in "
                    "one .onnx file",
                    shown_size(tensor->name), tensor->name.data);
    else
        cn_diag_add(decoder->diag,
                    "tensor %.*s: element type %d is not supported; wanted float32 (1), uint8 (2), "
                    "int32 (6), int64 (7) or bool (9)",
                    shown_size(tensor->name), tensor->name.data, (int)tensor->type);
}

cn_err cn_onnx_decode_tensor(struct cn_onnx_decoder *decoder, struct cn_wire message,
                             struct cn_onnx_tensor *tensor)
{
    struct tensor_scan scan = {.tensor = tensor, .message = message};
    cn_err err;

    *tensor = (struct cn_onnx_tensor){0};
    err = cn_onnx_walk(decoder, message, &tensor_kind, &scan);
    if (err)
        return err;
    if (scan.external || !cn_onnx_tensor_element_size(tensor->type)) {
        unsupported_tensor(decoder, tensor, scan.external);
        return CN_OK;
    }
    err = count_elements(decoder, &scan);
    return err ? err : find_data(decoder, &scan);
}
