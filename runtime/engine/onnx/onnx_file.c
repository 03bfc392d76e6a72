#include "runtime/engine/onnx/onnx_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/onnx/onnx_split.h"
#include "runtime/engine/onnx/onnx_tensor.h"
#include "runtime/engine/onnx/onnx_widen.h"

// Fields of ModelProto, GraphProto, TensorProto and StringStringEntryProto.
enum {
    MODEL_GRAPH = 7,
    GRAPH_INITIALIZER = 5,
    TENSOR_DIMS = 1,
    TENSOR_TYPE = 2,
    TENSOR_NAME = 8,
    TENSOR_EXTERNAL = 13,
    TENSOR_LOCATION = 14,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
};

#define LOCATION_EXTERNAL 1
#define LOCATION_SIZE 512 // bytes of a file's name
#define NAME_SHOWN 100

// An initializer whose data lies elsewhere.
struct external {
    struct cn_text name;
    bool found;  // the data does lie elsewhere
    size_t size; // bytes of the data, by type and dims
    size_t kept; // bytes of the message that stay
    char file[LOCATION_SIZE];
    uint64_t offset, length; // a length of 0 is not given
};

struct joiner {
    const char *path;
    struct cn_diag *diag;
    struct cn_buffer *out;
    bool malformed; // the file is left as it is, and the decoder reports where
};

static cn_err refuse(struct joiner *joiner, const struct external *external, const char *problem)
{
    int shown = external->name.size < NAME_SHOWN ? (int)external->name.size : NAME_SHOWN;

    cn_diag_add(joiner->diag, "tensor %.*s: its data in '%s': %s", shown,
                external->name.size ? external->name.data : "", external->file, problem);
    return CN_EFORMAT;
}

// Reads the next field. Returns false at the end and at malformed bytes.
static bool next_field(struct joiner *joiner, struct cn_wire *rest, struct cn_wire_field *field)
{
    if (cn_wire_next(rest, field)) {
        joiner->malformed = true;
        return false;
    }
    return field->number != 0;
}

static struct cn_text text_of(struct cn_wire bytes)
{
    return (struct cn_text){(const char *)bytes.at, cn_wire_size(bytes)};
}

// Reads a number of digits only. CN_EFORMAT for anything else.
static cn_err parse_number(struct cn_text text, uint64_t *number)
{
    *number = 0;
    if (!text.size)
        return CN_EFORMAT;
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] < '0' || text.data[i] > '9' ||
            __builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, (uint64_t)(text.data[i] - '0'), number))
            return CN_EFORMAT;
    return CN_OK;
}

static cn_err take_entry(struct joiner *joiner, struct cn_wire entry, struct external *external)
{
    struct cn_text key = {0}, value = {0};
    struct cn_wire_field field;

    while (next_field(joiner, &entry, &field))
        if (field.type == CN_WIRE_BYTES && field.number == ENTRY_KEY)
            key = text_of(field.bytes);
        else if (field.type == CN_WIRE_BYTES && field.number == ENTRY_VALUE)
            value = text_of(field.bytes);
    if (cn_text_equal(key, "offset") && parse_number(value, &external->offset))
        return refuse(joiner, external, "its offset is not a number");
    if (cn_text_equal(key, "length") && parse_number(value, &external->length))
        return refuse(joiner, external, "its length is not a number");
    if (!cn_text_equal(key, "location"))
        return CN_OK;
    if (!value.size || value.size >= sizeof(external->file) || memchr(value.data, 0, value.size))
        return refuse(joiner, external, "the name is empty, too long or has a zero in it");
    memcpy(external->file, value.data, value.size);
    external->file[value.size] = '\0';
    return CN_OK;
}

static cn_err multiply_dims(const struct cn_wire_field *field, size_t *count)
{
    struct cn_wire rest = field->bytes;
    uint64_t dim;

    if (field->type == CN_WIRE_VARINT)
        return cn_size_multiply(*count, field->value, count);
    while (rest.at < rest.end)
        if (cn_wire_varint(&rest, &dim) || cn_size_multiply(*count, dim, count))
            return CN_EFORMAT;
    return CN_OK;
}

static size_t element_size(int32_t type)
{
    size_t size = cn_onnx_tensor_element_size(type);

    return size ? size : cn_onnx_widen_element_size(type);
}

// Reads the fields of a tensor that matter here.
static cn_err scan_tensor(struct joiner *joiner, struct cn_wire tensor, struct external *external)
{
    struct cn_wire rest = tensor;
    struct cn_wire_field field;
    bool overflows = false; // for data inside the file the decoder reports it
    size_t count = 1;
    int32_t type = 0;
    cn_err err = CN_OK;

    *external = (struct external){.found = false};
    for (const uint8_t *start = rest.at; !err && next_field(joiner, &rest, &field);
         start = rest.at) {
        if (field.number == TENSOR_EXTERNAL && field.type == CN_WIRE_BYTES) {
            err = take_entry(joiner, field.bytes, external);
            continue;
        }
        if (field.number == TENSOR_LOCATION && field.type == CN_WIRE_VARINT) {
            external->found = field.value == LOCATION_EXTERNAL;
            continue;
        }
        if (field.number == TENSOR_NAME && field.type == CN_WIRE_BYTES)
            external->name = text_of(field.bytes);
        if (field.number == TENSOR_TYPE && field.type == CN_WIRE_VARINT)
            type = (int32_t)field.value;
        if (field.number == TENSOR_DIMS)
            overflows = overflows || multiply_dims(&field, &count);
        external->kept += (size_t)(rest.at - start);
    }
    if (!err && external->found &&
        (overflows || cn_size_multiply(count, element_size(type), &external->size)))
        err = refuse(joiner, external, "its size overflows");
    if (!err && external->found && !external->size)
        err = refuse(joiner, external, "it is empty or of an element type that is not supported");
    return err;
}

static size_t joined_size(const struct external *external)
{
    return external->kept + cn_wire_field_size(CN_ONNX_RAW_DATA, external->size);
}

static cn_err append_data(struct joiner *joiner, const struct external *external)
{
    struct cn_mapping mapping;
    cn_err err = cn_platform_map_beside(joiner->path, external->file, SIZE_MAX, &mapping);

    if (err == CN_EINVAL)
        return refuse(joiner, external,
                      "the name must be a file in the model's folder or below, without links");
    if (err)
        return refuse(joiner, external, cn_err_text(err));
    if (external->offset > mapping.size || external->size > mapping.size - external->offset ||
        (external->length && external->length != external->size))
        err = refuse(joiner, external, "offset, length and shape do not fit the file");
    if (!err)
        err = cn_buffer_append(joiner->out, mapping.data + external->offset, external->size);
    cn_platform_unmap(&mapping);
    return err;
}

// Writes the tensor without its references, then the data.
static cn_err append_tensor(struct joiner *joiner, struct cn_wire tensor,
                            const struct external *external)
{
    struct cn_wire_field field;
    cn_err err = cn_wire_append_header(joiner->out, GRAPH_INITIALIZER, joined_size(external));

    for (const uint8_t *start = tensor.at; !err && next_field(joiner, &tensor, &field);
         start = tensor.at)
        if (field.number != TENSOR_EXTERNAL && field.number != TENSOR_LOCATION)
            err = cn_buffer_append(joiner->out, start, (size_t)(tensor.at - start));
    if (!err)
        err = cn_wire_append_header(joiner->out, CN_ONNX_RAW_DATA, external->size);
    return err ? err : append_data(joiner, external);
}

// Walks over a graph. Without write it only finds the new size, and whether any data is external.
static cn_err join_graph(struct joiner *joiner, struct cn_wire graph, bool write, size_t *size,
                         bool *found)
{
    struct cn_wire_field field;
    cn_err err = CN_OK;

    for (const uint8_t *start = graph.at; !err && next_field(joiner, &graph, &field);
         start = graph.at) {
        struct external external = {.found = false};
        size_t taken = (size_t)(graph.at - start);

        if (field.number == GRAPH_INITIALIZER && field.type == CN_WIRE_BYTES)
            err = scan_tensor(joiner, field.bytes, &external);
        if (err)
            break;
        *found = *found || external.found;
        taken =
            external.found ? cn_wire_field_size(GRAPH_INITIALIZER, joined_size(&external)) : taken;
        if (__builtin_add_overflow(*size, taken, size))
            return CN_ERANGE;
        if (write && external.found)
            err = append_tensor(joiner, field.bytes, &external);
        else if (write)
            err = cn_buffer_append(joiner->out, start, (size_t)(graph.at - start));
    }
    return err;
}

// Writes the model with its data joined. Writes nothing when no data is external.
static cn_err join_model(struct joiner *joiner, struct cn_wire model)
{
    struct cn_wire rest = model;
    struct cn_wire_field field;
    bool found = false;
    size_t size = 0;
    cn_err err = CN_OK;

    while (!err && next_field(joiner, &rest, &field))
        if (field.number == MODEL_GRAPH && field.type == CN_WIRE_BYTES)
            err = join_graph(joiner, field.bytes, false, &size, &found);
    if (err || !found || joiner->malformed)
        return joiner->malformed ? CN_OK : err;
    for (const uint8_t *start = model.at; !err && next_field(joiner, &model, &field);
         start = model.at) {
        if (field.number != MODEL_GRAPH || field.type != CN_WIRE_BYTES) {
            err = cn_buffer_append(joiner->out, start, (size_t)(model.at - start));
            continue;
        }
        size = 0;
        err = join_graph(joiner, field.bytes, false, &size, &found);
        if (!err)
            err = cn_wire_append_header(joiner->out, MODEL_GRAPH, size);
        if (!err)
            err = join_graph(joiner, field.bytes, true, &size, &found);
    }
    return err;
}

static cn_err join(const char *path, struct cn_diag *diag, struct cn_onnx_file *file)
{
    struct joiner joiner = {.path = path, .diag = diag, .out = &file->changed};
    cn_err err = join_model(
        &joiner, (struct cn_wire){file->mapping.data, file->mapping.data + file->mapping.size});

    file->data = file->changed.size ? file->changed.data : file->mapping.data;
    file->size = file->changed.size ? file->changed.size : file->mapping.size;
    if (err == CN_ERANGE)
        cn_diag_add(diag, "%s: with its external data it is larger than %" PRIu64 " bytes", path,
                    CN_ONNX_FILE_MAX);
    return err;
}

// Rebuilds the file, as float32 or with tensors split, and takes the result unless it is empty.
static cn_err change(const char *path, const char *what, struct cn_diag *diag,
                     cn_err (*make)(const uint8_t *file, size_t size, struct cn_buffer *out),
                     struct cn_onnx_file *file)
{
    struct cn_buffer changed;
    cn_err err;

    cn_buffer_init(&changed, CN_ONNX_FILE_MAX);
    err = make(file->data, file->size, &changed);
    if (err || !changed.size) {
        if (err)
            cn_diag_add(diag, "%s: %s: %s", path, what, cn_err_text(err));
        cn_buffer_deinit(&changed);
        return err;
    }
    cn_buffer_deinit(&file->changed);
    file->changed = changed;
    file->data = changed.data;
    file->size = changed.size;
    return CN_OK;
}

cn_err cn_onnx_file_open(const char *path, struct cn_diag *diag, struct cn_onnx_file *file)
{
    cn_err err;

    *file = (struct cn_onnx_file){.path = path};
    cn_buffer_init(&file->changed, CN_ONNX_FILE_MAX);
    err = cn_platform_map(path, CN_ONNX_FILE_MAX, &file->mapping);
    if (err) {
        cn_diag_add(diag, "%s: %s", path, cn_err_reason(err));
        return err;
    }
    err = join(path, diag, file);
    if (!err)
        err = change(path, "in float32", diag, cn_onnx_widen, file);
    if (!err)
        err = change(path, "with statistics of its own", diag, cn_onnx_split, file);
    if (err)
        cn_onnx_file_close(file);
    else if (file->changed.size)
        cn_platform_unmap(&file->mapping);
    return err;
}

void cn_onnx_file_forget(const struct cn_onnx_file *file)
{
    cn_platform_forget(&file->mapping);
}

size_t cn_onnx_file_memory(const struct cn_onnx_file *file)
{
    return file->changed.capacity;
}

void cn_onnx_file_close(struct cn_onnx_file *file)
{
    cn_platform_unmap(&file->mapping);
    cn_buffer_deinit(&file->changed);
    file->data = NULL;
    file->size = 0;
}
