// The delta codec: what is encoded comes back as the encoder said, and nothing else is accepted.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/random.h"
#include "runtime/port/crypto.h"
#include "runtime/update/update.h"
#include "tests/support/layouts.h"

#define SIZE_LIMIT ((size_t)64 << 20)

static const struct cn_test_tensor tensors[] = {
    {5000, CN_TENSOR_PARAM}, {64, CN_TENSOR_PARAM},  {64, CN_TENSOR_STAT}, {1, CN_TENSOR_PARAM},
    {4097, CN_TENSOR_PARAM}, {3000, CN_TENSOR_STAT}, {0, CN_TENSOR_PARAM}, {1024, CN_TENSOR_PARAM},
};

static const struct cn_update_rule rules[] = {
    {.mode = CN_UPDATE_RAW32},
    {.mode = CN_UPDATE_Q8},
    {.mode = CN_UPDATE_TOPK, .density = 0.01, .value_bits = 0},
    {.mode = CN_UPDATE_TOPK, .density = 0.05, .value_bits = 2},
    {.mode = CN_UPDATE_TOPK, .density = 0.1, .value_bits = 8},
    {.mode = CN_UPDATE_TOPK, .density = 1.0, .value_bits = 3},
    {.mode = CN_UPDATE_TOPK, .density = 1e-9, .value_bits = 1},
    {.mode = CN_UPDATE_TOPK, .density = 0.0019, .value_bits = 2}, // larger blocks
    {.mode = CN_UPDATE_BF16},
    {.mode = CN_UPDATE_Q4},
    {.mode = CN_UPDATE_SIGN},
    {.mode = CN_UPDATE_SKIP},
};
#define RULE_COUNT (sizeof(rules) / sizeof(rules[0]))

struct fixture {
    struct cn_layout layout;
    struct cn_update_header header;
    float *values, *decoded, *received;
    size_t visited;
    struct cn_buffer frame;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    f->layout = cn_test_layout(tensors, sizeof(tensors) / sizeof(tensors[0]));
    f->values = calloc(f->layout.total, sizeof(float));
    f->decoded = calloc(f->layout.total, sizeof(float));
    f->received = calloc(f->layout.total, sizeof(float));
    cn_buffer_init(&f->frame, SIZE_LIMIT);
    f->header = (struct cn_update_header){
        .run = 7, .round = 3, .group = "north", .weight = 1200, .rule = rules[3]};
    memset(f->header.base, 0xab, sizeof(f->header.base));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    cn_buffer_deinit(&f->frame);
    cn_test_layout_free(&f->layout);
    free(f->values);
    free(f->decoded);
    free(f->received);
    free(f);
    return 0;
}

static cn_err receive(void *context, size_t offset, const float *values, size_t count)
{
    struct fixture *f = context;

    assert_int_equal(offset, f->visited);
    memcpy(f->received + offset, values, count * sizeof(float));
    f->visited += count;
    return CN_OK;
}

static void encode(struct fixture *f)
{
    f->frame.size = 0;
    assert_int_equal(cn_update_encode(&f->header, &f->layout, f->values, f->decoded, &f->frame),
                     CN_OK);
}

static cn_err check(const struct fixture *f)
{
    struct cn_update_header header;

    return cn_update_check(f->frame.data, f->frame.size, &f->layout, NULL, &header);
}

// Encodes f->values under each rule; what comes back is what the encoder said, and is stable.
static void expect_round_trips(struct fixture *f)
{
    for (size_t r = 0; r < RULE_COUNT; r++) {
        struct cn_update_header header;
        struct cn_diag diag;

        cn_diag_init(&diag);
        f->header.rule = rules[r];
        encode(f);
        assert_true(f->frame.size <= cn_update_size_max(&f->layout));
        if (cn_update_check(f->frame.data, f->frame.size, &f->layout, &diag, &header))
            fail_msg("rule %zu: %s", r, cn_diag_first(&diag));
        assert_int_equal(header.run, 7);
        assert_int_equal(header.round, 3);
        assert_int_equal(header.weight, 1200);
        assert_string_equal(header.group, "north");
        assert_memory_equal(header.base, f->header.base, CN_DIGEST_SIZE);
        assert_int_equal(header.rule.mode, rules[r].mode);
        assert_true(header.rule.density == rules[r].density);
        assert_int_equal(header.rule.value_bits, rules[r].value_bits);
        f->visited = 0;
        assert_int_equal(cn_update_decode(f->frame.data, f->frame.size, &f->layout, receive, f),
                         CN_OK);
        assert_int_equal(f->visited, f->layout.total);
        assert_memory_equal(f->received, f->decoded, f->layout.total * sizeof(float));
    }
}

static void a_bell_curve_comes_back_as_the_encoder_said(void **state)
{
    struct fixture *f = *state;

    for (uint64_t seed = 0; seed < 8; seed++) {
        cn_test_fill(f->values, f->layout.total, seed, 0.01f);
        expect_round_trips(f);
    }
}

static void long_tails_come_back_as_the_encoder_said(void **state)
{
    struct fixture *f = *state;

    for (uint64_t seed = 0; seed < 8; seed++) {
        cn_test_fill_tailed(f->values, f->layout.total, seed, 0.3f);
        expect_round_trips(f);
    }
}

static void any_bits_within_the_limits_come_back_as_the_encoder_said(void **state)
{
    struct fixture *f = *state;

    for (uint64_t seed = 0; seed < 8; seed++) {
        for (size_t i = 0; i < f->layout.total; i++) {
            uint32_t numbers[4];
            uint32_t bits;

            cn_random_block(seed, 1, i, numbers);
            bits = (numbers[0] & 0x80000000u) | numbers[1] % 0x41800001u; // up to 16
            memcpy(&f->values[i], &bits, sizeof(bits));
        }
        expect_round_trips(f);
    }
}

static void zeros_stay_zeros(void **state)
{
    struct fixture *f = *state;

    expect_round_trips(f);
    for (size_t i = 0; i < f->layout.total; i++)
        assert_true(f->decoded[i] == 0);
}

static void denormals_count_as_zeros(void **state)
{
    struct fixture *f = *state;

    for (size_t i = 0; i < f->layout.total; i++)
        f->values[i] = i % 2 ? 1e-40f : -1e-42f;
    expect_round_trips(f);
    for (size_t i = 0; i < f->layout.total; i++)
        assert_true(f->decoded[i] == 0);
}

static void equal_values_are_taken_in_the_order_of_their_index(void **state)
{
    struct fixture *f = *state;
    size_t sent = 0;

    for (size_t i = 0; i < f->layout.total; i++)
        f->values[i] = -0.125f;
    expect_round_trips(f);
    f->header.rule = (struct cn_update_rule){.mode = CN_UPDATE_TOPK, .density = 0.05};
    encode(f);
    for (size_t i = 0; i < 5000; i++)
        sent += f->decoded[i] != 0;
    // 5 % of 5000 + 4097 + 1024, all from the first tensor; the others get a tenth of their share.
    assert_int_equal(sent, 507);
    for (size_t i = 0; i < 507; i++)
        assert_true(f->decoded[i] == -0.125f);
}

static void one_huge_value_among_zeros_is_sent(void **state)
{
    struct fixture *f = *state;

    f->values[4321] = -16.0f;
    expect_round_trips(f);
    for (size_t r = 0; r < RULE_COUNT; r++) {
        f->header.rule = rules[r];
        if (rules[r].mode == CN_UPDATE_SIGN || rules[r].mode == CN_UPDATE_SKIP)
            continue; // it counts in the mean of its group, or waits
        encode(f);
        assert_true(f->decoded[4321] >= -16.0f && f->decoded[4321] < -15.9f);
    }
}

static void a_poor_tensor_gets_a_tenth_of_its_share(void **state)
{
    struct fixture *f = *state;
    const struct cn_tensor_info *poor = &f->layout.tensors[4];
    size_t sent = 0;

    cn_test_fill(f->values, f->layout.total, 1, 0.1f);
    for (size_t i = 0; i < poor->count; i++)
        f->values[poor->offset + i] *= 1e-4f;
    f->header.rule = rules[3];
    encode(f);
    for (size_t i = 0; i < poor->count; i++)
        sent += f->decoded[poor->offset + i] != 0;
    assert_int_equal(sent, 21); // a tenth of 205, rounded up
    assert_int_equal(check(f), CN_OK);
}

static size_t count_sent(const struct fixture *f, size_t t)
{
    const struct cn_tensor_info *tensor = &f->layout.tensors[t];
    size_t sent = 0;

    for (size_t i = 0; i < tensor->count; i++)
        sent += f->decoded[tensor->offset + i] != 0;
    return sent;
}

static void a_tensor_with_a_density_of_its_own_sends_that_share(void **state)
{
    struct fixture *f = *state;

    cn_test_fill(f->values, f->layout.total, 3, 0.1f);
    f->header.rule = (struct cn_update_rule){.mode = CN_UPDATE_TOPK, .density = 0.01};
    f->layout.tensors[4].density = 0.2;
    encode(f);
    assert_int_equal(count_sent(f, 4), 820); // 20 % of 4097
    // 1 % of the others, whose threshold the first no longer moves.
    assert_int_equal(count_sent(f, 0) + count_sent(f, 7), 61);
    assert_int_equal(check(f), CN_OK);
}

// With a priority a tensor sends what it would send if its values were so much larger.
static void a_priority_makes_the_values_of_a_tensor_count_as_larger(void **state)
{
    struct fixture *f = *state;
    const struct cn_tensor_info *dear = &f->layout.tensors[4];
    size_t wanted[3];

    for (int priority = -3; priority <= 3; priority++) {
        cn_test_fill(f->values, f->layout.total, 4, 0.1f);
        for (size_t i = 0; i < dear->count; i++)
            f->values[dear->offset + i] = ldexpf(f->values[dear->offset + i], priority);
        f->header.rule = rules[3];
        f->layout.tensors[4].priority = 0;
        encode(f);
        wanted[0] = count_sent(f, 0), wanted[1] = count_sent(f, 4), wanted[2] = count_sent(f, 7);
        cn_test_fill(f->values, f->layout.total, 4, 0.1f);
        f->layout.tensors[4].priority = priority;
        encode(f);
        assert_int_equal(count_sent(f, 0), wanted[0]);
        assert_int_equal(count_sent(f, 4), wanted[1]);
        assert_int_equal(count_sent(f, 7), wanted[2]);
    }
}

static void below_a_density_of_two_in_a_thousand_blocks_are_larger(void **state)
{
    static const struct cn_test_tensor one = {40000, CN_TENSOR_PARAM};
    static const struct {
        double density;
        size_t blocks;
    } cases[] = {{0.002, 10}, {0.0019, 3}}; // of 4096, of 16384
    struct cn_layout layout = cn_test_layout(&one, 1);
    float *zeros = calloc(2 * one.count, sizeof(float));

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct cn_update_header header = {
            .round = 1, .weight = 1, .rule = {CN_UPDATE_TOPK, cases[i].density, 2}};
        struct cn_buffer frame;

        cn_buffer_init(&frame, SIZE_LIMIT);
        assert_int_equal(cn_update_encode(&header, &layout, zeros, zeros + one.count, &frame),
                         CN_OK);
        // Header and digest; of a block without values its head and checksum.
        assert_int_equal(frame.size, 80 + 32 + 5 * cases[i].blocks);
        cn_buffer_deinit(&frame);
    }
    free(zeros);
    cn_test_layout_free(&layout);
}

static void the_largest_values_are_the_ones_sent(void **state)
{
    struct fixture *f = *state;
    float least_sent = 17;
    float largest_left = 0;
    size_t sent = 0;

    cn_test_fill(f->values, f->layout.total, 2, 0.1f);
    f->header.rule = rules[3];
    encode(f);
    for (size_t i = 0; i < f->layout.total; i++) {
        float magnitude = f->values[i] < 0 ? -f->values[i] : f->values[i];

        if (i >= 5000 && i < 5129)
            continue; // dense
        if (i >= 5129 + 4097 && i < 5129 + 4097 + 3000)
            continue; // statistics are dense
        sent += f->decoded[i] != 0;
        if (f->decoded[i] != 0 && magnitude < least_sent)
            least_sent = magnitude;
        if (f->decoded[i] == 0 && magnitude > largest_left)
            largest_left = magnitude;
    }
    assert_int_equal(sent, 507);
    assert_true(largest_left < least_sent * (1 + 1.0f / 256)); // the width of a code
}

static void dense_tensors_are_close_after_q8(void **state)
{
    struct fixture *f = *state;

    cn_test_fill(f->values, f->layout.total, 3, 0.1f);
    f->header.rule = rules[1];
    encode(f);
    for (size_t i = 0; i < f->layout.total; i++) {
        float error = f->decoded[i] - f->values[i];

        // Half a step of the largest magnitude there can be, 0.6.
        assert_true(error < 0.0024f && error > -0.0024f);
    }
}

static void encoding_a_decoded_q8_frame_gives_the_same_frame(void **state)
{
    struct fixture *f = *state;
    struct cn_buffer again;

    cn_buffer_init(&again, SIZE_LIMIT);
    cn_test_fill_tailed(f->values, f->layout.total, 4, 0.2f);
    f->header.rule = rules[1];
    encode(f);
    assert_int_equal(cn_update_encode(&f->header, &f->layout, f->decoded, f->received, &again),
                     CN_OK);
    assert_int_equal(again.size, f->frame.size);
    assert_memory_equal(again.data, f->frame.data, again.size);
    cn_buffer_deinit(&again);
}

static void applying_a_frame_adds_what_was_decoded(void **state)
{
    struct fixture *f = *state;
    float *weights = calloc(f->layout.total, sizeof(float));

    cn_test_fill(f->values, f->layout.total, 5, 0.1f);
    encode(f);
    cn_test_fill(weights, f->layout.total, 6, 1.0f);
    memcpy(f->received, weights, f->layout.total * sizeof(float));
    assert_int_equal(cn_update_apply(f->frame.data, f->frame.size, &f->layout, weights), CN_OK);
    for (size_t i = 0; i < f->layout.total; i++)
        assert_true(weights[i] == f->received[i] + f->decoded[i]);
    free(weights);
}

// What came of a rounded delta is exactly what its snapshot decodes to, and that of itself.
static void a_rounded_version_is_its_own_snapshot(void **state)
{
    struct fixture *f = *state;
    size_t size = f->layout.total * sizeof(float);
    float *board = calloc(f->layout.total, sizeof(float));
    struct cn_buffer snapshot, again;

    cn_buffer_init(&snapshot, SIZE_LIMIT);
    cn_buffer_init(&again, SIZE_LIMIT);
    cn_test_fill_tailed(f->received, f->layout.total, 12, 0.3f);
    memcpy(board, f->received, size);
    cn_test_fill(f->values, f->layout.total, 13, 0.01f);
    f->header.rounded = true;
    encode(f);
    assert_int_equal(check(f), CN_OK);
    assert_int_equal(cn_update_apply(f->frame.data, f->frame.size, &f->layout, board), CN_OK);
    for (size_t i = 0; i < f->layout.total; i++) // small tensors and statistics are not rounded
        if ((i >= 5000 && i < 5129) || (i >= 9226 && i < 12226))
            assert_true(board[i] == f->received[i] + f->decoded[i]);

    memcpy(f->received, board, size);
    assert_int_equal(cn_update_snapshot(1, 4, f->header.base, &f->layout, board, &snapshot), CN_OK);
    assert_memory_equal(board, f->received, size);
    memset(board, 0xff, size); // a board without a version
    assert_int_equal(cn_update_apply(snapshot.data, snapshot.size, &f->layout, board), CN_OK);
    assert_memory_equal(board, f->received, size);
    assert_int_equal(cn_update_snapshot(1, 4, f->header.base, &f->layout, board, &again), CN_OK);
    assert_int_equal(again.size, snapshot.size);
    assert_memory_equal(again.data, snapshot.data, again.size);
    assert_true(snapshot.size < size / 2);
    cn_buffer_deinit(&again);
    cn_buffer_deinit(&snapshot);
    free(board);
}

static void weights_beyond_sixteen_have_no_snapshot(void **state)
{
    struct fixture *f = *state;

    f->values[5070] = 16.5f; // a running variance
    f->frame.size = 0;
    assert_int_equal(cn_update_snapshot(1, 4, f->header.base, &f->layout, f->values, &f->frame),
                     CN_ERANGE);
    assert_true(f->values[5070] == 16.5f && f->frame.size == 0);
}

static void a_value_that_cannot_travel_leaves_the_buffer_as_it_was(void **state)
{
    static const uint32_t bad[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff, 0x41800001};
    struct fixture *f = *state;

    assert_int_equal(cn_buffer_append(&f->frame, "before", 6), CN_OK);
    for (size_t b = 0; b < sizeof(bad) / sizeof(bad[0]); b++) {
        cn_err expected = bad[b] == 0x41800001 ? CN_ERANGE : CN_EDIVERGED;

        for (size_t r = 0; r < RULE_COUNT; r++) {
            f->header.rule = rules[r];
            memcpy(&f->values[5010], &bad[b], sizeof(float));
            assert_int_equal(
                cn_update_encode(&f->header, &f->layout, f->values, f->decoded, &f->frame),
                expected);
            assert_int_equal(f->frame.size, 6);
        }
    }
}

static void a_rule_or_weight_that_no_frame_can_hold_is_refused(void **state)
{
    struct fixture *f = *state;
    const struct cn_update_header good = f->header;
    static const uint64_t weights[] = {0, CN_UPDATE_WEIGHT_MAX + 1ull, UINT64_MAX};
    static const double densities[] = {0, -1, 1.001, 0.0 / 0.0};

    for (size_t i = 0; i < 3; i++) {
        f->header.weight = weights[i];
        assert_int_equal(cn_update_encode(&f->header, &f->layout, f->values, f->decoded, &f->frame),
                         CN_ERANGE);
    }
    f->header = good;
    for (size_t i = 0; i < 4; i++) {
        f->header.rule.density = densities[i];
        assert_int_equal(cn_update_encode(&f->header, &f->layout, f->values, f->decoded, &f->frame),
                         CN_EINVAL);
    }
    f->header = good;
    f->header.rule.value_bits = 9;
    assert_int_equal(cn_update_encode(&f->header, &f->layout, f->values, f->decoded, &f->frame),
                     CN_EINVAL);
    assert_int_equal(f->frame.size, 0);
}

static void statistics_that_are_left_out_do_not_change(void **state)
{
    struct fixture *f = *state;
    size_t whole;

    cn_test_fill(f->values, f->layout.total, 12, 0.1f);
    for (size_t r = 0; r < RULE_COUNT; r++) {
        f->header.rule = rules[r];
        f->header.leave_statistics = false;
        encode(f);
        whole = f->frame.size;
        f->header.leave_statistics = true;
        encode(f);
        assert_true(f->frame.size < whole || rules[r].mode == CN_UPDATE_SKIP);
        assert_int_equal(check(f), CN_OK);
        for (size_t t = 0; t < f->layout.tensor_count; t++) {
            const struct cn_tensor_info *tensor = &f->layout.tensors[t];

            for (size_t i = 0; tensor->class == CN_TENSOR_STAT && i < tensor->count; i++)
                assert_true(f->decoded[tensor->offset + i] == 0);
        }
    }
}

static void each_dense_mode_is_as_close_as_its_bits_allow(void **state)
{
    static const struct {
        enum cn_update_mode mode;
        double error; // of the energy
    } modes[] = {{CN_UPDATE_RAW32, 0},  {CN_UPDATE_BF16, 1e-5}, {CN_UPDATE_Q8, 1e-4},
                 {CN_UPDATE_Q4, 0.025}, {CN_UPDATE_SIGN, 0.45}, {CN_UPDATE_SKIP, 1}};
    struct fixture *f = *state;

    cn_test_fill(f->values, f->layout.total, 13, 0.1f);
    for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
        double energy = 0;
        double error = 0;

        f->header.rule = (struct cn_update_rule){.mode = modes[m].mode};
        encode(f);
        for (size_t i = 0; i < f->layout.total; i++) {
            double left = (double)f->values[i] - (double)f->decoded[i];

            energy += (double)f->values[i] * (double)f->values[i];
            error += left * left;
        }
        assert_true(error <= modes[m].error * energy);
        assert_true(error >= 0.2 * modes[m].error * energy); // the bound is one
    }
}

static void a_frame_cut_short_or_longer_is_refused(void **state)
{
    struct fixture *f = *state;
    size_t whole;

    cn_test_fill(f->values, f->layout.total, 9, 0.1f);
    encode(f);
    whole = f->frame.size;
    for (size_t size = 0; size < whole; size++) {
        uint8_t *exact = malloc(size + 1);
        struct cn_update_header header;

        memcpy(exact, f->frame.data, size);
        assert_int_not_equal(cn_update_check(exact, size, &f->layout, NULL, &header), CN_OK);
        free(exact);
    }
    assert_int_equal(cn_buffer_append(&f->frame, "\0", 1), CN_OK);
    assert_int_not_equal(check(f), CN_OK);
}

static void a_flipped_bit_is_found(void **state)
{
    struct fixture *f = *state;

    cn_test_fill(f->values, f->layout.total, 10, 0.1f);
    f->header.rule = rules[2];
    encode(f);
    for (size_t bit = 0; bit < 8 * f->frame.size; bit += bit < 8000 ? 1 : 31) {
        f->frame.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(check(f), CN_OK);
        f->frame.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(check(f), CN_OK);
}

// Makes the digest fit again, as a hostile sender would.
static void seal(struct fixture *f)
{
    cn_crypto_digest(f->frame.data, f->frame.size - CN_DIGEST_SIZE,
                     f->frame.data + f->frame.size - CN_DIGEST_SIZE);
}

static void a_sealed_frame_with_impossible_numbers_is_refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        size_t offset;
        uint8_t value;
    } lies[] = {
        {7, '1'},   // format
        {8, 6},     // mode
        {8, 8},     // mode
        {8, 4},     // another mode
        {9, 9},     // value bits
        {10, 0},    // no group: its name is read as a block
        {10, 64},   // a name too long
        {11, 8},    // reserved
        {11, 1},    // a snapshot of top-k
        {11, 2},    // statistics are left out, but there
        {27, 1},    // weight beyond 2^31 (with the high half)
        {30, 1},    // weight
        {32, 0},    // total
        {47, 0xc0}, // density < 0
        {80, '/'},  // name
    };

    cn_test_fill(f->values, f->layout.total, 11, 0.1f);
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        encode(f);
        f->frame.data[lies[i].offset] = lies[i].value;
        seal(f);
        if (lies[i].offset == 27)
            assert_int_equal(check(f), CN_OK); // 2^24 + 1200 samples are possible
        else
            assert_int_not_equal(check(f), CN_OK);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_bell_curve_comes_back_as_the_encoder_said),
        TEST(long_tails_come_back_as_the_encoder_said),
        TEST(any_bits_within_the_limits_come_back_as_the_encoder_said),
        TEST(zeros_stay_zeros),
        TEST(denormals_count_as_zeros),
        TEST(equal_values_are_taken_in_the_order_of_their_index),
        TEST(one_huge_value_among_zeros_is_sent),
        TEST(a_poor_tensor_gets_a_tenth_of_its_share),
        TEST(a_tensor_with_a_density_of_its_own_sends_that_share),
        TEST(a_priority_makes_the_values_of_a_tensor_count_as_larger),
        TEST(below_a_density_of_two_in_a_thousand_blocks_are_larger),
        TEST(the_largest_values_are_the_ones_sent),
        TEST(dense_tensors_are_close_after_q8),
        TEST(encoding_a_decoded_q8_frame_gives_the_same_frame),
        TEST(applying_a_frame_adds_what_was_decoded),
        TEST(a_rounded_version_is_its_own_snapshot),
        TEST(weights_beyond_sixteen_have_no_snapshot),
        TEST(a_value_that_cannot_travel_leaves_the_buffer_as_it_was),
        TEST(a_rule_or_weight_that_no_frame_can_hold_is_refused),
        TEST(statistics_that_are_left_out_do_not_change),
        TEST(each_dense_mode_is_as_close_as_its_bits_allow),
        TEST(a_frame_cut_short_or_longer_is_refused),
        TEST(a_flipped_bit_is_found),
        TEST(a_sealed_frame_with_impossible_numbers_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
