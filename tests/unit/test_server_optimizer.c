// The server's optimizers: steps and state to the bit, as float32 arithmetic of another
// implementation (numpy) gave them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/merge/server_optimizer.h"
#include "tests/support/layouts.h"

#define COUNT 4
#define ROUNDS 3

static const float means[ROUNDS][COUNT] = {
    {0.5f, -0.001f, 0, 2e-5f}, {0.25f, 0.002f, 0, -1e-5f}, {-0.125f, 0, 1e-3f, 4e-5f}};

struct vector {
    enum cn_server_optimizer optimizer;
    double rate;
    uint32_t steps[ROUNDS][COUNT];
    uint32_t rows[2][COUNT]; // after the last round
};

#define MOMENTUM                                                                                   \
    {                                                                                              \
        0x3f0147ae, 0x3a81c2e3, 0x3a83126f, 0x3845f89d                                             \
    }
#define ADAM_MEAN                                                                                  \
    {                                                                                              \
        0x3d4ed917, 0x38cf9e39, 0x38d1b718, 0x369e607e                                             \
    }

static const struct vector vectors[] = {
    {CN_SERVER_FEDAVG,
     1,
     {{0x3f000000, 0xba83126f, 0x00000000, 0x37a7c5ac},
      {0x3e800000, 0x3b03126f, 0x00000000, 0xb727c5ac},
      {0xbe000000, 0x00000000, 0x3a83126f, 0x3827c5ac}},
     {{0}}},
    {CN_SERVER_FEDAVGM,
     1,
     {{0x3f000000, 0xba83126f, 0x00000000, 0x37a7c5ac},
      {0x3f333333, 0x3a902de0, 0x00000000, 0x370637bc},
      {0x3f0147ae, 0x3a81c2e3, 0x3a83126f, 0x3845f89d}},
     {MOMENTUM}},
    {CN_SERVER_NESTEROV,
     0.7,
     {{0x3f2a3d70, 0xbaae5365, 0x00000000, 0x37df2310},
      {0x3f1db22d, 0x3b092ab6, 0x00000000, 0xb603888e},
      {0x3e6c2f83, 0x3a237fcc, 0x3aae5365, 0x3872298d}},
     {MOMENTUM}},
    {CN_SERVER_FEDADAGRAD,
     0.1,
     {{0x3dcc640c, 0xbd29a970, 0x00000000, 0x3a830f13},
      {0x3d36d9ef, 0x3d6d7c02, 0x00000000, 0xba030e3d},
      {0xbcb273c9, 0x00000000, 0x3d29a970, 0x3b0300d6}},
     {{0x3ea80022, 0x36c9539d, 0x360637be, 0x35867fe6}}},
    {CN_SERVER_FEDADAM,
     0.1,
     {{0x3dc8bed1, 0xbba3d70a, 0x00000000, 0x38d23ded},
      {0x3dfce665, 0x3bb2e468, 0x00000000, 0x38289d72},
      {0x3db2ef4f, 0x3ba16919, 0x3ba4a7ae, 0x397953ef}},
     {ADAM_MEAN, {0x3b536eff, 0x3588dca1, 0x358392d3, 0x35823bf1}}},
    {CN_SERVER_FEDYOGI,
     0.01,
     {{0x3c209892, 0xba03126e, 0x00000000, 0x3727c5b7},
      {0x3c4985df, 0x3a0ec3fb, 0x00000000, 0x368637c8},
      {0x3c0df11b, 0x3a007d2e, 0x3a03126e, 0x37c5f8e1}},
     {ADAM_MEAN, {0x3b571b05, 0x358b9622, 0x358637be, 0x35863705}}},
};

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

static void steps_and_state_have_the_bits_of_the_vectors(void **state)
{
    struct cn_layout layout = cn_test_layout(tensors, 2);
    (void)state;
    for (size_t v = 0; v < sizeof(vectors) / sizeof(vectors[0]); v++) {
        const struct cn_server server = server_of(vectors[v].optimizer, vectors[v].rate);
        float mean[2 * COUNT], rows[2][2 * COUNT];
        cn_server_begin(&server, &layout, rows[0]);
        for (size_t round = 0; round < ROUNDS; round++) {
            memcpy(mean, means[round], sizeof(means[round]));
            memcpy(mean + COUNT, means[round], sizeof(means[round]));
            cn_server_step(&server, &layout, mean, rows[0]);
            assert_memory_equal(mean, vectors[v].steps[round], sizeof(means[round]));
            assert_memory_equal(mean + COUNT, means[round], sizeof(means[round]));
        }
        for (size_t row = 0; row < cn_server_rows(server.optimizer); row++)
            assert_memory_equal(rows[row], vectors[v].rows[row], sizeof(means[0]));
    }
    cn_test_layout_free(&layout);
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
