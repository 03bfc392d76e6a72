// Models whose tensors lie in other files, and file names that lead out of the model's folder.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/engine/onnx/onnx.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "tests/unit/onnx_message.h"

static const float weights[6] = {1, -2, 3.5f, 0, 0.25f, -7};

struct fixture {
    char folder[64], path[96];
    struct cn_diag diag;
    struct cn_onnx_file file;
};

static void write_file(const struct fixture *fixture, const char *name, const void *data,
                       size_t size)
{
    char path[160];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", fixture->folder, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
}

static void put_entry(struct message *tensor, const char *key, const char *value)
{
    struct message entry = {.size = 0};

    if (!value)
        return;
    put_text(&entry, 1, key);
    put_text(&entry, 2, value);
    put_message(tensor, 13, &entry);
}

// A float32 tensor [2, 3] whose data is elsewhere.
static void put_external(struct message *graph, const char *name, const char *location,
                         const char *offset, const char *length)
{
    struct message tensor = {.size = 0};

    put_int(&tensor, 1, 2);
    put_int(&tensor, 1, 3);
    put_int(&tensor, 2, 1);
    put_text(&tensor, 8, name);
    put_entry(&tensor, "location", location);
    put_entry(&tensor, "offset", offset);
    put_entry(&tensor, "length", length);
    put_int(&tensor, 14, 1);
    put_message(graph, 5, &tensor);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    if (!fixture)
        return -1;
    snprintf(fixture->folder, sizeof(fixture->folder), "/tmp/cairn-onnx-file-XXXXXX");
    assert_non_null(mkdtemp(fixture->folder));
    snprintf(fixture->path, sizeof(fixture->path), "%s/model.onnx", fixture->folder);
    write_file(fixture, "weights.bin", weights, sizeof(weights));
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", fixture->folder);
    assert_int_equal(system(command), 0);
    free(fixture);
    return 0;
}

static cn_err open_model(struct fixture *fixture, const struct message *model, size_t size)
{
    write_file(fixture, "model.onnx", model->bytes, size);
    cn_diag_init(&fixture->diag);
    return cn_onnx_file_open(fixture->path, &fixture->diag, &fixture->file);
}

static cn_err open_tensor(struct fixture *fixture, const char *location, const char *offset,
                          const char *length)
{
    struct message graph = {.size = 0}, model;

    put_external(&graph, "w", location, offset, length);
    model = model_message(&graph);
    return open_model(fixture, &model, model.size);
}

static void assert_weights(struct fixture *fixture, const char *name, const float *wanted)
{
    struct cn_text text = {name, strlen(name)};
    struct cn_onnx *onnx;
    float values[6];

    assert_int_equal(cn_onnx_open(fixture->file.data, fixture->file.size, &fixture->diag, &onnx),
                     CN_OK);
    assert_non_null(cn_onnx_initializer_find(onnx, text));
    assert_int_equal(cn_onnx_tensor_floats(cn_onnx_initializer_find(onnx, text), values), CN_OK);
    assert_memory_equal(values, wanted, sizeof(values));
    cn_onnx_close(onnx);
}

static void a_model_and_its_data_become_one(void **state)
{
    static const float more[8] = {0, 0, 9, 8, 7, 6, 5, 4};
    struct fixture *fixture = *state;
    struct message graph = {.size = 0}, model, inside = tensor_message("z", 1, 6);
    char sub[96];

    snprintf(sub, sizeof(sub), "%s/sub", fixture->folder);
    assert_int_equal(mkdir(sub, 0700), 0);
    write_file(fixture, "sub/more.bin", more, sizeof(more));
    put_external(&graph, "w", "weights.bin", NULL, NULL);
    put_bytes(&inside, 9, weights, sizeof(weights));
    put_message(&graph, 5, &inside);
    put_external(&graph, "v", "./sub/more.bin", "8", "24");
    model = model_message(&graph);
    assert_int_equal(open_model(fixture, &model, model.size), CN_OK);
    assert_weights(fixture, "w", weights);
    assert_weights(fixture, "z", weights);
    assert_weights(fixture, "v", more + 2);
    cn_onnx_file_close(&fixture->file);
}

static void a_model_that_is_whole_is_only_mapped(void **state)
{
    struct fixture *fixture = *state;
    struct message graph = {.size = 0}, model, inside = tensor_message("z", 1, 6);

    put_bytes(&inside, 9, weights, sizeof(weights));
    put_message(&graph, 5, &inside);
    model = model_message(&graph);
    assert_int_equal(open_model(fixture, &model, model.size), CN_OK);
    assert_ptr_equal(fixture->file.data, fixture->file.mapping.data);
    assert_int_equal(fixture->file.size, model.size);
    cn_onnx_file_close(&fixture->file);
}

// What training.half(), .bfloat16() and .double() leave of weights, in raw data and as numbers.
static void put_other_floats(struct message *graph)
{
    static const uint16_t halves[6] = {0x3c00, 0xc000, 0x4300, 0, 0x3400, 0xc700};
    static const double doubles[6] = {1, -2, 3.5, 0, 0.25, -7};
    struct message half = tensor_message("half", 10, 6), bfloat = tensor_message("bfloat", 16, 6);
    struct message large = tensor_message("double", 11, 6);

    put_bytes(&half, 9, halves, sizeof(halves));
    for (size_t i = 0; i < 6; i++) {
        uint32_t word;

        memcpy(&word, &weights[i], sizeof(word));
        put_int(&bfloat, 5, word >> 16);
    }
    put_bytes(&large, 10, doubles, sizeof(doubles));
    put_message(graph, 5, &half);
    put_message(graph, 5, &bfloat);
    put_message(graph, 5, &large);
}

static void other_floats_become_float32(void **state)
{
    struct fixture *fixture = *state;
    struct message graph = {.size = 0}, model, node = {.size = 0}, to = {.size = 0};
    struct cn_onnx *onnx;

    put_other_floats(&graph);
    put_text(&to, 1, "to");
    put_int(&to, 3, 10);
    put_int(&to, 20, 2);
    put_text(&node, 1, "half");
    put_text(&node, 2, "cast");
    put_text(&node, 4, "Cast");
    put_message(&node, 5, &to);
    put_message(&graph, 1, &node);
    model = model_message(&graph);
    assert_int_equal(open_model(fixture, &model, model.size), CN_OK);
    assert_weights(fixture, "half", weights);
    assert_weights(fixture, "bfloat", weights);
    assert_weights(fixture, "double", weights);
    assert_int_equal(cn_onnx_open(fixture->file.data, fixture->file.size, &fixture->diag, &onnx),
                     CN_OK);
    assert_int_equal(onnx->nodes[0].attributes[0].i, CN_ONNX_FLOAT);
    assert_int_equal(onnx->nodes[0].attributes[0].type, 2);
    cn_onnx_close(onnx);
    cn_onnx_file_close(&fixture->file);
}

// Subnormal, largest, infinite and no numbers.
static void every_half_keeps_its_value(void **state)
{
    static const uint16_t halves[6] = {0x0001, 0x83ff, 0x7bff, 0x7c00, 0xfc00, 0x0400};
    static const float wanted[6] = {0x1p-24f, -0x1.ff8p-15f, 65504, INFINITY, -INFINITY, 0x1p-14f};
    struct fixture *fixture = *state;
    struct message graph = {.size = 0}, half = tensor_message("half", 10, 6), model;

    put_bytes(&half, 9, halves, sizeof(halves));
    put_message(&graph, 5, &half);
    model = model_message(&graph);
    assert_int_equal(open_model(fixture, &model, model.size), CN_OK);
    assert_weights(fixture, "half", wanted);
    cn_onnx_file_close(&fixture->file);
}

static void a_cut_off_model_of_halves_is_left_to_the_decoder(void **state)
{
    struct fixture *fixture = *state;
    struct message graph = {.size = 0}, model;
    struct cn_onnx *onnx;

    put_other_floats(&graph);
    model = model_message(&graph);
    for (size_t size = 1; size < model.size; size++) {
        assert_int_equal(open_model(fixture, &model, size), CN_OK);
        if (!cn_onnx_open(fixture->file.data, fixture->file.size, &fixture->diag, &onnx))
            cn_onnx_close(onnx);
        cn_onnx_file_close(&fixture->file);
    }
}

static void assert_refused(struct fixture *fixture, const char *location, const char *offset,
                           const char *length, const char *words)
{
    assert_int_not_equal(open_tensor(fixture, location, offset, length), CN_OK);
    assert_int_equal(fixture->diag.count, 1);
    if (!strstr(cn_diag_first(&fixture->diag), words) ||
        !strstr(cn_diag_first(&fixture->diag), "tensor w"))
        fail_msg("'%s' does not say '%s'", cn_diag_first(&fixture->diag), words);
}

static void data_outside_the_folder_is_refused(void **state)
{
    static const char *const names[] = {
        "../weights.bin", "sub/../../x", "/etc/passwd",        "sub/..", "..",
        "weights.bin/",   "link",        "linked/weights.bin", "."};
    struct fixture *fixture = *state;
    char path[160], target[160];

    snprintf(path, sizeof(path), "%s/link", fixture->folder);
    snprintf(target, sizeof(target), "%s/weights.bin", fixture->folder);
    assert_int_equal(symlink(target, path), 0);
    snprintf(path, sizeof(path), "%s/linked", fixture->folder);
    assert_int_equal(symlink(fixture->folder, path), 0);
    snprintf(path, sizeof(path), "%s/sub", fixture->folder);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_refused(fixture, names[i], NULL, NULL, "in the model's folder or below");
}

static void data_that_does_not_fit_is_refused(void **state)
{
    struct fixture *fixture = *state;

    assert_refused(fixture, "missing.bin", NULL, NULL, "missing.bin");
    assert_refused(fixture, NULL, NULL, NULL, "in the model's folder");
    assert_refused(fixture, "", NULL, NULL, "the name is empty");
    assert_refused(fixture, "weights.bin", "1", NULL, "do not fit");
    assert_refused(fixture, "weights.bin", "18446744073709551615", NULL, "do not fit");
    assert_refused(fixture, "weights.bin", "99999999999999999999", NULL, "not a number");
    assert_refused(fixture, "weights.bin", "-4", NULL, "not a number");
    assert_refused(fixture, "weights.bin", "0", "20", "do not fit");
    assert_refused(fixture, "weights.bin", "0", "", "not a number");
}

static void sizes_that_overflow_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct message graph = {.size = 0}, model, tensor = {.size = 0};

    put_text(&tensor, 8, "w");
    put_int(&tensor, 1, INT64_MAX);
    put_int(&tensor, 1, INT64_MAX);
    put_int(&tensor, 2, 1);
    put_entry(&tensor, "location", "weights.bin");
    put_int(&tensor, 14, 1);
    put_message(&graph, 5, &tensor);
    model = model_message(&graph);
    assert_int_not_equal(open_model(fixture, &model, model.size), CN_OK);
    assert_non_null(strstr(cn_diag_first(&fixture->diag), "overflows"));
}

static void a_cut_off_model_is_left_to_the_decoder(void **state)
{
    struct fixture *fixture = *state;
    struct message graph = {.size = 0}, model;
    struct cn_onnx *onnx;

    put_external(&graph, "w", "weights.bin", NULL, NULL);
    model = model_message(&graph);
    for (size_t size = 1; size < model.size; size++) {
        if (open_model(fixture, &model, size))
            continue;
        if (!cn_onnx_open(fixture->file.data, fixture->file.size, &fixture->diag, &onnx))
            cn_onnx_close(onnx);
        cn_onnx_file_close(&fixture->file);
    }
}

static void put_node(struct message *graph, const char *op, const char *const *inputs, size_t count,
                     const char *output)
{
    struct message node = {.size = 0};

    for (size_t i = 0; i < count; i++)
        put_text(&node, 1, inputs[i]);
    put_text(&node, 2, output);
    put_text(&node, 4, op);
    put_message(graph, 1, &node);
}

static void put_vector(struct message *graph, const char *name)
{
    struct message tensor = tensor_message(name, 1, 6);

    put_bytes(&tensor, 9, weights, sizeof(weights));
    put_message(graph, 5, &tensor);
}

// Opens the model and finds its layout as a line of names, statistics with a star.
static struct cn_onnx *open_layout(struct fixture *fixture, const struct message *graph,
                                   char names[256])
{
    struct message model = model_message(graph);
    struct cn_layout layout;
    struct cn_onnx *onnx;
    size_t size = 0;

    assert_int_equal(open_model(fixture, &model, model.size), CN_OK);
    assert_int_equal(cn_onnx_open(fixture->file.data, fixture->file.size, &fixture->diag, &onnx),
                     CN_OK);
    assert_int_equal(cn_onnx_layout(onnx, &fixture->diag, &layout), CN_OK);
    for (size_t i = 0; i < layout.tensor_count; i++)
        size += (size_t)snprintf(names + size, 256 - size, "%s%s ", layout.tensors[i].name,
                                 layout.tensors[i].class == CN_TENSOR_STAT ? "*" : "");
    cn_layout_deinit(&layout);
    return onnx;
}

static void assert_input(const struct cn_onnx *onnx, size_t node, size_t input, const char *name)
{
    const struct cn_text text = onnx->nodes[node].inputs[input];

    if (!cn_text_equal(text, name))
        fail_msg("input %zu is '%.*s', wanted '%s'", input, (int)text.size, text.data, name);
}

// As PyTorch's newer exporter writes a new BatchNormalization.
static void a_tensor_that_is_weight_and_statistic_becomes_two(void **state)
{
    static const char *const inputs[] = {"x", "bn.weight", "bn.bias", "bn.bias", "bn.weight"};
    struct fixture *fixture = *state;
    struct message graph = {.size = 0};
    struct cn_onnx *onnx;
    char names[256];

    put_vector(&graph, "bn.weight");
    put_vector(&graph, "bn.bias");
    put_node(&graph, "BatchNormalization", inputs, 5, "y");
    onnx = open_layout(fixture, &graph, names);
    assert_string_equal(names, "bn.weight bn.running_var* bn.bias bn.running_mean* ");
    assert_input(onnx, 0, 1, "bn.weight");
    assert_input(onnx, 0, 2, "bn.bias");
    assert_input(onnx, 0, 3, "bn.running_mean");
    assert_input(onnx, 0, 4, "bn.running_var");
    cn_onnx_close(onnx);
    assert_weights(fixture, "bn.running_mean", weights);
    assert_weights(fixture, "bn.running_var", weights);
    cn_onnx_file_close(&fixture->file);
}

// By way of an Identity, with a bias of another layer, and with a scale of zeros.
static void every_role_of_a_merged_tensor_is_found(void **state)
{
    static const char *const product[] = {"x", "w", "zeros"}, *const identity[] = {"zeros"};
    static const char *const norm[] = {"h", "zeros", "zeros", "mean", "var"};
    struct fixture *fixture = *state;
    struct message graph = {.size = 0};
    struct cn_onnx *onnx;
    char names[256];

    put_vector(&graph, "w");
    put_vector(&graph, "zeros");
    put_vector(&graph, "var");
    put_node(&graph, "Gemm", product, 3, "h");
    put_node(&graph, "Identity", identity, 1, "mean");
    put_node(&graph, "BatchNormalization", norm, 5, "y");
    onnx = open_layout(fixture, &graph, names);
    assert_string_equal(names, "w zeros zeros.bias zeros.running_mean* var* ");
    assert_input(onnx, 0, 2, "zeros");
    assert_input(onnx, 2, 1, "zeros");
    assert_input(onnx, 2, 2, "zeros.bias");
    assert_input(onnx, 2, 3, "zeros.running_mean");
    assert_input(onnx, 2, 4, "var");
    cn_onnx_close(onnx);
    cn_onnx_file_close(&fixture->file);
}

static void statistics_of_their_own_stay_as_they_are(void **state)
{
    static const char *const norm[] = {"h", "scale", "shift", "mean", "var"};
    struct fixture *fixture = *state;
    struct message graph = {.size = 0};
    char names[256];

    for (size_t i = 1; i < 5; i++)
        put_vector(&graph, norm[i]);
    put_node(&graph, "BatchNormalization", norm, 5, "y");
    put_node(&graph, "BatchNormalization", norm, 5, "z"); // the same module again
    cn_onnx_close(open_layout(fixture, &graph, names));
    assert_ptr_equal(fixture->file.data, fixture->file.mapping.data);
    cn_onnx_file_close(&fixture->file);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_model_and_its_data_become_one),
        TEST(a_model_that_is_whole_is_only_mapped),
        TEST(data_outside_the_folder_is_refused),
        TEST(data_that_does_not_fit_is_refused),
        TEST(sizes_that_overflow_are_refused),
        TEST(a_cut_off_model_is_left_to_the_decoder),
        TEST(other_floats_become_float32),
        TEST(every_half_keeps_its_value),
        TEST(a_cut_off_model_of_halves_is_left_to_the_decoder),
        TEST(a_tensor_that_is_weight_and_statistic_becomes_two),
        TEST(every_role_of_a_merged_tensor_is_found),
        TEST(statistics_of_their_own_stay_as_they_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
