#include "runtime/engine/import/import_emit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/import/import_again.h"
#include "runtime/engine/import/import_equal.h"
#include "runtime/engine/import/import_known.h"
#include "runtime/engine/onnx/onnx_names.h"

#define OPSET_MIN 13
#define OPSET_MAX 21
#define WORK_MAX ((size_t)1 << 27) // about a second

struct cn_importer {
    const struct cn_onnx *onnx;
    struct cn_graph *graph;
    struct cn_diag *diag;
    struct cn_onnx_names names; // names of the values made so far
    size_t work;                // elements of work so far, at most WORK_MAX
    struct cn_import_equal equal;
    struct cn_import_again again;
    bool refused;
};

static cn_err define_name(struct cn_importer *importer, struct cn_text text, uint32_t value)
{
    if (cn_onnx_names_add(&importer->names, text, value))
        return CN_OK;
    cn_diag_add(importer->diag, "the name '%.*s' is defined twice", (int)text.size, text.data);
    return CN_EFORMAT;
}

// Counts the outputs of all nodes, also in branches.
static size_t count_outputs(const struct cn_onnx_node *nodes, size_t node_count)
{
    size_t count = 0;

    for (size_t i = 0; i < node_count; i++) {
        count += nodes[i].output_count;
        for (size_t j = 0; j < nodes[i].attribute_count; j++) {
            const struct cn_onnx_branch *branch = nodes[i].attributes[j].branch;

            count += branch ? count_outputs(branch->nodes, branch->node_count) : 0;
        }
    }
    return count;
}

static cn_err init_names(struct cn_importer *importer)
{
    const struct cn_onnx *onnx = importer->onnx;
    size_t count = onnx->initializer_count + onnx->input_count;

    count += count_outputs(onnx->nodes, onnx->node_count);
    return cn_onnx_names_init(count, &importer->names);
}

cn_err cn_import_refuse(const struct cn_import_node *node, const char *format, ...)
{
    char message[CN_DIAG_LINE_SIZE];
    struct cn_text name = node->node->name;
    va_list arguments;

    va_start(arguments, format);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang-tidy 14 does not see va_start.
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    if (!name.size && node->node->output_count)
        name = node->node->outputs[0]; // names are optional
    cn_diag_add(node->importer->diag, "node '%.*s' (%.*s): %s", (int)name.size,
                name.size ? name.data : "", (int)node->node->op.size,
                node->node->op.size ? node->node->op.data : "", message);
    return CN_ENOTSUP;
}

cn_err cn_import_work(const struct cn_import_node *node, size_t elements)
{
    struct cn_importer *importer = node->importer;

    if (elements > WORK_MAX - importer->work)
        return cn_import_refuse(
            node, "computing the values that are known before training takes too long");
    importer->work += elements;
    return CN_OK;
}

cn_err cn_import_known_keep(struct cn_import_node *node, const struct cn_value *value,
                            uint32_t *out)
{
    return cn_import_equal_add(&node->importer->equal, node->graph, value, out);
}

const struct cn_value *cn_import_value(const struct cn_import_node *node, size_t input)
{
    return &node->graph->values[node->in[input]];
}

bool cn_import_has(const struct cn_import_node *node, size_t input)
{
    return input < node->in_count && node->in[input] != CN_GRAPH_NONE;
}

int64_t cn_import_int(const struct cn_import_node *node, const char *name, int64_t otherwise)
{
    const struct cn_onnx_attribute *attribute = cn_onnx_attribute_find(node->node, name);

    return attribute ? attribute->i : otherwise;
}

float cn_import_float(const struct cn_import_node *node, const char *name, float otherwise)
{
    const struct cn_onnx_attribute *attribute = cn_onnx_attribute_find(node->node, name);

    return attribute ? attribute->f : otherwise;
}

cn_err cn_import_numbers(const struct cn_import_node *node, size_t input, const char *attribute,
                         int64_t *numbers, size_t room, size_t *count)
{
    const struct cn_onnx_attribute *found = cn_onnx_attribute_find(node->node, attribute);
    const int64_t *from = NULL;

    *count = 0;
    if (found) {
        from = found->ints;
        *count = found->count;
    } else if (cn_import_has(node, input)) {
        const struct cn_value *value = cn_import_value(node, input);

        if (value->kind != CN_VALUE_SHAPE)
            return cn_import_refuse(node, "'%s' is not known before training", attribute);
        from = node->graph->numbers + value->offset;
        *count = value->words;
    }
    if (*count > room)
        return cn_import_refuse(node, "'%s' has %zu numbers, at most %zu are supported", attribute,
                                *count, room);
    if (*count)
        memcpy(numbers, from, *count * sizeof(*numbers));
    return CN_OK;
}

cn_err cn_import_output(struct cn_import_node *node, uint32_t rank, const uint64_t *dims)
{
    struct cn_value value = {.rank = rank, .batched = true};

    if (rank > CN_GRAPH_RANK_MAX)
        return cn_import_refuse(node, "rank %u; at most %d is supported", rank, CN_GRAPH_RANK_MAX);
    memcpy(value.dims, dims, rank * sizeof(*dims));
    return cn_import_add(node, &value, &node->out);
}

cn_err cn_import_shape(struct cn_import_node *node, const int64_t *numbers, size_t count,
                       uint32_t rank)
{
    struct cn_value like = {.rank = rank, .dims = {count}};

    return cn_import_add_known(node, &like, numbers, NULL, &node->out);
}

static cn_err import_initializer(struct cn_importer *importer, const struct cn_onnx_tensor *tensor,
                                 const struct cn_layout *layout, size_t *parameter)
{
    struct cn_value value = {.rank = tensor->rank, .words = tensor->count, .root = CN_GRAPH_NONE};
    uint32_t index;
    cn_err err;

    for (uint32_t d = 0; d < tensor->rank; d++)
        value.dims[d] = tensor->dims[d];
    if (*parameter < layout->tensor_count && tensor->type == CN_ONNX_FLOAT && tensor->count &&
        !tensor->constant) {
        value.kind = CN_VALUE_PARAM;
        value.frozen = layout->tensors[*parameter].frozen ||
                       layout->tensors[*parameter].class == CN_TENSOR_STAT;
        value.offset = layout->tensors[(*parameter)++].offset;
    } else if (tensor->type == CN_ONNX_FLOAT) { // empty or a constant
        err = cn_graph_add_constants(importer->graph, NULL, tensor->count, &value.offset);
        if (!err)
            err = cn_onnx_tensor_floats(tensor, importer->graph->constants + value.offset);
        if (err)
            return err;
        value.kind = CN_VALUE_CONST;
    } else {
        err = cn_graph_add_numbers(importer->graph, NULL, tensor->count, &value.offset);
        if (!err)
            err = cn_onnx_tensor_ints(tensor, importer->graph->numbers + value.offset);
        if (err)
            return err;
        value.kind = CN_VALUE_SHAPE;
    }
    err = cn_import_equal_add(&importer->equal, importer->graph, &value, &index);
    return err ? err : define_name(importer, tensor->name, index);
}

// Returns whether a recurrent layer reads the samples directly: [steps, batch, inputs].
static bool is_steps_first(const struct cn_onnx_node *nodes, size_t count, struct cn_text name)
{
    for (size_t i = 0; i < count; i++) {
        const struct cn_onnx_node *node = &nodes[i];

        if (node->input_count && cn_text_same(node->inputs[0], name) &&
            (cn_text_equal(node->op, "LSTM") || cn_text_equal(node->op, "GRU") ||
             cn_text_equal(node->op, "RNN")))
            return true;
        for (size_t j = 0; j < node->attribute_count; j++) {
            const struct cn_onnx_branch *branch = node->attributes[j].branch;

            if (branch && is_steps_first(branch->nodes, branch->node_count, name))
                return true;
        }
    }
    return false;
}

// Finds the batch: the dimension that the file leaves open. If all are fixed, it is the first one,
// or the second one where a recurrent layer reads the input.
static cn_err find_batch(struct cn_importer *importer, const struct cn_onnx_value *input,
                         uint32_t *axis)
{
    const struct cn_onnx *onnx = importer->onnx;
    uint32_t open = 0;

    *axis = input->rank == 3 && is_steps_first(onnx->nodes, onnx->node_count, input->name);
    for (uint32_t d = 0; d < input->rank; d++) {
        if (input->dims[d] > 0)
            continue;
        if (open++) {
            cn_diag_add(importer->diag,
                        "input '%.*s': dimensions %u and %u are not fixed; only the batch may "
                        "be open",
                        (int)input->name.size, input->name.data, *axis, d);
            return CN_ENOTSUP;
        }
        *axis = d;
    }
    return CN_OK;
}

static cn_err check_input(struct cn_importer *importer, const struct cn_onnx_value *input,
                          bool integers)
{
    if ((input->type == CN_ONNX_FLOAT || integers) && input->rank &&
        input->rank <= CN_GRAPH_RANK_MAX)
        return CN_OK;
    cn_diag_add(importer->diag,
                "input '%.*s' has element type %d and rank %u, wanted float32 or integers with "
                "the batch as a dimension",
                (int)input->name.size, input->name.data, (int)input->type, input->rank);
    return CN_ENOTSUP;
}

static cn_err import_input(struct cn_importer *importer, const struct cn_onnx_value *input)
{
    struct cn_value value = {.kind = CN_VALUE_INPUT, .batched = true, .root = CN_GRAPH_NONE};
    struct cn_graph *graph = importer->graph;
    uint32_t *index = &graph->inputs[graph->input_count];
    int64_t batch;
    cn_err err;

    value.integers = input->type >= CN_ONNX_UINT8 && input->type <= CN_ONNX_INT64;
    err = check_input(importer, input, value.integers);
    if (!err)
        err = find_batch(importer, input, &value.batch_axis);
    if (err)
        return err;
    batch = input->dims[value.batch_axis];
    if (!graph->input_count)
        graph->batch = batch > 0 ? (uint64_t)batch : CN_GRAPH_BATCH;
    if (graph->input_count && batch > 0 && (uint64_t)batch != graph->batch) {
        cn_diag_add(importer->diag, "input '%.*s' has another batch than the first input",
                    (int)input->name.size, input->name.data);
        return CN_ENOTSUP;
    }
    value.rank = input->rank;
    value.offset = graph->input_count;
    for (uint32_t d = 0; d < input->rank; d++)
        value.dims[d] = d == value.batch_axis ? graph->batch : (uint64_t)input->dims[d];
    err = cn_graph_add_value(graph, &value, index);
    if (err)
        cn_diag_add(importer->diag, "input '%.*s' is too large", (int)input->name.size,
                    input->name.data);
    graph->input_count++;
    return err ? err : define_name(importer, input->name, *index);
}

static cn_err import_inputs(struct cn_importer *importer)
{
    const struct cn_onnx *onnx = importer->onnx;
    cn_err err = CN_OK;

    if (!onnx->input_count || onnx->input_count > CN_GRAPH_INPUT_MAX || !onnx->output_count ||
        (onnx->output_count > 1 && !importer->graph->loss_output)) {
        cn_diag_add(importer->diag,
                    "the model has %zu inputs and %zu outputs, wanted 1 to %d inputs and one "
                    "output, or loss.output",
                    onnx->input_count, onnx->output_count, CN_GRAPH_INPUT_MAX);
        return CN_ENOTSUP;
    }
    for (size_t i = 0; !err && i < onnx->input_count; i++)
        err = import_input(importer, &onnx->inputs[i]);
    return err;
}

// Brings an input into a form that the op takes.
static cn_err prepare_input(struct cn_import_node *node, size_t input, unsigned takes)
{
    enum cn_value_kind kind = cn_import_value(node, input)->kind;
    cn_err err = CN_OK;

    if (kind == CN_VALUE_UNIFORM || kind == CN_VALUE_NUMBERED)
        return CN_OK; // nothing to read yet
    if (cn_import_value(node, input)->padded && !(takes & CN_TAKES_PADDED))
        err = cn_import_make_pads(node, input);
    if (!err && cn_import_value(node, input)->transposed && !(takes & CN_TAKES_TRANSPOSED))
        err = cn_import_materialise(node, input);
    if (!err && !(takes & CN_TAKES_ANY_BATCH)) {
        const struct cn_value *value = cn_import_value(node, input);

        if (value->batched && (value->batch_axis || value->dims[0] != node->graph->batch))
            return cn_import_refuse(node, "the batch must be dimension 0");
    }
    if (!err && !input && (takes & CN_WANTS_SAMPLES))
        err = cn_import_repeat_samples(node);
    return err;
}

// Checks the attributes and fills in the inputs. *known is false when one of them was made by a
// refused node.
static cn_err bind_node(struct cn_import_node *node, const struct cn_import_op *op, bool *known)
{
    size_t count = node->node->input_count;
    cn_err err = cn_import_check_attributes(node);

    *known = true;
    if (err)
        return err;
    if (count < op->inputs_min || count > op->inputs_max)
        return cn_import_refuse(node, "%zu inputs; %zu to %zu are supported", count, op->inputs_min,
                                op->inputs_max);
    node->in_count = count;
    for (size_t i = 0; i < count; i++) {
        struct cn_text text = node->node->inputs[i];

        node->in[i] = CN_GRAPH_NONE;
        if (!text.size && i >= op->inputs_min && op->inputs_max < CN_IMPORT_INPUTS)
            continue; // an omitted input; a list of operands cannot omit any
        if (!cn_onnx_names_find(&node->importer->names, text, &node->in[i]))
            return cn_import_refuse(
                node,
                "input '%.*s' is made by no earlier node: it is missing, or the "
                "graph has a cycle",
                (int)text.size, text.size ? text.data : "");
        *known = *known && cn_import_value(node, i)->kind != CN_VALUE_UNKNOWN;
    }
    for (size_t i = 0; !err && *known && i < count; i++)
        if (node->in[i] != CN_GRAPH_NONE)
            err = prepare_input(node, i, op->takes);
    return err;
}

// Keeps the first name of a value.
static void name_value(struct cn_value *value, struct cn_text name)
{
    if (value->name)
        return;
    value->name = name.data;
    value->name_size = name.size;
}

// Marks outputs that were not made, for example by a refused node, as unknown to their readers.
static cn_err define_outputs(struct cn_import_node *node)
{
    for (size_t i = 0; i < node->node->output_count; i++) {
        struct cn_value unknown = {.kind = CN_VALUE_UNKNOWN, .root = CN_GRAPH_NONE};
        uint32_t value = !i ? node->out : i < CN_IMPORT_OUTPUTS ? node->more[i - 1] : CN_GRAPH_NONE;
        cn_err err = CN_OK;

        if (!node->node->outputs[i].size)
            continue;
        if (value == CN_GRAPH_NONE)
            err = cn_graph_add_value(node->graph, &unknown, &value);
        if (!err)
            err = define_name(node->importer, node->node->outputs[i], value);
        if (err)
            return err;
        name_value(&node->graph->values[value], node->node->outputs[i]);
    }
    return CN_OK;
}

static bool reads(const struct cn_import_node *node, enum cn_value_kind kind)
{
    for (size_t i = 0; i < node->in_count; i++)
        if (cn_import_has(node, i) && cn_import_value(node, i)->kind == kind)
            return true;
    return false;
}

// Passes inputs that no call can read yet (random, numbered) to functions of their own.
static cn_err import_by(struct cn_import_node *node, const struct cn_import_op *op)
{
    if (reads(node, CN_VALUE_UNIFORM))
        return cn_import_of_random(node);
    if (reads(node, CN_VALUE_NUMBERED))
        return cn_import_of_numbered(node);
    for (size_t i = 0; i < node->in_count; i++)
        if (cn_import_has(node, i) && cn_import_value(node, i)->choice)
            return cn_import_of_choice(node, op->import);
    return cn_import_whole_batch(node, op->import);
}

static cn_err import_node(struct cn_importer *importer, const struct cn_onnx_node *source)
{
    struct cn_import_node node = {.importer = importer,
                                  .graph = importer->graph,
                                  .onnx = importer->onnx,
                                  .node = source,
                                  .out = CN_GRAPH_NONE};
    const struct cn_import_op *op = cn_import_op_find(source);
    bool known = false, again = false;
    cn_err err;

    for (size_t i = 0; i + 1 < CN_IMPORT_OUTPUTS; i++)
        node.more[i] = CN_GRAPH_NONE;
    if (op)
        err = bind_node(&node, op, &known);
    else
        err = cn_import_refuse(&node, CN_IMPORT_NO_OP);
    if (!err && known)
        err = cn_import_again_find(&importer->again, &node, &again);
    if (!err && known && !again)
        err = import_by(&node, op);
    if (!err && !again)
        err = cn_import_again_keep(&importer->again, &node);
    if (err && err != CN_ENOTSUP)
        return err;
    if (err) {
        importer->refused = true;
        node.out = CN_GRAPH_NONE;
        for (size_t i = 0; i + 1 < CN_IMPORT_OUTPUTS; i++)
            node.more[i] = CN_GRAPH_NONE;
    }
    return define_outputs(&node);
}

// Makes the branch's outputs the outputs of the node.
static cn_err take_outputs(struct cn_import_node *node, const struct cn_onnx_branch *branch)
{
    for (size_t i = 0; i < branch->output_count && i < CN_IMPORT_OUTPUTS; i++) {
        struct cn_text text = branch->outputs[i];

        if (!cn_onnx_names_find(&node->importer->names, text, i ? &node->more[i - 1] : &node->out))
            return cn_import_refuse(node, "no node makes the output '%.*s'", (int)text.size,
                                    text.size ? text.data : "");
    }
    return CN_OK;
}

// Exporters write If for a squeeze whose size they do not know.
cn_err cn_import_if(struct cn_import_node *node)
{
    const struct cn_value *condition = cn_import_value(node, 0);
    struct cn_onnx_names *names = &node->importer->names;
    const struct cn_onnx_attribute *chosen;
    const struct cn_onnx_branch *branch;
    size_t outside = names->count;
    cn_err err = CN_OK;

    if (!cn_import_is_known(condition) || condition->integers || condition->words != 1)
        return cn_import_refuse(node, "the condition must be known before training");
    chosen = cn_onnx_attribute_find(
        node->node,
        cn_import_known_float(node->graph, condition, 0) != 0 ? "then_branch" : "else_branch");
    branch = chosen ? chosen->branch : NULL;
    if (!branch || branch->initializer_count || branch->output_count != node->node->output_count)
        return cn_import_refuse(node, "its branch is missing, has initializers or %zu outputs",
                                branch ? branch->output_count : 0);
    for (size_t i = 0; !err && i < branch->node_count; i++)
        err = import_node(node->importer, &branch->nodes[i]);
    if (!err)
        err = take_outputs(node, branch);
    cn_onnx_names_forget(names, outside);
    return err;
}

// Finds the output of the graph: the only one, or the one named as the loss.
static struct cn_text output_name(const struct cn_importer *importer)
{
    const char *wanted = importer->graph->loss_output;

    return wanted ? (struct cn_text){wanted, strlen(wanted)} : importer->onnx->outputs[0].name;
}

// Turns a loss that is a sum over the batch into an equal mean.
static cn_err finish_sum(struct cn_importer *importer, struct cn_text output)
{
    const struct cn_onnx_node none = {.name = output};
    struct cn_import_node node = {
        .importer = importer, .graph = importer->graph, .onnx = importer->onnx, .node = &none};

    return importer->graph->loss_output ? cn_import_make_mean(&node, &importer->graph->output)
                                        : CN_OK;
}

static cn_err import_output(struct cn_importer *importer)
{
    const struct cn_text text = output_name(importer);
    const struct cn_value *value;
    uint32_t index;

    if (!cn_onnx_names_find(&importer->names, text, &index)) {
        cn_diag_add(importer->diag, "no node makes the output '%.*s'", (int)text.size, text.data);
        return CN_EFORMAT;
    }
    value = &importer->graph->values[index];
    if (value->kind != CN_VALUE_ACTIVATION || value->padded || cn_graph_is_shared(value) ||
        value->integers) {
        cn_diag_add(importer->diag, "the output '%.*s' is not computed from the input",
                    (int)text.size, text.data);
        return CN_ENOTSUP;
    }
    if (importer->graph->loss_output && importer->graph->head == CN_HEAD_NONE &&
        value->words != 1) {
        cn_diag_add(importer->diag,
                    "the output '%.*s' has %zu values for each sample; wanted one, or a mean or "
                    "sum of all at its end",
                    (int)text.size, text.data, value->words);
        return CN_ENOTSUP;
    }
    importer->graph->output = index;
    return finish_sum(importer, text);
}

cn_err cn_import_check_opset(const struct cn_onnx *onnx, struct cn_diag *diag)
{
    int64_t opset = onnx->opset;

    if (opset >= OPSET_MIN && opset <= OPSET_MAX)
        return CN_OK;
    cn_diag_add(diag, "the model is of opset %" PRId64 "; %d to %d are supported", opset, OPSET_MIN,
                OPSET_MAX);
    return CN_ENOTSUP;
}

static cn_err import_all(struct cn_importer *importer, const struct cn_layout *layout)
{
    const struct cn_onnx *onnx = importer->onnx;
    size_t parameter = 0;
    cn_err err = cn_import_check_opset(importer->onnx, importer->diag);

    if (!err)
        err = init_names(importer);
    if (!err)
        err = import_inputs(importer);
    for (size_t i = 0; !err && i < onnx->initializer_count; i++)
        err = import_initializer(importer, &onnx->initializers[i], layout, &parameter);
    for (size_t i = 0; !err && i < onnx->node_count; i++)
        err = import_node(importer, &onnx->nodes[i]);
    if (!err && importer->refused)
        err = CN_ENOTSUP;
    return err ? err : import_output(importer);
}

cn_err cn_import(const struct cn_onnx *onnx, const struct cn_layout *layout, struct cn_diag *diag,
                 struct cn_graph *graph)
{
    struct cn_importer importer = {.onnx = onnx, .graph = graph, .diag = diag};
    cn_err err = import_all(&importer, layout);

    cn_onnx_names_deinit(&importer.names);
    cn_import_again_deinit(&importer.again);
    return err;
}
