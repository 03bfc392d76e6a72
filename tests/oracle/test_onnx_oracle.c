#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <glob.h>

#include "onnx.pb-c.h"
#include "runtime/engine/onnx/onnx.h"
#include "runtime/port/platform.h"

// protobuf-c ends a string at its first 0; a missing one is NULL or "".
static void compare_text(struct cn_text text, const char *wanted)
{
    size_t size = wanted ? strlen(wanted) : 0;

    if (text.size && memchr(text.data, 0, text.size))
        return;
    assert_int_equal(text.size, size);
    if (size)
        assert_memory_equal(text.data, wanted, size);
}

static void compare_floats(const struct cn_onnx_tensor *tensor, const Onnx__TensorProto *wanted)
{
    float *values = malloc(tensor->count * sizeof(*values) + 1);

    assert_non_null(values);
    assert_int_equal(cn_onnx_tensor_floats(tensor, values), CN_OK);
    if (wanted->n_float_data)
        assert_memory_equal(values, wanted->float_data, tensor->count * sizeof(*values));
    else
        assert_memory_equal(values, wanted->raw_data.data, tensor->count * sizeof(*values));
    free(values);
}

static int64_t wanted_int(const Onnx__TensorProto *wanted, size_t i)
{
    int64_t wide;
    int32_t narrow;

    if (wanted->n_int64_data)
        return wanted->int64_data[i];
    if (wanted->n_int32_data)
        return wanted->int32_data[i];
    switch (wanted->data_type) {
    case CN_ONNX_INT64:
        memcpy(&wide, wanted->raw_data.data + 8 * i, sizeof(wide));
        return wide;
    case CN_ONNX_INT32:
        memcpy(&narrow, wanted->raw_data.data + 4 * i, sizeof(narrow));
        return narrow;
    default:
        return wanted->raw_data.data[i];
    }
}

static void compare_ints(const struct cn_onnx_tensor *tensor, const Onnx__TensorProto *wanted)
{
    int64_t *values = malloc(tensor->count * sizeof(*values) + 1);

    assert_non_null(values);
    assert_int_equal(cn_onnx_tensor_ints(tensor, values), CN_OK);
    for (size_t i = 0; i < tensor->count; i++)
        assert_int_equal(values[i], wanted_int(wanted, i));
    free(values);
}

static void compare_tensor(const struct cn_onnx_tensor *tensor, const Onnx__TensorProto *wanted)
{
    compare_text(tensor->name, wanted->name);
    assert_int_equal(tensor->type, wanted->data_type);
    assert_int_equal(tensor->rank, wanted->n_dims);
    for (uint32_t i = 0; i < tensor->rank; i++)
        assert_int_equal(tensor->dims[i], wanted->dims[i]);
    if (!tensor->count)
        return;
    if (tensor->type == CN_ONNX_FLOAT)
        compare_floats(tensor, wanted);
    else
        compare_ints(tensor, wanted);
}

static void compare_attribute(const struct cn_onnx_attribute *attribute,
                              const Onnx__AttributeProto *wanted)
{
    compare_text(attribute->name, wanted->name);
    assert_int_equal(attribute->type, wanted->type);
    assert_int_equal(attribute->i, wanted->i);
    assert_memory_equal(&attribute->f, &wanted->f, sizeof(float));
    assert_int_equal(attribute->s.size, wanted->s.len);
    if (wanted->s.len)
        assert_memory_equal(attribute->s.data, wanted->s.data, wanted->s.len);
    assert_int_equal(attribute->count, wanted->n_ints + wanted->n_floats);
    if (wanted->n_ints)
        assert_memory_equal(attribute->ints, wanted->ints, wanted->n_ints * sizeof(int64_t));
    if (wanted->n_floats)
        assert_memory_equal(attribute->floats, wanted->floats, wanted->n_floats * sizeof(float));
    if (wanted->t)
        compare_tensor(&attribute->tensor, wanted->t);
}

static void compare_node(const struct cn_onnx_node *node, const Onnx__NodeProto *wanted)
{
    compare_text(node->name, wanted->name);
    compare_text(node->op, wanted->op_type);
    compare_text(node->domain, wanted->domain);
    assert_int_equal(node->input_count, wanted->n_input);
    for (size_t i = 0; i < node->input_count; i++)
        compare_text(node->inputs[i], wanted->input[i]);
    assert_int_equal(node->output_count, wanted->n_output);
    for (size_t i = 0; i < node->output_count; i++)
        compare_text(node->outputs[i], wanted->output[i]);
    assert_int_equal(node->attribute_count, wanted->n_attribute);
    for (size_t i = 0; i < node->attribute_count; i++)
        compare_attribute(&node->attributes[i], wanted->attribute[i]);
}

static void compare_value(const struct cn_onnx_value *value, const Onnx__ValueInfoProto *wanted)
{
    const Onnx__TypeProto__Tensor *tensor = NULL;
    const Onnx__TensorShapeProto *shape;

    compare_text(value->name, wanted->name);
    if (wanted->type && wanted->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        tensor = wanted->type->tensor_type;
    assert_int_equal(value->type, tensor ? tensor->elem_type : 0);
    shape = tensor ? tensor->shape : NULL;
    assert_int_equal(value->rank, shape ? shape->n_dim : 0);
    for (uint32_t i = 0; shape && i < value->rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[i];
        bool known = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
                     dim->dim_value > 0;

        assert_int_equal(value->dims[i], known ? dim->dim_value : -1);
    }
}

static bool initialized(const Onnx__GraphProto *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_initializer; i++) {
        if (strcmp(graph->initializer[i]->name ? graph->initializer[i]->name : "",
                   name ? name : "") == 0)
            return true;
    }
    return false;
}

static void compare_graph(const struct cn_onnx *onnx, const Onnx__GraphProto *wanted)
{
    size_t inputs = 0;

    assert_int_equal(onnx->node_count, wanted->n_node);
    for (size_t i = 0; i < onnx->node_count; i++)
        compare_node(&onnx->nodes[i], wanted->node[i]);
    assert_int_equal(onnx->initializer_count, wanted->n_initializer);
    for (size_t i = 0; i < onnx->initializer_count; i++)
        compare_tensor(&onnx->initializers[i], wanted->initializer[i]);
    for (size_t i = 0; i < wanted->n_input; i++) {
        if (initialized(wanted, wanted->input[i]->name))
            continue;
        assert_true(inputs < onnx->input_count);
        compare_value(&onnx->inputs[inputs++], wanted->input[i]);
    }
    assert_int_equal(onnx->input_count, inputs);
    assert_int_equal(onnx->output_count, wanted->n_output);
    for (size_t i = 0; i < onnx->output_count; i++)
        compare_value(&onnx->outputs[i], wanted->output[i]);
}

static int64_t default_opset(const Onnx__ModelProto *model)
{
    int64_t version = 0;

    for (size_t i = 0; i < model->n_opset_import; i++) {
        const char *domain = model->opset_import[i]->domain;

        if (!domain || strcmp(domain, "") == 0 || strcmp(domain, "ai.onnx") == 0)
            version = model->opset_import[i]->version;
    }
    return version;
}

// Compares the two when both read the bytes. Returns whether they did.
static bool compare_model(const uint8_t *file, size_t size)
{
    struct cn_onnx *onnx;
    Onnx__ModelProto *wanted;

    if (cn_onnx_open(file, size, NULL, &onnx))
        return false;
    wanted = onnx__model_proto__unpack(NULL, size, file);
    if (wanted) {
        assert_int_equal(onnx->ir_version, wanted->ir_version);
        assert_int_equal(onnx->opset, default_opset(wanted));
        compare_graph(onnx, wanted->graph);
        onnx__model_proto__free_unpacked(wanted, NULL);
    }
    cn_onnx_close(onnx);
    return wanted != NULL;
}

static size_t compare_files(const char *pattern)
{
    glob_t files;
    size_t compared = 0;

    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct cn_mapping file;

        assert_int_equal(cn_platform_map(files.gl_pathv[i], 1 << 24, &file), CN_OK);
        compared += compare_model(file.data, file.size);
        cn_platform_unmap(&file);
    }
    globfree(&files);
    return compared;
}

static void protobuf_reads_the_same_from_every_model(void **state)
{
    (void)state;
    assert_true(compare_files(CAIRN_TEST_DATA "/models/*.onnx") >= 10);
    assert_int_equal(compare_files(CAIRN_TEST_DATA "/digits/*.onnx"), 4);
    assert_true(compare_files(CAIRN_CORPUS "/*") >= 10);
}

static void protobuf_reads_the_same_after_any_flipped_bit(void **state)
{
    struct cn_mapping file;
    uint8_t *changed;
    size_t compared = 0;

    (void)state;
    assert_int_equal(
        cn_platform_map(CAIRN_TEST_DATA "/models/average-pool-pad.onnx", 1 << 20, &file), CN_OK);
    changed = malloc(file.size);
    assert_non_null(changed);
    memcpy(changed, file.data, file.size);
    for (size_t bit = 0; bit < 8 * file.size; bit++) {
        changed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        compared += compare_model(changed, file.size);
        changed[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(compared > file.size);
    free(changed);
    cn_platform_unmap(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(protobuf_reads_the_same_from_every_model),
        cmocka_unit_test(protobuf_reads_the_same_after_any_flipped_bit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
