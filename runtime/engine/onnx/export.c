#include "runtime/engine/onnx/export.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/onnx/onnx_inference.h"
#include "runtime/engine/onnx/onnx_tensor.h"

// The graph blob, see GRAPH.md.
#define GRAPH_MAGIC "cairn-g1"
#define GRAPH_MAGIC_SIZE 8
#define GRAPH_HEADER_SIZE 24 // magic, file size u64, count of ranges u64
#define GRAPH_RANGE_SIZE 16  // offset u64, size u64

// A walk over the places of the weights in the file, in file order.
struct cursor {
    const struct cn_onnx *onnx;
    const struct cn_layout *layout;
    size_t next;                         // index of the next tensor in the layout
    const struct cn_onnx_tensor *tensor; // the current tensor; NULL at the start
    struct cn_wire rest;                 // bytes of the current tensor still to visit
    size_t element;                      // index in the row of the next run's first element
};

static bool next_run(struct cursor *cursor, struct cn_wire *run)
{
    for (;;) {
        if (cursor->tensor && cn_onnx_tensor_run(cursor->tensor, &cursor->rest, run)) {
            cursor->element += cn_wire_size(*run) / sizeof(float);
            return true;
        }
        if (cursor->next == cursor->layout->tensor_count)
            return false;
        cursor->tensor = cn_onnx_tensor_of(cursor->onnx, &cursor->layout->tensors[cursor->next++]);
        cursor->rest =
            (struct cn_wire){cursor->tensor->data, cursor->tensor->data + cursor->tensor->size};
    }
}

// A cursor moves forward only, so the tensors must be in the file in the layout's order.
static cn_err check_layout(const struct cn_onnx *onnx, const struct cn_layout *layout)
{
    const struct cn_onnx_tensor *previous = NULL;
    size_t total = 0;

    for (size_t i = 0; i < layout->tensor_count; i++) {
        const struct cn_tensor_info *info = &layout->tensors[i];
        const struct cn_onnx_tensor *tensor = cn_onnx_tensor_of(onnx, info);

        if (!tensor || info->offset != total || (previous && tensor <= previous))
            return CN_EINVAL;
        total += info->count;
        previous = tensor;
    }
    return total == layout->total ? CN_OK : CN_EINVAL;
}

static cn_err write_pieces(struct cursor *cursor, const float *weights,
                           const struct cn_onnx_edits *edits, cn_export_write *write, void *context)
{
    const struct cn_onnx *onnx = cursor->onnx;
    const uint8_t *at = onnx->file;
    const float *values = weights;
    struct cn_wire run;
    size_t next = 0;
    cn_err err = CN_OK;

    while (!err && next_run(cursor, &run)) {
        err = cn_onnx_edits_write(edits, &next, at, run.at, write, context);
        if (!err)
            err = write(context, values, cn_wire_size(run));
        values = weights + cursor->element;
        at = run.end;
    }
    if (err)
        return err;
    return cn_onnx_edits_write(edits, &next, at, onnx->file + onnx->file_size, write, context);
}

cn_err cn_export_onnx_pieces(const struct cn_onnx *onnx, const struct cn_layout *layout,
                             const float *weights, enum cn_export_form form, cn_export_write *write,
                             void *context)
{
    struct cursor cursor = {.onnx = onnx, .layout = layout};
    struct cn_onnx_edits edits;
    cn_err err = check_layout(onnx, layout);

    if (err)
        return err;
    cn_onnx_edits_init(&edits);
    if (form == CN_EXPORT_INFERENCE)
        err = cn_onnx_inference(onnx, &edits);
    if (!err)
        err = write_pieces(&cursor, weights, &edits, write, context);
    cn_onnx_edits_deinit(&edits);
    return err;
}

static cn_err append(void *context, const void *piece, size_t size)
{
    return cn_buffer_append(context, piece, size);
}

cn_err cn_export_onnx(const struct cn_onnx *onnx, const struct cn_layout *layout,
                      const float *weights, enum cn_export_form form, struct cn_buffer *out)
{
    return cn_export_onnx_pieces(onnx, layout, weights, form, append, out);
}

// {"dtype": "F32", "shape": [...], "data_offsets": [begin, end]}
static cJSON *describe(const struct cn_tensor_info *info)
{
    cJSON *object = cJSON_CreateObject();
    cJSON *shape, *offsets;

    cJSON_AddStringToObject(object, "dtype", "F32");
    shape = cJSON_AddArrayToObject(object, "shape");
    for (uint32_t i = 0; i < info->rank; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)info->dims[i]));
    offsets = cJSON_AddArrayToObject(object, "data_offsets");
    for (size_t i = 0; i < 2; i++) {
        size_t bytes = (info->offset + i * info->count) * sizeof(float);

        cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)bytes));
    }
    // A cJSON call does nothing after an earlier one failed, so the last member shows any failure.
    if (cJSON_GetArraySize(offsets) == 2 && cJSON_GetArraySize(shape) == (int)info->rank &&
        cJSON_GetArraySize(object) == 3)
        return object;
    cJSON_Delete(object);
    return NULL;
}

static char *print_header(const struct cn_layout *layout)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *metadata = cJSON_AddObjectToObject(root, "__metadata__");
    char *text = NULL;
    bool complete = cJSON_AddStringToObject(metadata, "format", "pt") != NULL;

    for (size_t i = 0; i < layout->tensor_count && complete; i++) {
        cJSON *object = describe(&layout->tensors[i]);

        complete = object && cJSON_AddItemToObject(root, layout->tensors[i].name, object);
        if (!complete)
            cJSON_Delete(object);
    }
    if (complete)
        text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return text;
}

cn_err cn_export_safetensors_pieces(const struct cn_layout *layout, const float *weights,
                                    cn_export_write *write, void *context)
{
    static const char spaces[] = "        ";
    char *header = print_header(layout);
    uint8_t length[8];
    size_t size, padding;
    cn_err err;

    if (!header)
        return CN_ENOMEM;
    size = strlen(header);
    padding = (8 - size % 8) % 8; // the data is aligned for readers that map the file
    cn_put_u64(length, size + padding);
    err = write(context, length, sizeof(length));
    if (!err)
        err = write(context, header, size);
    if (!err)
        err = write(context, spaces, padding);
    if (!err)
        err = write(context, weights, layout->total * sizeof(float));
    cJSON_free(header);
    return err;
}

cn_err cn_export_safetensors(const struct cn_layout *layout, const float *weights,
                             struct cn_buffer *out)
{
    return cn_export_safetensors_pieces(layout, weights, append, out);
}

static cn_err append_ranges(const struct cn_onnx *onnx, const struct cn_layout *layout,
                            struct cn_buffer *out)
{
    struct cursor cursor = {.onnx = onnx, .layout = layout};
    struct cn_wire run;
    uint8_t range[GRAPH_RANGE_SIZE];
    cn_err err = CN_OK;

    while (!err && next_run(&cursor, &run)) {
        cn_put_u64(range, (uint64_t)(run.at - onnx->file));
        cn_put_u64(range + 8, cn_wire_size(run));
        err = cn_buffer_append(out, range, sizeof(range));
    }
    return err;
}

static cn_err append_rest(const struct cn_onnx *onnx, const struct cn_layout *layout,
                          struct cn_buffer *out)
{
    struct cursor cursor = {.onnx = onnx, .layout = layout};
    const uint8_t *at = onnx->file;
    struct cn_wire run;
    cn_err err = CN_OK;

    while (!err && next_run(&cursor, &run)) {
        err = cn_buffer_append(out, at, (size_t)(run.at - at));
        at = run.end;
    }
    if (err)
        return err;
    return cn_buffer_append(out, at, (size_t)(onnx->file + onnx->file_size - at));
}

cn_err cn_export_graph(const struct cn_onnx *onnx, const struct cn_layout *layout,
                       struct cn_buffer *out)
{
    size_t start = out->size;
    uint8_t header[GRAPH_HEADER_SIZE] = GRAPH_MAGIC;
    cn_err err = check_layout(onnx, layout);

    if (!err)
        err = cn_buffer_append(out, header, sizeof(header));
    if (!err)
        err = append_ranges(onnx, layout, out);
    if (err)
        return err;
    cn_put_u64(out->data + start + 8, onnx->file_size);
    cn_put_u64(out->data + start + 16, (out->size - start - GRAPH_HEADER_SIZE) / GRAPH_RANGE_SIZE);
    return append_rest(onnx, layout, out);
}

struct graph {
    uint64_t file_size;
    uint64_t range_count;
    const uint8_t *ranges;
    const uint8_t *rest; // the bytes of the file between the ranges
    uint64_t rest_size;
};

// Returns whether the ranges ascend without overlaps, end inside the file, and fill it exactly
// together with the rest.
static bool ranges_valid(const struct graph *graph)
{
    uint64_t end = 0;
    uint64_t kept = 0;

    for (uint64_t i = 0; i < graph->range_count; i++) {
        uint64_t offset = cn_get_u64(graph->ranges + i * GRAPH_RANGE_SIZE);
        uint64_t size = cn_get_u64(graph->ranges + i * GRAPH_RANGE_SIZE + 8);

        if (offset < end || offset > graph->file_size || size == 0 ||
            size > graph->file_size - offset)
            return false;
        kept += offset - end;
        end = offset + size;
    }
    return kept + (graph->file_size - end) == graph->rest_size;
}

static cn_err parse_graph(const uint8_t *blob, size_t size, struct cn_diag *diag,
                          struct graph *graph)
{
    if (size < GRAPH_HEADER_SIZE || memcmp(blob, GRAPH_MAGIC, GRAPH_MAGIC_SIZE) != 0) {
        cn_diag_add(diag, "%zu bytes that are not a graph blob of version 1", size);
        return CN_EFORMAT;
    }
    graph->file_size = cn_get_u64(blob + 8);
    graph->range_count = cn_get_u64(blob + 16);
    if (graph->file_size > CN_ONNX_FILE_MAX ||
        graph->range_count > (size - GRAPH_HEADER_SIZE) / GRAPH_RANGE_SIZE) {
        cn_diag_add(diag,
                    "the graph blob is cut off or asks for %" PRIu64
                    " bytes; wanted at most %" PRIu64,
                    graph->file_size, CN_ONNX_FILE_MAX);
        return CN_EFORMAT;
    }
    graph->ranges = blob + GRAPH_HEADER_SIZE;
    graph->rest = graph->ranges + graph->range_count * GRAPH_RANGE_SIZE;
    graph->rest_size = (uint64_t)(blob + size - graph->rest);
    if (!ranges_valid(graph)) {
        cn_diag_add(diag, "the graph blob's ranges do not fit the file it describes");
        return CN_EFORMAT;
    }
    return CN_OK;
}

// Writes the bytes that are not weights into a file of zeros.
static void fill(const struct graph *graph, uint8_t *file)
{
    const uint8_t *from = graph->rest;
    uint64_t end = 0;

    for (uint64_t i = 0; i < graph->range_count; i++) {
        uint64_t offset = cn_get_u64(graph->ranges + i * GRAPH_RANGE_SIZE);

        memcpy(file + end, from, offset - end);
        from += offset - end;
        end = offset + cn_get_u64(graph->ranges + i * GRAPH_RANGE_SIZE + 8);
    }
    memcpy(file + end, from, graph->file_size - end);
}

cn_err cn_export_restored_size(const uint8_t *blob, size_t size, struct cn_diag *diag,
                               size_t *file_size)
{
    struct graph graph;
    cn_err err = parse_graph(blob, size, diag, &graph);

    if (!err)
        *file_size = (size_t)graph.file_size;
    return err;
}

cn_err cn_export_restore_to(const uint8_t *blob, size_t size, struct cn_diag *diag, uint8_t *zeros)
{
    struct graph graph;
    cn_err err = parse_graph(blob, size, diag, &graph);

    if (!err && graph.file_size)
        fill(&graph, zeros);
    return err;
}

cn_err cn_export_restore(const uint8_t *blob, size_t size, struct cn_diag *diag,
                         struct cn_buffer *out)
{
    struct graph graph;
    cn_err err = parse_graph(blob, size, diag, &graph);

    if (err)
        return err;
    if (graph.file_size > out->limit - out->size)
        return CN_ERANGE;
    err = cn_buffer_resize(out, out->size + graph.file_size);
    if (!err && graph.file_size)
        fill(&graph, out->data + out->size - graph.file_size);
    return err;
}
