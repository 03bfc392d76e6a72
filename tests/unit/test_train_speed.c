// What "cairn-node bench" and the self-test time: every input of a model has samples that it takes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/command/train_speed.h"
#include "tests/unit/onnx_message.h"

#define BATCH 3

// A value [N, 2]; whole numbers, or of a type that the reader finds.
static void put_tokens(struct message *graph, uint32_t field, const char *name, bool typed)
{
    struct message value = {.size = 0}, type = {.size = 0}, tensor = {.size = 0};
    struct message shape = {.size = 0}, dim = {.size = 0};

    put_text(&dim, 2, "N");
    put_message(&shape, 1, &dim);
    dim.size = 0;
    put_int(&dim, 1, 2);
    put_message(&shape, 1, &dim);
    put_int(&tensor, 1, typed ? 7 : 1);
    if (typed)
        put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&value, 1, name);
    put_message(&value, 2, &type);
    put_message(graph, field, &value);
}

// Makes a model that looks up two inputs of tokens, x and t, each in a table of its own with rows
// of 4 values, and adds the results.
static struct message two_tables(int64_t rows_of_x, int64_t rows_of_t)
{
    static const char *const inputs[] = {"x", "t"}, *const tables[] = {"a", "b"};
    static const char *const found[] = {"u", "v"};
    struct message graph = {.size = 0}, sum = {.size = 0};
    float values[64] = {0};

    for (size_t i = 0; i < 2; i++) {
        struct message table = {.size = 0}, node = {.size = 0};
        int64_t rows = i ? rows_of_t : rows_of_x;

        put_int(&table, 1, rows);
        put_int(&table, 1, 4);
        put_int(&table, 2, 1);
        put_text(&table, 8, tables[i]);
        put_bytes(&table, 9, values, (size_t)rows * 4 * sizeof(float));
        put_message(&graph, 5, &table);
        put_text(&node, 1, tables[i]);
        put_text(&node, 1, inputs[i]);
        put_text(&node, 2, found[i]);
        put_text(&node, 4, "Gather");
        put_message(&graph, 1, &node);
        put_text(&sum, 1, found[i]);
        put_tokens(&graph, 11, inputs[i], true);
    }
    put_text(&sum, 2, "y");
    put_text(&sum, 4, "Add");
    put_message(&graph, 1, &sum);
    put_tokens(&graph, 12, "y", false);
    put_text(&graph, 2, "net");
    return model_message(&graph);
}

static void a_model_of_two_tables_is_timed(int64_t rows_of_x, int64_t rows_of_t)
{
    struct cn_trainer_config config = {.compute = &cn_compute_cpu,
                                       .threads = 1,
                                       .batch = BATCH,
                                       .loss = CN_LOSS_MSE,
                                       .learning_rate = 1e-6f};
    struct message model = two_tables(rows_of_x, rows_of_t);
    struct cn_onnx_file file = {.data = model.bytes, .size = model.size};
    struct cn_train_speed speed;
    struct cn_diag diag;

    cn_diag_init(&diag);
    if (cn_train_speed(&config, &file, 1000, &diag, &speed))
        fail_msg("%zu problems: %s", diag.count, cn_diag_first(&diag));
    assert_true(speed.samples_per_s > 0);
}

// The output has 8 values, so 0 to 7 are tried first.
static void a_model_with_several_inputs_of_tokens_is_timed(void **state)
{
    (void)state;
    a_model_of_two_tables_is_timed(8, 8);
}

static void a_table_that_is_smaller_than_the_output_is_timed(void **state)
{
    (void)state;
    a_model_of_two_tables_is_timed(8, 2);
    a_model_of_two_tables_is_timed(1, 8);
}

static void each_input_gets_values_of_its_kind(void **state)
{
    struct cn_sample_shape shape = {.loss = CN_LOSS_CROSS_ENTROPY,
                                    .inputs = {{.rank = 1, .dims = {4}},
                                               {.rank = 2, .dims = {2, 3}, .integers = true},
                                               {.rank = 1, .dims = {2}}},
                                    .input_count = 3,
                                    .outputs = 7,
                                    .rows = 2};
    struct cn_batch batch;
    size_t different[3] = {0};

    (void)state;
    assert_int_equal(cn_batch_init(&shape, BATCH, &batch), CN_OK);
    cn_train_speed_fill(&shape, BATCH, 5, &batch);
    assert_int_equal(batch.count, BATCH);
    for (size_t i = 0; i < (size_t)BATCH * 12; i++) {
        size_t input = i % 12 < 4 ? 0 : i % 12 < 10 ? 1 : 2;
        float value = batch.inputs[i];
        int32_t token;

        memcpy(&token, &value, sizeof(token));
        different[input] += token != 0;
        if (input == 1)
            assert_in_range(token, 0, 4);
        else
            assert_true(value >= 0 && value < 1 && (token == 0 || value > 1e-4f));
    }
    for (size_t i = 0; i < (size_t)BATCH * 2; i++)
        assert_in_range(batch.labels[i], 0, 6);
    for (size_t i = 0; i < 3; i++)
        assert_true(different[i] > 2);
    cn_batch_deinit(&batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_with_several_inputs_of_tokens_is_timed),
        cmocka_unit_test(a_table_that_is_smaller_than_the_output_is_timed),
        cmocka_unit_test(each_input_gets_values_of_its_kind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
