// The server's optimizers: steps and state to the bit, as float32 arithmetic of another
// implementation (numpy) gave them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/merge/server_optimizer.h"
#include "tests/support/layouts.h"

#define COUNT 4
#define ROUNDS 3

static struct cn_server server_of(enum cn_server_optimizer optimizer, double rate)
{
    return (struct cn_server){.optimizer = optimizer,
                              .learning_rate = rate,
                              .momentum = 0.9,
                              .beta1 = 0.9,
                              .beta2 = 0.99,
                              .epsilon = 1e-3};
}

// A parameter and, after it, a statistic of the same values.
static const struct cn_test_tensor tensors[] = {{COUNT, CN_TENSOR_PARAM}, {COUNT, CN_TENSOR_STAT}};

// What was read of the vectors so far, and the optimizer under test.
struct reader {
    struct cn_layout layout;
    struct cn_server server;
    float means[ROUNDS][COUNT], rows[2][2 * COUNT];
    size_t mean_count, round, row, checks;
};

// Reads COUNT floats, by their bits.
static void read_bits(char **rest, float values[COUNT])
{
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t bits = (uint32_t)strtoul(strtok_r(NULL, " \n", rest), NULL, 16);
        memcpy(&values[i], &bits, sizeof(bits));
    }
}

static void begin_optimizer(struct reader *reader, char **rest)
{
    static const char *const names[] = {"fedavg",     "fedavgm", "nesterov",
                                        "fedadagrad", "fedadam", "fedyogi"};
    static const enum cn_server_optimizer optimizers[] = {CN_SERVER_FEDAVG,   CN_SERVER_FEDAVGM,
                                                          CN_SERVER_NESTEROV, CN_SERVER_FEDADAGRAD,
                                                          CN_SERVER_FEDADAM,  CN_SERVER_FEDYOGI};
    const char *name = strtok_r(NULL, " ", rest);
    size_t i = 0;
    while (i < 6 && strcmp(names[i], name) != 0)
        i++;
    assert_true(i < 6);
    reader->server = server_of(optimizers[i], strtod(strtok_r(NULL, " \n", rest), NULL));
    reader->round = reader->row = 0;
    cn_server_begin(&reader->server, &reader->layout, reader->rows[0]);
}

// Takes the step of the next round. The statistic takes the mean.
static void check_step(struct reader *reader, const float expected[COUNT])
{
    const float *given = reader->means[reader->round];
    float mean[2 * COUNT];
    assert_true(reader->round++ < reader->mean_count);
    memcpy(mean, given, sizeof(reader->means[0]));
    memcpy(mean + COUNT, given, sizeof(reader->means[0]));
    cn_server_step(&reader->server, &reader->layout, mean, reader->rows[0]);
    assert_memory_equal(mean, expected, sizeof(reader->means[0]));
    assert_memory_equal(mean + COUNT, given, sizeof(reader->means[0]));
    reader->checks++;
}

static void take_line(struct reader *reader, char *line)
{
    float values[COUNT];
    char *rest;
    const char *word = strtok_r(line, " ", &rest);
    if (strcmp(word, "optimizer") == 0) {
        begin_optimizer(reader, &rest);
        return;
    }
    read_bits(&rest, values);
    if (strcmp(word, "mean") == 0) {
        assert_true(reader->mean_count < ROUNDS);
        memcpy(reader->means[reader->mean_count++], values, sizeof(values));
    } else if (strcmp(word, "step") == 0) {
        check_step(reader, values);
    } else {
        assert_string_equal(word, "row");
        assert_true(reader->row < cn_server_rows(reader->server.optimizer));
        assert_memory_equal(reader->rows[reader->row++], values, sizeof(values));
        reader->checks++;
    }
}

// tests/peers/server_optimizer.py computes the same file.
static void steps_and_state_have_the_bits_of_the_vectors(void **state)
{
    struct reader reader = {.layout = cn_test_layout(tensors, 2)};
    char line[256];
    FILE *file = fopen(CAIRN_TEST_DATA "/server_optimizer/vectors.txt", "r");
    (void)state;
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        if (line[0] != '#')
            take_line(&reader, line);
    fclose(file);
    assert_int_equal(reader.checks, 6 * ROUNDS + 7);
    cn_test_layout_free(&reader.layout);
}

static void without_momentum_the_step_is_the_mean(void **state)
{
    struct cn_layout layout = cn_test_layout(tensors, 2);
    struct cn_server server = server_of(CN_SERVER_FEDAVGM, 1);
    float mean[2 * COUNT] = {1, -2, 3e-9f, 0, 5, 6, 7, 8}, expected[2 * COUNT], row[2 * COUNT];
    (void)state;
    server.momentum = 0;
    memcpy(expected, mean, sizeof(mean));
    cn_server_begin(&server, &layout, row);
    for (int round = 0; round < 2; round++) {
        cn_server_step(&server, &layout, mean, row);
        assert_memory_equal(mean, expected, sizeof(mean));
    }
    cn_test_layout_free(&layout);
}

static void a_step_is_no_larger_than_a_value_of_an_update(void **state)
{
    struct cn_layout layout = cn_test_layout(tensors, 2);
    const struct cn_server server = server_of(CN_SERVER_NESTEROV, 1000);
    float mean[2 * COUNT] = {16, -16, 1e-3f, 0, 5, 6, 7, 8}, row[2 * COUNT];
    const float expected[2 * COUNT] = {16, -16, 1.9f, 0, 5, 6, 7, 8};
    (void)state;
    cn_server_begin(&server, &layout, row);
    cn_server_step(&server, &layout, mean, row);
    for (size_t i = 0; i < 2 * COUNT; i++)
        assert_float_equal(mean[i], expected[i], 1e-5);
    cn_test_layout_free(&layout);
}

static void an_optimizer_has_a_rate_of_its_own(void **state)
{
    const struct cn_server momentum = server_of(CN_SERVER_FEDAVGM, 0),
                           adam = server_of(CN_SERVER_FEDADAM, 0),
                           plain = server_of(CN_SERVER_FEDAVG, 0);
    (void)state;
    assert_true((float)cn_server_rate(&plain) == 1);
    assert_true((float)cn_server_rate(&momentum) == 0.1f);
    assert_true((float)cn_server_rate(&adam) == 0.03f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_and_state_have_the_bits_of_the_vectors),
        cmocka_unit_test(without_momentum_the_step_is_the_mean),
        cmocka_unit_test(a_step_is_no_larger_than_a_value_of_an_update),
        cmocka_unit_test(an_optimizer_has_a_rate_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
