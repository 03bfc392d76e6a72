#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#include "runtime/engine/onnx/export.h"
#include "runtime/port/platform.h"
#include "tests/unit/onnx_message.h"

#define LIMIT (1 << 20)

static const char *const models[] = {
    CAIRN_TEST_DATA "/digits/digits-cnn.onnx",
    CAIRN_TEST_DATA "/models/batch-norm.onnx",
    CAIRN_TEST_DATA "/models/average-pool-pad.onnx",
    CAIRN_TEST_DATA "/models/mlp.onnx",
};
#define MODEL_COUNT (sizeof(models) / sizeof(models[0]))

struct model {
    struct cn_mapping file;
    struct cn_onnx *onnx;
    struct cn_layout layout;
    float *weights;
};

static void read_model(const uint8_t *file, size_t size, struct model *model)
{
    assert_int_equal(cn_onnx_open(file, size, NULL, &model->onnx), CN_OK);
    assert_int_equal(cn_onnx_layout(model->onnx, NULL, &model->layout), CN_OK);
    model->weights = calloc(model->layout.total, sizeof(float));
    assert_non_null(model->weights);
    assert_int_equal(cn_onnx_weights(model->onnx, &model->layout, model->weights), CN_OK);
}

static void open_model(const char *path, struct model *model)
{
    *model = (struct model){0};
    assert_int_equal(cn_platform_map(path, LIMIT, &model->file), CN_OK);
    read_model(model->file.data, model->file.size, model);
}

static void close_model(struct model *model)
{
    free(model->weights);
    cn_layout_deinit(&model->layout);
    cn_onnx_close(model->onnx);
    cn_platform_unmap(&model->file);
}

static void unchanged_weights_give_the_original_file(void **state)
{
    struct cn_buffer out;
    struct model model;

    (void)state;
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        open_model(models[i], &model);
        cn_buffer_init(&out, LIMIT);
        assert_int_equal(
            cn_export_onnx(model.onnx, &model.layout, model.weights, CN_EXPORT_TRAINING, &out),
            CN_OK);
        assert_int_equal(out.size, model.file.size);
        assert_memory_equal(out.data, model.file.data, out.size);
        cn_buffer_deinit(&out);
        close_model(&model);
    }
}

static void new_weights_are_read_back_from_the_exported_file(void **state)
{
    struct cn_buffer out;
    struct model model, again = {0};

    (void)state;
    open_model(models[1], &model);
    for (size_t i = 0; i < model.layout.total; i++)
        model.weights[i] = (float)i - 0.5f;
    cn_buffer_init(&out, LIMIT);
    assert_int_equal(
        cn_export_onnx(model.onnx, &model.layout, model.weights, CN_EXPORT_TRAINING, &out), CN_OK);
    read_model(out.data, out.size, &again);
    assert_memory_equal(model.weights, again.weights, model.layout.total * sizeof(float));
    close_model(&again);
    cn_buffer_deinit(&out);
    close_model(&model);
}

static void put_norm(struct message *graph)
{
    static const char *const inputs[] = {"x", "w", "b", "m", "v"};
    struct message node = {.size = 0}, mode = {.size = 0}, kept = {.size = 0};

    put_text(&mode, 1, "training_mode");
    put_int(&mode, 3, 1);
    put_text(&kept, 1, "momentum");
    put_float(&kept, 2, 0.5f);
    for (size_t i = 0; i < 5; i++)
        put_text(&node, 1, inputs[i]);
    put_text(&node, 2, "h");
    put_text(&node, 2, "new_m");
    put_text(&node, 2, "new_v");
    put_text(&node, 4, "BatchNormalization");
    put_message(&node, 5, &mode);
    put_message(&node, 5, &kept);
    put_message(graph, 1, &node);
}

static struct message dropout_message(void)
{
    struct message node = {.size = 0};

    put_text(&node, 1, "h");
    put_text(&node, 1, "ratio");
    put_text(&node, 1, "yes");
    put_text(&node, 2, "y");
    put_text(&node, 4, "Dropout");
    return node;
}

// A BatchNormalization and a Dropout that train, and a Dropout in a branch.
static struct message training_model(void)
{
    struct message graph = {.size = 0}, choice = {.size = 0}, branch = {.size = 0};
    struct message attribute = {.size = 0}, dropout = dropout_message();
    static const float numbers[2] = {1, 2};

    put_norm(&graph);
    put_message(&graph, 1, &dropout);
    put_message(&branch, 1, &dropout);
    put_text(&attribute, 1, "then_branch");
    put_message(&attribute, 6, &branch);
    put_text(&choice, 4, "If");
    put_message(&choice, 5, &attribute);
    put_message(&graph, 1, &choice);
    for (size_t i = 0; i < 4; i++) {
        struct message tensor = tensor_message((const char *[]){"w", "b", "m", "v"}[i], 1, 2);

        put_bytes(&tensor, 9, numbers, sizeof(numbers));
        put_message(&graph, 5, &tensor);
    }
    return model_message(&graph);
}

static void the_form_for_inference_trains_nothing(void **state)
{
    struct message file = training_model();
    struct model model = {0}, again = {0};
    struct cn_buffer out;

    (void)state;
    read_model(file.bytes, file.size, &model);
    model.weights[7] = 9;
    cn_buffer_init(&out, LIMIT);
    assert_int_equal(
        cn_export_onnx(model.onnx, &model.layout, model.weights, CN_EXPORT_INFERENCE, &out), CN_OK);
    read_model(out.data, out.size, &again);
    assert_memory_equal(model.weights, again.weights, model.layout.total * sizeof(float));
    assert_int_equal(again.onnx->node_count, 3);
    assert_int_equal(again.onnx->nodes[0].input_count, 5);
    assert_int_equal(again.onnx->nodes[0].output_count, 1);
    assert_null(cn_onnx_attribute_find(&again.onnx->nodes[0], "training_mode"));
    assert_non_null(cn_onnx_attribute_find(&again.onnx->nodes[0], "momentum"));
    assert_int_equal(again.onnx->nodes[1].input_count, 2);
    assert_int_equal(again.onnx->nodes[2].attributes[0].branch->nodes[0].input_count, 2);
    close_model(&again);
    cn_buffer_deinit(&out);
    close_model(&model);
}

// Such a file would not be valid without the statistics.
static void statistics_that_are_read_stay_outputs(void **state)
{
    struct message graph = {.size = 0}, reader = {.size = 0}, tensor = tensor_message("w", 1, 2);
    static const float numbers[2] = {1, 2};
    struct message file;
    struct model model = {0};
    struct cn_buffer out;

    (void)state;
    put_norm(&graph);
    put_text(&reader, 1, "new_v");
    put_text(&reader, 2, "z");
    put_text(&reader, 4, "Identity");
    put_message(&graph, 1, &reader);
    put_bytes(&tensor, 9, numbers, sizeof(numbers));
    put_message(&graph, 5, &tensor);
    file = model_message(&graph);
    read_model(file.bytes, file.size, &model);
    cn_buffer_init(&out, LIMIT);
    assert_int_equal(
        cn_export_onnx(model.onnx, &model.layout, model.weights, CN_EXPORT_INFERENCE, &out), CN_OK);
    assert_int_equal(out.size, file.size);
    assert_memory_equal(out.data, file.bytes, file.size);
    cn_buffer_deinit(&out);
    close_model(&model);
}

static void a_stripped_and_restored_file_takes_its_weights_again(void **state)
{
    struct cn_buffer blob, restored, out;
    struct model model, again = {0};

    (void)state;
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        open_model(models[i], &model);
        cn_buffer_init(&blob, LIMIT);
        cn_buffer_init(&restored, LIMIT);
        cn_buffer_init(&out, LIMIT);
        assert_int_equal(cn_export_graph(model.onnx, &model.layout, &blob), CN_OK);
        assert_int_equal(blob.size, model.file.size - model.layout.total * sizeof(float) + 24 +
                                        16 * model.layout.tensor_count);
        assert_int_equal(cn_export_restore(blob.data, blob.size, NULL, &restored), CN_OK);
        memset(&again, 0, sizeof(again));
        read_model(restored.data, restored.size, &again);
        for (size_t j = 0; j < again.layout.total; j++)
            assert_true(again.weights[j] == 0);
        assert_int_equal(
            cn_export_onnx(again.onnx, &again.layout, model.weights, CN_EXPORT_TRAINING, &out),
            CN_OK);
        assert_int_equal(out.size, model.file.size);
        assert_memory_equal(out.data, model.file.data, out.size);
        close_model(&again);
        cn_buffer_deinit(&out);
        cn_buffer_deinit(&restored);
        cn_buffer_deinit(&blob);
        close_model(&model);
    }
}

static void the_graph_does_not_depend_on_the_weights(void **state)
{
    struct cn_buffer first, second, out;
    struct model model, changed = {0};

    (void)state;
    open_model(models[0], &model);
    cn_buffer_init(&first, LIMIT);
    cn_buffer_init(&second, LIMIT);
    cn_buffer_init(&out, LIMIT);
    assert_int_equal(cn_export_graph(model.onnx, &model.layout, &first), CN_OK);
    for (size_t i = 0; i < model.layout.total; i++)
        model.weights[i] += 1;
    assert_int_equal(
        cn_export_onnx(model.onnx, &model.layout, model.weights, CN_EXPORT_TRAINING, &out), CN_OK);
    read_model(out.data, out.size, &changed);
    assert_int_equal(cn_export_graph(changed.onnx, &changed.layout, &second), CN_OK);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    close_model(&changed);
    cn_buffer_deinit(&out);
    cn_buffer_deinit(&second);
    cn_buffer_deinit(&first);
    close_model(&model);
}

static void weights_in_single_fields_are_written_back_in_place(void **state)
{
    struct message graph = {.size = 0}, file;
    struct message tensor = tensor_message("w", CN_ONNX_FLOAT, 3);
    struct cn_buffer blob, restored, out;
    struct model model = {0}, again = {0};

    (void)state;
    put_float(&tensor, 4, 1);
    put_bytes(&tensor, 4, "12345678", 8);
    put_message(&graph, 5, &tensor);
    file = model_message(&graph);
    read_model(file.bytes, file.size, &model);
    cn_buffer_init(&blob, LIMIT);
    cn_buffer_init(&restored, LIMIT);
    cn_buffer_init(&out, LIMIT);
    assert_int_equal(cn_export_graph(model.onnx, &model.layout, &blob), CN_OK);
    assert_int_equal(blob.size, file.size - 12 + 24 + 32);
    assert_int_equal(cn_export_restore(blob.data, blob.size, NULL, &restored), CN_OK);
    read_model(restored.data, restored.size, &again);
    assert_int_equal(
        cn_export_onnx(again.onnx, &again.layout, model.weights, CN_EXPORT_TRAINING, &out), CN_OK);
    assert_int_equal(out.size, file.size);
    assert_memory_equal(out.data, file.bytes, file.size);
    close_model(&again);
    close_model(&model);
    cn_buffer_deinit(&out);
    cn_buffer_deinit(&restored);
    cn_buffer_deinit(&blob);
}

static void the_vector_of_the_specification_is_restored(void **state)
{
    static const char hex[] = "636169726e2d67310a00000000000000010000000000000002000000000000000400"
                              "0000000000006162"
                              "63646566";
    uint8_t blob[46];
    struct cn_buffer out;

    (void)state;
    assert_int_equal(cn_hex_parse(hex, blob, sizeof(blob)), CN_OK);
    cn_buffer_init(&out, 10);
    assert_int_equal(cn_export_restore(blob, sizeof(blob), NULL, &out), CN_OK);
    assert_int_equal(out.size, 10);
    assert_memory_equal(out.data, "ab\0\0\0\0cdef", 10);
    cn_buffer_deinit(&out);
}

static void malformed_graphs_are_refused(void **state)
{
    static const struct {
        uint64_t file_size, ranges, offset, size;
        cn_err err;
    } cases[] = {
        {10, 1, 2, 4, CN_OK},
        {11, 1, 2, 4, CN_EFORMAT},                 // a byte is missing
        {6, 1, 2, 0, CN_EFORMAT},                  // an empty range
        {10, 1, 7, 4, CN_EFORMAT},                 // beyond the end
        {10, 1, UINT64_MAX, 4, CN_EFORMAT},        // far beyond
        {10, 1, 2, UINT64_MAX, CN_EFORMAT},        // an overflow
        {10, 2, 2, 4, CN_EFORMAT},                 // ranges where the rest should be
        {10, UINT64_MAX, 2, 4, CN_EFORMAT},        // more ranges than bytes
        {UINT64_MAX, 1, 2, 4, CN_EFORMAT},         // a file beyond any limit
        {1 << 21, 1, 6, (1 << 21) - 6, CN_ERANGE}, // more than the caller wants
    };
    uint8_t blob[46] = "cairn-g1";
    struct cn_buffer out;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cn_put_u64(blob + 8, cases[i].file_size);
        cn_put_u64(blob + 16, cases[i].ranges);
        cn_put_u64(blob + 24, cases[i].offset);
        cn_put_u64(blob + 32, cases[i].size);
        cn_buffer_init(&out, LIMIT);
        assert_int_equal(cn_export_restore(blob, sizeof(blob), NULL, &out), cases[i].err);
        cn_buffer_deinit(&out);
    }
    cn_buffer_init(&out, LIMIT);
    for (size_t size = 0; size < sizeof(blob); size++)
        assert_int_not_equal(cn_export_restore(blob, size, NULL, &out), CN_OK);
    cn_buffer_deinit(&out);
}

static void ranges_that_overlap_are_refused(void **state)
{
    uint8_t blob[24 + 2 * 16 + 5] = "cairn-g1";
    struct cn_buffer out;

    (void)state;
    cn_put_u64(blob + 8, 10);
    cn_put_u64(blob + 16, 2);
    cn_put_u64(blob + 24, 2);
    cn_put_u64(blob + 32, 4);
    cn_put_u64(blob + 40, 5); // inside the first, and all sizes add up
    cn_put_u64(blob + 48, 1);
    cn_buffer_init(&out, LIMIT);
    assert_int_equal(cn_export_restore(blob, sizeof(blob), NULL, &out), CN_EFORMAT);
    cn_buffer_deinit(&out);
}

static void safetensors_hold_every_tensor_with_its_shape(void **state)
{
    struct cn_buffer out;
    struct model model;
    uint64_t length;
    cJSON *header;

    (void)state;
    open_model(models[1], &model);
    cn_buffer_init(&out, LIMIT);
    assert_int_equal(cn_export_safetensors(&model.layout, model.weights, &out), CN_OK);
    length = cn_get_u64(out.data);
    assert_int_equal(length % 8, 0);
    assert_int_equal(out.size, 8 + length + model.layout.total * sizeof(float));
    assert_memory_equal(out.data + 8 + length, model.weights, model.layout.total * sizeof(float));
    header = cJSON_ParseWithLength((const char *)out.data + 8, length);
    assert_non_null(header);
    for (size_t i = 0; i < model.layout.tensor_count; i++) {
        const struct cn_tensor_info *info = &model.layout.tensors[i];
        cJSON *entry = cJSON_GetObjectItemCaseSensitive(header, info->name);
        cJSON *offsets = cJSON_GetObjectItem(entry, "data_offsets");
        cJSON *shape = cJSON_GetObjectItem(entry, "shape");

        assert_string_equal(cJSON_GetObjectItem(entry, "dtype")->valuestring, "F32");
        assert_int_equal(cJSON_GetArrayItem(offsets, 0)->valueint, 4 * info->offset);
        assert_int_equal(cJSON_GetArrayItem(offsets, 1)->valueint,
                         4 * (info->offset + info->count));
        assert_int_equal(cJSON_GetArraySize(shape), info->rank);
        for (uint32_t j = 0; j < info->rank; j++)
            assert_int_equal(cJSON_GetArrayItem(shape, (int)j)->valueint, info->dims[j]);
    }
    cJSON_Delete(header);
    cn_buffer_deinit(&out);
    close_model(&model);
}

static void a_layout_of_another_file_is_refused(void **state)
{
    struct cn_buffer out;
    struct model model, other;

    (void)state;
    open_model(models[0], &model);
    open_model(models[1], &other);
    cn_buffer_init(&out, LIMIT);
    assert_int_equal(
        cn_export_onnx(model.onnx, &other.layout, other.weights, CN_EXPORT_TRAINING, &out),
        CN_EINVAL);
    assert_int_equal(cn_export_graph(model.onnx, &other.layout, &out), CN_EINVAL);
    assert_int_equal(out.size, 0);
    cn_buffer_deinit(&out);
    close_model(&other);
    close_model(&model);
}

static void a_buffer_that_is_too_small_is_an_error(void **state)
{
    struct cn_buffer out;
    struct model model;

    (void)state;
    open_model(models[3], &model);
    for (size_t limit = 0; limit < 500; limit++) {
        cn_buffer_init(&out, limit);
        assert_int_equal(
            cn_export_onnx(model.onnx, &model.layout, model.weights, CN_EXPORT_TRAINING, &out),
            CN_ERANGE);
        cn_buffer_deinit(&out);
        cn_buffer_init(&out, limit);
        assert_int_equal(cn_export_safetensors(&model.layout, model.weights, &out), CN_ERANGE);
        cn_buffer_deinit(&out);
        cn_buffer_init(&out, limit);
        assert_int_equal(cn_export_graph(model.onnx, &model.layout, &out), CN_ERANGE);
        cn_buffer_deinit(&out);
    }
    close_model(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unchanged_weights_give_the_original_file),
        cmocka_unit_test(new_weights_are_read_back_from_the_exported_file),
        cmocka_unit_test(the_form_for_inference_trains_nothing),
        cmocka_unit_test(statistics_that_are_read_stay_outputs),
        cmocka_unit_test(a_stripped_and_restored_file_takes_its_weights_again),
        cmocka_unit_test(the_graph_does_not_depend_on_the_weights),
        cmocka_unit_test(weights_in_single_fields_are_written_back_in_place),
        cmocka_unit_test(the_vector_of_the_specification_is_restored),
        cmocka_unit_test(malformed_graphs_are_refused),
        cmocka_unit_test(ranges_that_overlap_are_refused),
        cmocka_unit_test(safetensors_hold_every_tensor_with_its_shape),
        cmocka_unit_test(a_layout_of_another_file_is_refused),
        cmocka_unit_test(a_buffer_that_is_too_small_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
