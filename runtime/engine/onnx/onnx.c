#include "runtime/engine/onnx/onnx.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/onnx/onnx_decode.h"
#include "runtime/engine/onnx/onnx_reads.h"
#include "runtime/engine/onnx/onnx_signature.h"
#include "runtime/engine/onnx/onnx_tensor.h"

#define NAME_MAX_SIZE 512
#define WEIGHT_LIMIT 1e4f // masks are -1e4, -65504, -1e9, the lowest number or minus infinity

static int text_compare(struct cn_text a, struct cn_text b)
{
    size_t size = a.size < b.size ? a.size : b.size;
    int order = size ? memcmp(a.data, b.data, size) : 0;

    if (order)
        return order;
    return (a.size > b.size) - (a.size < b.size);
}

bool cn_text_same(struct cn_text a, struct cn_text b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

bool cn_text_equal(struct cn_text text, const char *string)
{
    size_t size = strlen(string);

    return text.size == size && (size == 0 || memcmp(text.data, string, size) == 0);
}

static int compare_initializers(const void *a, const void *b, void *argument)
{
    const struct cn_onnx_tensor *initializers = argument;

    return text_compare(initializers[*(const uint32_t *)a].name,
                        initializers[*(const uint32_t *)b].name);
}

static cn_err index_initializers(struct cn_onnx *onnx, struct cn_diag *diag)
{
    for (size_t i = 0; i < onnx->initializer_count; i++)
        onnx->by_name[i] = (uint32_t)i;
    if (onnx->initializer_count)
        qsort_r(onnx->by_name, onnx->initializer_count, sizeof(*onnx->by_name),
                compare_initializers, onnx->initializers);
    for (size_t i = 1; i < onnx->initializer_count; i++) {
        struct cn_text name = onnx->initializers[onnx->by_name[i]].name;

        if (text_compare(onnx->initializers[onnx->by_name[i - 1]].name, name) == 0) {
            cn_diag_add(diag, "two initializers have the name '%.*s'",
                        name.size < 100 ? (int)name.size : 100, name.size ? name.data : "");
            return CN_EFORMAT;
        }
    }
    return CN_OK;
}

const struct cn_onnx_tensor *cn_onnx_initializer_find(const struct cn_onnx *onnx,
                                                      struct cn_text name)
{
    size_t low = 0;
    size_t high = onnx->initializer_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct cn_onnx_tensor *tensor = &onnx->initializers[onnx->by_name[middle]];
        int order = text_compare(name, tensor->name);

        if (order == 0)
            return tensor;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

// Models of IR version 3 and older list their initializers among the inputs.
static void drop_initialized_inputs(struct cn_onnx *onnx)
{
    size_t kept = 0;

    for (size_t i = 0; i < onnx->input_count; i++) {
        if (!cn_onnx_initializer_find(onnx, onnx->inputs[i].name))
            onnx->inputs[kept++] = onnx->inputs[i];
    }
    onnx->input_count = kept;
}

bool cn_onnx_tensor_is_extreme(const struct cn_onnx_tensor *tensor)
{
    struct cn_wire rest = {tensor->data, tensor->data + tensor->size};
    struct cn_wire run;

    while (tensor->count && cn_onnx_tensor_run(tensor, &rest, &run))
        for (const uint8_t *at = run.at; at < run.end; at += sizeof(float))
            if (!(fabsf(cn_get_f32(at)) < WEIGHT_LIMIT))
                return true;
    return false;
}

// Reads from the file which initializers were parameters, or were computed from one, and sets told
// for each initializer that this decides. Returns true when the file says of any initializer what
// it was in the module.
static bool take_roles(struct cn_onnx *onnx, const struct cn_onnx_signature *signature, bool *told)
{
    bool says = false;

    for (size_t i = 0; i < onnx->role_count; i++) {
        const struct cn_onnx_role *role = &onnx->roles[i];
        const struct cn_onnx_tensor *tensor = cn_onnx_initializer_find(onnx, role->name);
        size_t place = tensor ? (size_t)(tensor - onnx->initializers) : 0;
        bool parameter =
            role->known ? role->parameter : cn_onnx_signature_names(signature, role->folded);

        says = says || (tensor && role->known);
        if (!tensor || told[place] || !(role->known || (signature->count && role->folded.size)))
            continue;
        onnx->initializers[place].constant = !parameter && tensor->type == CN_ONNX_FLOAT;
        told[place] = true;
    }
    return says;
}

// Marks the initializers that are constants, by the rules of GRAPH.md. Operands that must be known
// before training, such as the limits of Clip, are no weights. PyTorch's newer exporter writes
// constants as initializers too. It says of some that they were parameters or not, and of others
// from what it computed them. Of the rest in such a file, single numbers, first states and masks
// are constants, and the others are weights that it transposed. Weights that are zeros in a graph
// blob are classified as in the original file.
static void mark_constants(struct cn_onnx *onnx, const struct cn_onnx_signature *signature,
                           const uint8_t *reads, bool *told)
{
    bool says;

    for (size_t i = 0; i < onnx->initializer_count; i++)
        told[i] = reads[i] & CN_ONNX_READ_STATISTIC; // statistics are no constants
    says = take_roles(onnx, signature, told);
    for (size_t i = 0; i < onnx->initializer_count; i++) {
        struct cn_onnx_tensor *tensor = &onnx->initializers[i];
        bool single = tensor->rank < 2 && tensor->count == 1;

        if (!told[i] && tensor->type == CN_ONNX_FLOAT)
            tensor->constant = reads[i] & CN_ONNX_READ_KNOWN ||
                               (says && (single || reads[i] & CN_ONNX_READ_FIRST_STATE ||
                                         cn_onnx_tensor_is_extreme(tensor)));
    }
}

static cn_err find_constants(struct cn_onnx *onnx)
{
    size_t count = onnx->initializer_count + 1;
    bool *told = calloc(count, sizeof(*told));
    uint8_t *reads = calloc(count, sizeof(*reads));
    struct cn_onnx_signature signature = {0};
    cn_err err = CN_ENOMEM;

    if (told && reads)
        err = cn_onnx_reads(onnx, reads);
    if (!err)
        err = cn_onnx_signature_init(onnx->signature, &signature);
    if (!err)
        mark_constants(onnx, &signature, reads, told);
    cn_onnx_signature_deinit(&signature);
    free(reads);
    free(told);
    return err;
}

cn_err cn_onnx_open(const uint8_t *file, size_t size, struct cn_diag *diag, struct cn_onnx **onnx)
{
    struct cn_onnx *opened;
    cn_err err;

    *onnx = NULL;
    if (!file || size == 0 || size > CN_ONNX_FILE_MAX) {
        cn_diag_add(diag, "the file has %zu bytes; wanted 1 to %" PRIu64, size, CN_ONNX_FILE_MAX);
        return CN_EFORMAT;
    }
    opened = calloc(1, sizeof(*opened));
    if (!opened)
        return CN_ENOMEM;
    opened->file = file;
    opened->file_size = size;
    err = cn_onnx_decode(opened, diag);
    if (!err)
        err = index_initializers(opened, diag);
    if (err) {
        cn_onnx_close(opened);
        return err;
    }
    drop_initialized_inputs(opened);
    err = find_constants(opened);
    if (err) {
        cn_onnx_close(opened);
        return err;
    }
    *onnx = opened;
    return CN_OK;
}

static void free_node(struct cn_onnx_node *node);

static void free_branch(struct cn_onnx_branch *branch)
{
    if (!branch)
        return;
    for (size_t i = 0; i < branch->node_count; i++)
        free_node(&branch->nodes[i]);
    free(branch->nodes);
    free(branch->outputs);
    free(branch);
}

static void free_node(struct cn_onnx_node *node)
{
    for (size_t i = 0; i < node->attribute_count; i++) {
        free_branch(node->attributes[i].branch);
        free(node->attributes[i].ints);
        free(node->attributes[i].floats);
        free(node->attributes[i].texts);
    }
    free(node->attributes);
    free(node->inputs);
    free(node->outputs);
}

void cn_onnx_close(struct cn_onnx *onnx)
{
    if (!onnx)
        return;
    for (size_t i = 0; i < onnx->node_count; i++)
        free_node(&onnx->nodes[i]);
    free(onnx->nodes);
    free(onnx->initializers);
    free(onnx->by_name);
    free(onnx->roles);
    free(onnx->inputs);
    free(onnx->outputs);
    free(onnx);
}

const struct cn_onnx_attribute *cn_onnx_attribute_find(const struct cn_onnx_node *node,
                                                       const char *name)
{
    for (size_t i = 0; i < node->attribute_count; i++) {
        if (cn_text_equal(node->attributes[i].name, name))
            return &node->attributes[i];
    }
    return NULL;
}

static bool is_model_tensor(const struct cn_onnx_tensor *tensor)
{
    return tensor->type == CN_ONNX_FLOAT && tensor->count > 0 && !tensor->constant;
}

static cn_err describe(const struct cn_onnx_tensor *tensor, size_t offset, struct cn_diag *diag,
                       struct cn_tensor_info *info)
{
    if (tensor->name.size == 0 || tensor->name.size >= NAME_MAX_SIZE) {
        cn_diag_add(diag,
                    "the initializer at byte %" PRIu64 " has a name of %zu bytes; wanted 1 to %d",
                    tensor->file_offset, tensor->name.size, NAME_MAX_SIZE - 1);
        return CN_EFORMAT;
    }
    *info = (struct cn_tensor_info){
        .class = CN_TENSOR_PARAM, .rank = tensor->rank, .offset = offset, .count = tensor->count};
    memcpy(info->dims, tensor->dims, sizeof(info->dims));
    info->name = strndup(tensor->name.data, tensor->name.size);
    return info->name ? CN_OK : CN_ENOMEM;
}

static cn_err fill_layout(const struct cn_onnx *onnx, const uint8_t *reads, struct cn_diag *diag,
                          struct cn_layout *layout)
{
    for (size_t i = 0; i < onnx->initializer_count; i++) {
        const struct cn_onnx_tensor *tensor = &onnx->initializers[i];
        struct cn_tensor_info *info = &layout->tensors[layout->tensor_count];
        cn_err err;

        if (!is_model_tensor(tensor))
            continue;
        err = describe(tensor, layout->total, diag, info);
        if (err)
            return err;
        if (reads[i] & CN_ONNX_READ_STATISTIC)
            info->class = CN_TENSOR_STAT;
        info->variance = reads[i] & CN_ONNX_READ_VARIANCE;
        layout->tensor_count++;
        layout->total += tensor->count; // no overflow: each element has its bytes in the file
    }
    return CN_OK;
}

cn_err cn_onnx_layout(const struct cn_onnx *onnx, struct cn_diag *diag, struct cn_layout *layout)
{
    cn_err err = CN_ENOMEM;
    size_t count = 0;
    uint8_t *reads;

    *layout = (struct cn_layout){0};
    for (size_t i = 0; i < onnx->initializer_count; i++)
        count += is_model_tensor(&onnx->initializers[i]);
    if (count == 0) {
        cn_diag_add(diag, "the model has no float32 initializers: there is nothing to train");
        return CN_EFORMAT;
    }
    layout->tensors = calloc(count, sizeof(*layout->tensors));
    reads = calloc(onnx->initializer_count, sizeof(*reads));
    if (layout->tensors && reads)
        err = cn_onnx_reads(onnx, reads);
    if (!err)
        err = fill_layout(onnx, reads, diag, layout);
    free(reads);
    if (err)
        cn_layout_deinit(layout);
    return err;
}

cn_err cn_onnx_weights(const struct cn_onnx *onnx, const struct cn_layout *layout, float *weights)
{
    for (size_t i = 0; i < layout->tensor_count; i++) {
        const struct cn_tensor_info *info = &layout->tensors[i];
        const struct cn_onnx_tensor *tensor = cn_onnx_tensor_of(onnx, info);
        cn_err err;

        if (!tensor)
            return CN_EINVAL;
        err = cn_onnx_tensor_floats(tensor, weights + info->offset);
        if (err)
            return err;
    }
    return CN_OK;
}

static bool is_among(const struct cn_text *names, size_t count, struct cn_text name)
{
    for (size_t i = 0; i < count; i++)
        if (cn_text_same(names[i], name))
            return true;
    return false;
}

static bool is_read_by(const struct cn_onnx_node *nodes, size_t count, struct cn_text name)
{
    for (size_t i = 0; i < count; i++) {
        if (is_among(nodes[i].inputs, nodes[i].input_count, name))
            return true;
        for (size_t j = 0; j < nodes[i].attribute_count; j++) {
            const struct cn_onnx_branch *branch = nodes[i].attributes[j].branch;

            if (branch && (is_among(branch->outputs, branch->output_count, name) ||
                           is_read_by(branch->nodes, branch->node_count, name)))
                return true;
        }
    }
    return false;
}

bool cn_onnx_is_read(const struct cn_onnx *onnx, struct cn_text name)
{
    for (size_t i = 0; i < onnx->output_count; i++)
        if (cn_text_same(onnx->outputs[i].name, name))
            return true;
    return is_read_by(onnx->nodes, onnx->node_count, name);
}
