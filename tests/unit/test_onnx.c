#include "tests/unit/onnx_world.h"

static void open_file(struct fixture *fixture, const char *path)
{
    close_model(fixture);
    cn_diag_init(&fixture->diag);
    assert_int_equal(cn_platform_map(path, CN_ONNX_FILE_MAX, &fixture->file), CN_OK);
    assert_int_equal(
        cn_onnx_open(fixture->file.data, fixture->file.size, &fixture->diag, &fixture->onnx),
        CN_OK);
    assert_int_equal(cn_onnx_layout(fixture->onnx, &fixture->diag, &fixture->layout), CN_OK);
}

// A graph with that one initializer.
static cn_err open_tensor(struct fixture *fixture, const struct message *tensor)
{
    struct message graph = {.size = 0};

    put_message(&graph, 5, tensor);
    return open_graph(fixture, &graph);
}

static void assert_line(const struct fixture *fixture, const char *part)
{
    if (!strstr(cn_diag_first(&fixture->diag), part))
        fail_msg("'%s' lacks '%s'", cn_diag_first(&fixture->diag), part);
}

static void an_exported_network_is_read_with_names_shapes_and_attributes(void **state)
{
    struct fixture *fixture = *state;
    const struct cn_onnx_attribute *kernel;
    const struct cn_onnx *onnx;

    open_file(fixture, CAIRN_TEST_DATA "/digits/digits-cnn.onnx");
    onnx = fixture->onnx;
    assert_int_equal(onnx->opset, 17);
    assert_int_equal(onnx->node_count, 9);
    assert_true(cn_text_equal(onnx->nodes[0].op, "Conv"));
    assert_true(cn_text_equal(onnx->nodes[8].op, "Gemm"));
    kernel = cn_onnx_attribute_find(&onnx->nodes[0], "kernel_shape");
    assert_non_null(kernel);
    assert_int_equal(kernel->type, 7);
    assert_int_equal(kernel->count, 2);
    assert_int_equal(kernel->ints[1], 3);
    assert_null(cn_onnx_attribute_find(&onnx->nodes[0], "kernel"));
    assert_int_equal(onnx->input_count, 1);
    assert_true(cn_text_equal(onnx->inputs[0].name, "input"));
    assert_int_equal(onnx->inputs[0].rank, 4);
    assert_int_equal(onnx->inputs[0].dims[0], -1);
    assert_int_equal(onnx->inputs[0].dims[3], 8);
    assert_int_equal(onnx->output_count, 1);
    assert_int_equal(fixture->layout.tensor_count, 8);
    assert_int_equal(fixture->layout.total, 38282);
    assert_string_equal(fixture->layout.tensors[0].name, "0.weight");
    assert_int_equal(fixture->layout.tensors[2].dims[1], 16);
    assert_int_equal(fixture->layout.tensors[1].offset, 144);
}

static void weights_lie_where_the_tensor_says(void **state)
{
    struct fixture *fixture = *state;
    float *weights;
    size_t i;

    open_file(fixture, CAIRN_TEST_DATA "/digits/digits-mlp.onnx");
    weights = calloc(fixture->layout.total, sizeof(*weights));
    assert_non_null(weights);
    assert_int_equal(cn_onnx_weights(fixture->onnx, &fixture->layout, weights), CN_OK);
    for (i = 0; i < fixture->layout.tensor_count; i++) {
        const struct cn_onnx_tensor *tensor = &fixture->onnx->initializers[i];

        assert_ptr_equal(tensor->data, fixture->file.data + tensor->file_offset);
        assert_memory_equal(tensor->data, weights + fixture->layout.tensors[i].offset,
                            tensor->size);
    }
    free(weights);
    fixture->layout.tensors[0].count++;
    assert_int_equal(cn_onnx_weights(fixture->onnx, &fixture->layout, NULL), CN_EINVAL);
}

static void means_and_variances_of_batch_norm_are_statistics(void **state)
{
    struct fixture *fixture = *state;
    size_t statistics = 0;

    open_file(fixture, CAIRN_TEST_DATA "/models/batch-norm.onnx");
    for (size_t i = 0; i < fixture->layout.tensor_count; i++) {
        const struct cn_tensor_info *info = &fixture->layout.tensors[i];
        bool running = strstr(info->name, "running_") != NULL;

        assert_int_equal(info->class, running ? CN_TENSOR_STAT : CN_TENSOR_PARAM);
        assert_int_equal(info->variance, running && strstr(info->name, "var") != NULL);
        statistics += running;
    }
    assert_int_equal(statistics, 2);
}

static void floats_are_read_from_raw_packed_and_single_fields(void **state)
{
    static const float values[3] = {1.5f, -2, 1e-30f};
    struct fixture *fixture = *state;
    float found[3];

    for (int kind = 0; kind < 4; kind++) {
        struct message tensor = tensor_message("w", CN_ONNX_FLOAT, 3);

        if (kind == 0)
            put_bytes(&tensor, 9, values, sizeof(values));
        if (kind == 1)
            put_bytes(&tensor, 4, values, sizeof(values));
        for (int i = 0; kind == 2 && i < 3; i++)
            put_float(&tensor, 4, values[i]);
        if (kind == 3) {
            put_float(&tensor, 4, values[0]);
            put_bytes(&tensor, 4, values + 1, 8);
        }
        assert_int_equal(open_tensor(fixture, &tensor), CN_OK);
        assert_int_equal(fixture->onnx->initializers[0].raw, kind < 2);
        memset(found, 0, sizeof(found));
        assert_int_equal(cn_onnx_tensor_floats(&fixture->onnx->initializers[0], found), CN_OK);
        assert_memory_equal(found, values, sizeof(values));
        assert_int_equal(cn_onnx_layout(fixture->onnx, NULL, &fixture->layout), CN_OK);
        assert_int_equal(cn_onnx_weights(fixture->onnx, &fixture->layout, found), CN_OK);
        assert_memory_equal(found, values, sizeof(values));
    }
}

static void integers_are_read_from_raw_packed_and_single_fields(void **state)
{
    static const int64_t values[3] = {5, -1, 1ll << 40};
    static const int32_t narrow[3] = {5, -1, 1 << 30};
    struct fixture *fixture = *state;
    struct message packed = {.size = 0};
    int64_t found[3];

    for (int i = 0; i < 3; i++)
        put_varint(&packed, (uint64_t)values[i]);
    for (int kind = 0; kind < 3; kind++) {
        struct message tensor = tensor_message("shape", CN_ONNX_INT64, 3);

        if (kind == 0)
            put_bytes(&tensor, 9, values, sizeof(values));
        if (kind == 1)
            put_message(&tensor, 7, &packed);
        for (int i = 0; kind == 2 && i < 3; i++)
            put_int(&tensor, 7, values[i]);
        assert_int_equal(open_tensor(fixture, &tensor), CN_OK);
        assert_int_equal(cn_onnx_tensor_ints(&fixture->onnx->initializers[0], found), CN_OK);
        assert_memory_equal(found, values, sizeof(values));
        assert_int_equal(cn_onnx_tensor_floats(&fixture->onnx->initializers[0], NULL), CN_EINVAL);
    }
    for (int kind = 0; kind < 2; kind++) {
        struct message tensor = tensor_message("narrow", CN_ONNX_INT32, 3);

        if (kind == 0)
            put_bytes(&tensor, 9, narrow, sizeof(narrow));
        for (int i = 0; kind == 1 && i < 3; i++)
            put_int(&tensor, 5, narrow[i]);
        assert_int_equal(open_tensor(fixture, &tensor), CN_OK);
        assert_int_equal(cn_onnx_tensor_ints(&fixture->onnx->initializers[0], found), CN_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(found[i], narrow[i]);
    }
}

static void attributes_of_all_kinds_are_read(void **state)
{
    struct fixture *fixture = *state;
    static const float floats[2] = {0.5f, 2};
    struct message graph = {.size = 0}, node = {.size = 0}, part = {.size = 0};
    struct message tensor = tensor_message("", CN_ONNX_BOOL, 2);
    const struct cn_onnx_node *read;
    int64_t booleans[2];

    put_text(&node, 1, "");
    put_text(&node, 2, "y");
    put_text(&node, 4, "Test");
    put_text(&node, 7, "custom");
    put_text(&part, 1, "f");
    put_float(&part, 2, 0.25f);
    put_int(&part, 20, 1);
    put_message(&node, 5, &part);
    part.size = 0;
    put_text(&part, 1, "fs");
    put_bytes(&part, 7, floats, sizeof(floats));
    put_float(&part, 7, 3);
    put_message(&node, 5, &part);
    part.size = 0;
    put_text(&part, 1, "is");
    put_bytes(&part, 8, "\x01\xac\x02", 3);
    put_int(&part, 8, -7);
    put_message(&node, 5, &part);
    part.size = 0;
    put_text(&part, 1, "t");
    put_bytes(&tensor, 9, "\x01\x00", 2);
    put_message(&part, 5, &tensor);
    put_text(&part, 4, "text");
    put_int(&part, 3, -3);
    put_message(&node, 5, &part);
    put_message(&graph, 1, &node);
    assert_int_equal(open_graph(fixture, &graph), CN_OK);
    read = &fixture->onnx->nodes[0];
    assert_int_equal(read->inputs[0].size, 0);
    assert_true(cn_text_equal(read->domain, "custom"));
    assert_true(cn_onnx_attribute_find(read, "f")->f == 0.25f);
    assert_int_equal(cn_onnx_attribute_find(read, "f")->type, 1);
    assert_int_equal(cn_onnx_attribute_find(read, "fs")->count, 3);
    assert_true(cn_onnx_attribute_find(read, "fs")->floats[2] == 3);
    assert_int_equal(cn_onnx_attribute_find(read, "is")->ints[1], 300);
    assert_int_equal(cn_onnx_attribute_find(read, "is")->ints[2], -7);
    assert_int_equal(cn_onnx_attribute_find(read, "t")->i, -3);
    assert_true(cn_text_equal(cn_onnx_attribute_find(read, "t")->s, "text"));
    assert_int_equal(cn_onnx_tensor_ints(&cn_onnx_attribute_find(read, "t")->tensor, booleans),
                     CN_OK);
    assert_int_equal(booleans[0], 1);
}

static void inputs_that_are_initializers_are_left_out(void **state)
{
    struct fixture *fixture = *state;
    struct message tensor = tensor_message("w", CN_ONNX_FLOAT, 0);
    struct message graph = {.size = 0}, value = {.size = 0};

    put_message(&graph, 5, &tensor);
    put_text(&value, 1, "w");
    put_message(&graph, 11, &value);
    value.size = 0;
    put_text(&value, 1, "x");
    put_message(&graph, 11, &value);
    assert_int_equal(open_graph(fixture, &graph), CN_OK);
    assert_int_equal(fixture->onnx->input_count, 1);
    assert_true(cn_text_equal(fixture->onnx->inputs[0].name, "x"));
    assert_int_equal(cn_onnx_layout(fixture->onnx, &fixture->diag, &fixture->layout), CN_EFORMAT);
    assert_line(fixture, "nothing to train");
}

static void all_that_is_not_supported_is_listed(void **state)
{
    struct fixture *fixture = *state;
    struct message graph = {.size = 0};
    struct message half = tensor_message("half", 10, 1);
    struct message external = tensor_message("outside", CN_ONNX_FLOAT, 1);

    put_bytes(&half, 9, "\0\0", 2);
    put_int(&external, 14, 1);
    put_message(&graph, 5, &half);
    put_message(&graph, 5, &external);
    put_text(&graph, 15, "");
    assert_int_equal(open_graph(fixture, &graph), CN_ENOTSUP);
    assert_null(fixture->onnx);
    assert_int_equal(fixture->diag.count, 3);
    assert_non_null(strstr(fixture->diag.lines[0], "half: element type 10"));
    assert_non_null(strstr(fixture->diag.lines[1], "outside: its data is in another file"));
    assert_non_null(strstr(fixture->diag.lines[2], "sparse"));
}

static void tensors_whose_data_does_not_fit_are_refused(void **state)
{
    struct fixture *fixture = *state;

    for (int i = 0; i < 11; i++) {
        int type = i == 6 || i == 8 ? CN_ONNX_INT64 : CN_ONNX_FLOAT;
        struct message tensor = tensor_message("w", type, i == 10 ? 0 : 2);

        switch (i) {
        case 0: // one byte less
            put_bytes(&tensor, 9, "1234567", 7);
            break;
        case 1: // none
            break;
        case 2: // both kinds
            put_bytes(&tensor, 9, "12345678", 8);
            put_bytes(&tensor, 4, "12345678", 8);
            break;
        case 3: // a half number
            put_bytes(&tensor, 4, "1234567", 7);
            break;
        case 4: // numbers of another type
            put_bytes(&tensor, 7, "\1\2", 2);
            break;
        case 5: // twice
            put_bytes(&tensor, 9, "12345678", 8);
            put_bytes(&tensor, 9, "12345678", 8);
            break;
        case 6: // a varint without its end
            put_bytes(&tensor, 7, "\1\2\x80", 3);
            break;
        case 7: // a size that overflows
            put_int(&tensor, 1, INT64_MAX);
            put_int(&tensor, 1, 4);
            put_bytes(&tensor, 9, "12345678", 8);
            break;
        case 8: // three numbers for two
            put_bytes(&tensor, 7, "\1\2\3", 3);
            break;
        case 9: // one number for two
            put_bytes(&tensor, 4, "1234", 4);
            break;
        default: // no elements, but a negative dimension
            put_int(&tensor, 1, -1);
            break;
        }
        assert_int_equal(open_tensor(fixture, &tensor), CN_EFORMAT);
        assert_line(fixture, "byte ");
    }
}

static void malformed_models_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct message graph = {.size = 0}, model;
    struct message tensor = tensor_message("w", CN_ONNX_FLOAT, 0);

    assert_int_equal(open_bytes(fixture, (const uint8_t *)"", 0), CN_EFORMAT);
    assert_int_equal(open_bytes(fixture, (const uint8_t *)"\x08\x08", 2), CN_EFORMAT);
    assert_line(fixture, "no graph");
    model = (struct message){.size = 0};
    put_message(&model, 7, &graph);
    assert_int_equal(open_bytes(fixture, model.bytes, model.size), CN_EFORMAT);
    assert_line(fixture, "operator set");
    model = model_message(&graph);
    put_message(&model, 7, &graph);
    assert_int_equal(open_bytes(fixture, model.bytes, model.size), CN_EFORMAT);
    assert_line(fixture, "occurs twice");
    put_message(&graph, 5, &tensor);
    put_message(&graph, 5, &tensor);
    assert_int_equal(open_graph(fixture, &graph), CN_EFORMAT);
    assert_line(fixture, "two initializers have the name 'w'");
    graph.size = 0;
    put_int(&graph, 1, 1);
    assert_int_equal(open_graph(fixture, &graph), CN_EFORMAT);
    assert_line(fixture, "wrong wire type");
    graph.size = 0;
    put_varint(&graph, 1 << 3 | 3); // a group
    assert_int_equal(open_graph(fixture, &graph), CN_EFORMAT);
    assert_line(fixture, "cut off or malformed");
}

static void numbers_that_do_not_fit_their_bits_are_refused(void **state)
{
    static const char *const bad[] = {
        "\xf8\xff\xff\xff\x7f\x01",                         // a field number of 32 bits
        "\x40\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",     // a varint of 65 bits
        "\x40\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", // of 11 bytes
    };
    struct fixture *fixture = *state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct message graph = {.size = strlen(bad[i])};

        memcpy(graph.bytes, bad[i], graph.size);
        assert_int_equal(open_graph(fixture, &graph), CN_EFORMAT);
        assert_line(fixture, "cut off or malformed");
    }
}

static void names_that_no_message_can_show_are_refused(void **state)
{
    static const char *const bad[] = {"a\nb",     "\x1b[31m", "\x7f",         "\xff",
                                      "\xc0\x80", "\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80"};
    static const char *const good[] = {"a.b/c:0", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x99\x82"};
    struct fixture *fixture = *state;
    struct message tensor;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        tensor = tensor_message(bad[i], CN_ONNX_FLOAT, 1);
        put_bytes(&tensor, 9, "1234", 4);
        assert_int_equal(open_tensor(fixture, &tensor), CN_EFORMAT);
        assert_line(fixture, "name: it is not printable UTF-8");
    }
    tensor = tensor_message("", CN_ONNX_FLOAT, 1);
    put_bytes(&tensor, 9, "1234", 4);
    assert_int_equal(open_tensor(fixture, &tensor), CN_OK);
    assert_int_equal(cn_onnx_layout(fixture->onnx, &fixture->diag, &fixture->layout), CN_EFORMAT);
    assert_line(fixture, "a name of 0 bytes");
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        tensor = tensor_message(good[i], CN_ONNX_FLOAT, 1);
        put_bytes(&tensor, 9, "1234", 4);
        assert_int_equal(open_tensor(fixture, &tensor), CN_OK);
        assert_int_equal(cn_onnx_layout(fixture->onnx, NULL, &fixture->layout), CN_OK);
        assert_string_equal(fixture->layout.tensors[0].name, good[i]);
    }
}

static void a_file_of_empty_nodes_cannot_take_all_memory(void **state)
{
    struct fixture *fixture = *state;
    size_t count = 1 << 20; // two bytes each
    uint8_t *file = malloc(2 * count + 16);
    size_t size = 0;

    assert_non_null(file);
    memcpy(file, "\x42\x02\x10\x11\x3a", 5); // operator set 17, then the graph
    size = 5;
    for (size_t rest = 2 * count; rest; rest >>= 7)
        file[size++] = (uint8_t)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
    for (size_t i = 0; i < count; i++) {
        file[size++] = 0x0a;
        file[size++] = 0;
    }
    assert_int_equal(open_bytes(fixture, file, size), CN_ERANGE);
    assert_line(fixture, "need more than 64 MiB");
    free(file);
}

// Uses everything that a decoded model offers.
static void touch(const struct cn_onnx *onnx)
{
    struct cn_layout layout;
    float *weights;

    if (cn_onnx_layout(onnx, NULL, &layout))
        return;
    weights = calloc(layout.total, sizeof(*weights));
    assert_non_null(weights);
    assert_int_equal(cn_onnx_weights(onnx, &layout, weights), CN_OK);
    free(weights);
    cn_layout_deinit(&layout);
}

static void every_cut_of_a_file_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct cn_mapping file;

    assert_int_equal(cn_platform_map(CAIRN_TEST_DATA "/models/mlp.onnx", 1 << 20, &file), CN_OK);
    for (size_t size = 0; size < file.size; size++) {
        assert_int_equal(open_bytes(fixture, file.data, size), CN_EFORMAT);
        assert_true(fixture->diag.count > 0);
    }
    cn_platform_unmap(&file);
}

static void a_file_with_any_bit_flipped_is_read_or_refused(void **state)
{
    struct fixture *fixture = *state;
    struct cn_mapping file;
    uint8_t *changed;
    size_t opened = 0;

    assert_int_equal(cn_platform_map(CAIRN_TEST_DATA "/models/batch-norm.onnx", 1 << 20, &file),
                     CN_OK);
    changed = malloc(file.size);
    assert_non_null(changed);
    memcpy(changed, file.data, file.size);
    for (size_t bit = 0; bit < 8 * file.size; bit++) {
        changed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (!open_bytes(fixture, changed, file.size)) {
            opened++;
            touch(fixture->onnx);
        }
        changed[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(opened > 0);
    free(changed);
    cn_platform_unmap(&file);
}

static void a_copy_of_a_layout_stands_alone(void **state)
{
    struct fixture *fixture = *state;
    struct cn_layout copy, empty = {0};

    open_file(fixture, CAIRN_TEST_DATA "/models/mlp.onnx");
    assert_int_equal(cn_layout_copy(&fixture->layout, &copy), CN_OK);
    cn_layout_deinit(&fixture->layout);
    assert_int_equal(copy.total, 92);
    assert_string_equal(copy.tensors[3].name, "2.bias");
    cn_layout_deinit(&copy);
    assert_int_equal(cn_layout_copy(&empty, &copy), CN_OK);
    cn_layout_deinit(&copy);
    cn_layout_deinit(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_exported_network_is_read_with_names_shapes_and_attributes),
        TEST(weights_lie_where_the_tensor_says),
        TEST(means_and_variances_of_batch_norm_are_statistics),
        TEST(floats_are_read_from_raw_packed_and_single_fields),
        TEST(integers_are_read_from_raw_packed_and_single_fields),
        TEST(attributes_of_all_kinds_are_read),
        TEST(inputs_that_are_initializers_are_left_out),
        TEST(all_that_is_not_supported_is_listed),
        TEST(tensors_whose_data_does_not_fit_are_refused),
        TEST(malformed_models_are_refused),
        TEST(numbers_that_do_not_fit_their_bits_are_refused),
        TEST(names_that_no_message_can_show_are_refused),
        TEST(a_file_of_empty_nodes_cannot_take_all_memory),
        TEST(every_cut_of_a_file_is_refused),
        TEST(a_file_with_any_bit_flipped_is_read_or_refused),
        TEST(a_copy_of_a_layout_stands_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
