// The contract of runtime/port/collective.h: what every kind of call leaves on every member,
// against a serial reference, for all types and reductions; and calls on some of the members.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/contract/collective_group.h"

#define REDUCTIONS 4
#define TYPES 4

// Small integers: every type holds the sums exactly, in any order.
static int64_t sample(uint32_t rank, size_t index)
{
    return (int64_t)((index * 7 + rank * 13 + 3) % 25) - 12;
}

static int64_t expected(const struct cn_set *set, size_t index, enum cn_reduce how)
{
    int64_t result = sample(set->ranks[0], index);

    for (uint32_t p = 1; p < set->size; p++) {
        int64_t value = sample(set->ranks[p], index);

        if (how == CN_REDUCE_SUM || how == CN_REDUCE_AVERAGE)
            result += value;
        else if ((how == CN_REDUCE_MAX) == (value > result))
            result = value;
    }
    return result;
}

// Patterns of two-byte floats, for values that they hold exactly.
static uint16_t bfloat16_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

static uint16_t float16_of(float value)
{
    int exponent;
    float fraction = frexpf(fabsf(value), &exponent); // [0.5, 1)
    uint16_t sign = value < 0 ? 0x8000 : 0;

    if (value == 0)
        return 0;
    return (uint16_t)(sign | (exponent + 14) << 10 | ((int)(fraction * 2048) & 0x3ff));
}

static void store(enum cn_number type, void *data, size_t index, double value)
{
    if (type == CN_FLOAT32)
        ((float *)data)[index] = (float)value;
    else if (type == CN_BFLOAT16)
        ((uint16_t *)data)[index] = bfloat16_of((float)value);
    else if (type == CN_FLOAT16)
        ((uint16_t *)data)[index] = float16_of((float)value);
    else
        ((int64_t *)data)[index] = (int64_t)value;
}

static size_t width(enum cn_number type)
{
    return type == CN_FLOAT32 ? 4 : type == CN_INT64 ? 8 : 2;
}

// Averages are checked where they are exact: over 1, 2, 4 or 8 members, or as integers.
static bool is_exact(enum cn_number type, enum cn_reduce how, uint32_t members)
{
    return how != CN_REDUCE_AVERAGE || type == CN_INT64 || (members & (members - 1)) == 0;
}

// Compares elements [first, first + count) of data with the serial result.
static cn_err compare(const struct cn_collective_call *call, const struct cn_set *set, size_t first,
                      size_t count)
{
    uint8_t wanted[8];

    for (size_t i = first; i < first + count; i++) {
        double value = (double)expected(set, i, call->how);

        if (call->how == CN_REDUCE_AVERAGE)
            value = call->type == CN_INT64 ? trunc(value / (double)set->size)
                                           : value / (double)set->size;
        store(call->type, wanted, 0, value);
        if (memcmp((uint8_t *)call->data + i * width(call->type), wanted, width(call->type)))
            return CN_EDIGEST;
    }
    return CN_OK;
}

static size_t share_of(size_t count, uint32_t members, uint32_t share, size_t *first)
{
    *first = share * count / members;
    return (share + 1) * count / members - *first;
}

// All-reduce, and reduce-scatter with all-gather after it, on one set.
static cn_err check_reductions(struct rank *rank, const struct cn_set *set, enum cn_number type,
                               enum cn_reduce how, size_t count)
{
    struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_REDUCE,
                                      .how = how,
                                      .type = type,
                                      .set = set,
                                      .data = rank->data,
                                      .count = count,
                                      .fingerprint = (uint32_t)count};
    uint32_t place = 0;
    size_t first, own;
    cn_err err;

    while (set->ranks[place] != rank->config.view.rank)
        place++;
    for (size_t i = 0; i < count; i++)
        store(type, call.data, i, (double)sample(rank->config.view.rank, i));
    err = rank->collective->ops->run(rank->collective, &call);
    if (!err)
        err = compare(&call, set, 0, count);
    for (size_t i = 0; i < count; i++)
        store(type, call.data, i, (double)sample(rank->config.view.rank, i));
    call.kind = CN_COLLECTIVE_REDUCE_SCATTER;
    if (!err)
        err = rank->collective->ops->run(rank->collective, &call);
    own = share_of(count, set->size, place, &first);
    if (!err)
        err = compare(&call, set, first, own);
    for (size_t i = 0; i < count; i++)
        if (i < first || i >= first + own)
            store(type, call.data, i, 77); // all-gather has to bring them
    call.kind = CN_COLLECTIVE_ALL_GATHER;
    if (!err)
        err = rank->collective->ops->run(rank->collective, &call);
    return err ? err : compare(&call, set, 0, count);
}

static void check_all_types(struct rank *rank, const struct cn_set *set)
{
    size_t n = set->size;
    const size_t counts[] = {0, 1, n - 1, n, n + 1, 3 * n + 1, 5000, COUNT_MAX};

    for (int type = 0; type < TYPES; type++)
        for (int how = 0; how < REDUCTIONS; how++)
            for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && !rank->err; i++)
                if (is_exact((enum cn_number)type, (enum cn_reduce)how, set->size))
                    rank->err = check_reductions(rank, set, (enum cn_number)type,
                                                 (enum cn_reduce)how, counts[i]);
}

#ifndef SIZE_MAX_TRIED // largest group; where all is emulated, the handshakes of eight take too
                       // long
#define SIZE_MAX_TRIED RANKS_MAX
#endif

static void reduce_whole_group(struct rank *rank)
{
    struct cn_set all = {.size = rank->config.view.size};

    for (uint32_t r = 0; r < all.size; r++)
        all.ranks[r] = r;
    check_all_types(rank, &all);
    if (!rank->err)
        rank->err = cn_barrier(rank->collective);
}

static void reductions_agree_with_the_serial_result(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= SIZE_MAX_TRIED; size++) {
        struct fixture fixture;

        group_set_up(&fixture, size);
        group_run(&fixture, reduce_whole_group);
        for (uint32_t r = 0; r < size; r++)
            assert_int_equal(fixture.ranks[r].err, CN_OK);
        group_tear_down(&fixture);
    }
}

static void reduce_fractions(struct rank *rank)
{
    for (size_t i = 0; i < COUNT_MAX; i++)
        rank->data[i] = 1.0f / (float)(1 + i * 3 + rank->config.view.rank * 7);
    rank->err = cn_all_reduce(rank->collective, CN_REDUCE_SUM, rank->data, rank->count);
}

static void run_fractions(struct fixture *fixture, size_t count)
{
    group_set_up(fixture, 4);
    for (uint32_t r = 0; r < 4; r++)
        fixture->ranks[r].count = count;
    group_run(fixture, reduce_fractions);
}

static void every_rank_and_every_run_get_the_same_bits(void **state)
{
    const size_t counts[] = {100, COUNT_MAX}; // directly, and around the ring
    struct fixture first, second;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const size_t size = counts[i] * sizeof(float);

        run_fractions(&first, counts[i]);
        run_fractions(&second, counts[i]);
        for (uint32_t r = 0; r < 4; r++) {
            assert_int_equal(first.ranks[r].err, CN_OK);
            assert_memory_equal(first.ranks[r].data, first.ranks[0].data, size);
            assert_memory_equal(second.ranks[r].data, first.ranks[0].data, size);
        }
        group_tear_down(&first);
        group_tear_down(&second);
    }
}

static void reduce_a_nan(struct rank *rank)
{
    for (size_t i = 0; i < rank->count; i++)
        rank->data[i] = rank->config.view.rank == 1 && i == 5 ? (float)(0.0 / 0.0) : 1.0f;
    rank->err = cn_all_reduce(rank->collective, CN_REDUCE_MAX, rank->data, rank->count);
}

static void every_rank_sees_a_nan_of_one(void **state)
{
    const size_t counts[] = {8, 8000};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct fixture fixture;

        group_set_up(&fixture, 3);
        for (uint32_t r = 0; r < 3; r++)
            fixture.ranks[r].count = counts[i];
        group_run(&fixture, reduce_a_nan);
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(fixture.ranks[r].err, CN_OK);
            assert_true(fixture.ranks[r].data[5] != fixture.ranks[r].data[5]);
            assert_true(fixture.ranks[r].data[4] == 1.0f);
        }
        group_tear_down(&fixture);
    }
}

static void broadcast_from_each(struct rank *rank)
{
    const size_t sizes[] = {0, 1, 17, COUNT_MAX * sizeof(float)};

    for (uint32_t root = 0; root < rank->config.view.size; root++) {
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]) && !rank->err; k++) {
            uint8_t *bytes = (uint8_t *)rank->data;

            for (size_t i = 0; i < sizes[k]; i++)
                bytes[i] = rank->config.view.rank == root ? (uint8_t)(i * 31 + root) : 0;
            rank->err = cn_broadcast(rank->collective, root, bytes, sizes[k]);
            for (size_t i = 0; i < sizes[k] && !rank->err; i++)
                if (bytes[i] != (uint8_t)(i * 31 + root))
                    rank->err = CN_EDIGEST;
        }
    }
}

static void broadcast_brings_the_bytes_of_the_root_to_all(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 4; size++) {
        struct fixture fixture;

        group_set_up(&fixture, size);
        group_run(&fixture, broadcast_from_each);
        for (uint32_t r = 0; r < size; r++)
            assert_int_equal(fixture.ranks[r].err, CN_OK);
        group_tear_down(&fixture);
    }
}

// 256 and ones: with 8 bits each single one would be lost.
static void add_narrow(struct rank *rank)
{
    static const float wanted[] = {0, 256, 256, 258, 260, 260}; // 256 + ranks - 1, to 8 bits
    static const size_t counts[] = {2049, 4099, COUNT_MAX};
    uint32_t self = rank->config.view.rank, size = rank->config.view.size;

    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]) && !rank->err; k++) {
        const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_REDUCE,
                                                .wire = CN_BFLOAT16,
                                                .data = rank->data,
                                                .count = counts[k]};

        for (size_t i = 0; i < counts[k]; i++)
            rank->data[i] = i % size == self ? 256 : 1; // also at the owner of a share
        rank->err = rank->collective->ops->run(rank->collective, &call);
        for (size_t i = 0; i < counts[k] && !rank->err; i++)
            if (rank->data[i] != wanted[size])
                rank->err = CN_EDIGEST;
    }
}

static void narrow_sums_are_added_in_float32_and_rounded_once(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= 5; size++) {
        struct fixture fixture;

        group_set_up(&fixture, size);
        group_run(&fixture, add_narrow);
        for (uint32_t r = 0; r < size; r++)
            assert_int_equal(fixture.ranks[r].err, CN_OK);
        group_tear_down(&fixture);
    }
}

// Rank r sends to r + 1 and receives from r - 1, the even ones first, so that nobody waits forever.
static void pass_messages(struct rank *rank)
{
    uint32_t size = rank->config.view.size, self = rank->config.view.rank;
    uint8_t *out = (uint8_t *)rank->data, *in = out + 100000;
    struct cn_collective_call send = {
        .kind = CN_COLLECTIVE_SEND, .peer = (self + 1) % size, .data = out, .count = 100000};
    struct cn_collective_call receive = {.kind = CN_COLLECTIVE_RECEIVE,
                                         .peer = (self + size - 1) % size,
                                         .data = in,
                                         .count = 100000};

    memset(out, (int)self + 1, 100000);
    rank->err = rank->collective->ops->run(rank->collective, self % 2 ? &receive : &send);
    if (!rank->err)
        rank->err = rank->collective->ops->run(rank->collective, self % 2 ? &send : &receive);
    for (size_t i = 0; i < 100000 && !rank->err; i++)
        if (in[i] != (self + size - 1) % size + 1)
            rank->err = CN_EDIGEST;
}

static void messages_pass_between_any_two(void **state)
{
    struct fixture fixture;

    (void)state;
    group_set_up(&fixture, 4);
    group_run(&fixture, pass_messages);
    for (uint32_t r = 0; r < 4; r++)
        assert_int_equal(fixture.ranks[r].err, CN_OK);
    group_tear_down(&fixture);
}

static bool has(const struct cn_set *set, uint32_t rank)
{
    for (uint32_t p = 0; p < set->size; p++)
        if (set->ranks[p] == rank)
            return true;
    return false;
}

// Each rank sends rank 0 a message, in the set of all or in a set of the two.
static cn_err tell_rank_0(struct rank *rank, bool in_a_pair)
{
    uint32_t self = rank->config.view.rank;
    cn_err err = CN_OK;

    for (uint32_t r = 1; r < rank->config.view.size && !err; r++) {
        const struct cn_set pair = {.id = 20 + r, .size = 2, .ranks = {0, r}};
        uint8_t byte = (uint8_t)(self + 40);
        const struct cn_collective_call call = {.kind = self ? CN_COLLECTIVE_SEND
                                                             : CN_COLLECTIVE_RECEIVE,
                                                .set = in_a_pair ? &pair : NULL,
                                                .peer = self ? 0 : r,
                                                .data = &byte,
                                                .count = 1};

        if (self && self != r)
            continue;
        err = rank->collective->ops->run(rank->collective, &call);
        if (!err && byte != r + 40)
            err = CN_EDIGEST;
    }
    return err;
}

// Rank 0 takes part in more messages than the others.
static void tell_and_meet(struct rank *rank)
{
    uint32_t last = rank->config.view.size - 1;
    const struct cn_set pair = {.id = 20 + last, .size = 2, .ranks = {0, last}};
    const struct cn_collective_call barrier = {.kind = CN_COLLECTIVE_BARRIER, .set = &pair};

    rank->err = tell_rank_0(rank, false);
    if (!rank->err)
        rank->err = cn_barrier(rank->collective);
    if (!rank->err)
        rank->err = tell_rank_0(rank, true);
    if (!rank->err && has(&pair, rank->config.view.rank))
        rank->err = rank->collective->ops->run(rank->collective, &barrier);
    if (!rank->err)
        rank->err = cn_all_reduce(rank->collective, CN_REDUCE_SUM, rank->data, 5000);
}

static void messages_of_some_leave_the_calls_of_all_in_step(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= 4; size++) {
        struct fixture fixture;

        group_set_up(&fixture, size);
        group_run(&fixture, tell_and_meet);
        for (uint32_t r = 0; r < size; r++)
            assert_int_equal(fixture.ranks[r].err, CN_OK);
        group_tear_down(&fixture);
    }
}

static const struct cn_set overlapping[] = {
    {.id = 1, .size = 3, .ranks = {0, 1, 2}},
    {.id = 2, .size = 3, .ranks = {1, 2, 4}},
    {.id = 3, .size = 2, .ranks = {0, 4}},
    {.id = 4, .size = 1, .ranks = {3}},
};

static void reduce_on_sets(struct rank *rank)
{
    for (size_t i = 0; i < sizeof(overlapping) / sizeof(overlapping[0]); i++)
        if (!rank->err && has(&overlapping[i], rank->config.view.rank))
            check_all_types(rank, &overlapping[i]);
    if (!rank->err)
        rank->err = cn_barrier(rank->collective);
}

// As rules over steps make them: each is called again and again.
static void reduce_on_many_sets(struct rank *rank)
{
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 200 && !rank->err; i++) {
            struct cn_set set = {.id = 1000 + i, .size = 2, .ranks = {i % 2, 2 + i / 2 % 2}};
            float value = 1 + (float)rank->config.view.rank;
            struct cn_collective_call call = {
                .kind = CN_COLLECTIVE_ALL_REDUCE, .set = &set, .data = &value, .count = 1};
            uint32_t own = rank->config.view.rank;

            if (own != set.ranks[0] && own != set.ranks[1])
                continue;
            rank->err = rank->collective->ops->run(rank->collective, &call);
            if (!rank->err && value != (float)(2 + set.ranks[0] + set.ranks[1]))
                rank->err = CN_EFORMAT;
        }
}

static void an_epoch_may_have_any_number_of_sets(void **state)
{
    struct fixture fixture;

    (void)state;
    group_set_up(&fixture, 4);
    group_run(&fixture, reduce_on_many_sets);
    for (uint32_t r = 0; r < 4; r++)
        assert_int_equal(fixture.ranks[r].err, CN_OK);
    group_tear_down(&fixture);
}

static void sets_may_overlap(void **state)
{
    struct fixture fixture;

    (void)state;
    group_set_up(&fixture, 5);
    group_use_sets(&fixture, overlapping, sizeof(overlapping) / sizeof(overlapping[0]));
    group_run(&fixture, reduce_on_sets);
    for (uint32_t r = 0; r < 5; r++)
        assert_int_equal(fixture.ranks[r].err, CN_OK);
    group_tear_down(&fixture);
}

// Rank 1 thinks of another set, fingerprint or kind than the others.
static void disagree(struct rank *rank)
{
    const struct cn_set all = {.id = 9, .size = 3, .ranks = {0, 1, 2}};
    const struct cn_set other = {.id = 8, .size = 3, .ranks = {0, 1, 2}};
    struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_REDUCE,
                                      .set = &all,
                                      .data = rank->data,
                                      .count = 5000,
                                      .fingerprint = 1};

    if (rank->config.view.rank == 1 && rank->count == 0)
        call.set = &other;
    if (rank->config.view.rank == 1 && rank->count == 1)
        call.fingerprint = 2;
    if (rank->config.view.rank == 1 && rank->count == 2)
        call.kind = CN_COLLECTIVE_BARRIER;
    rank->data[0] = 3;
    rank->err = rank->collective->ops->run(rank->collective, &call);
}

// What group_run logs, in text.
static void run_and_read(struct fixture *fixture, void (*run)(struct rank *), char *text,
                         size_t size)
{
    FILE *log = tmpfile();
    int kept = dup(STDERR_FILENO);

    assert_true(log && kept >= 0);
    assert_true(dup2(fileno(log), STDERR_FILENO) >= 0);
    group_run(fixture, run);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    rewind(log);
    text[fread(text, 1, size - 1, log)] = '\0';
    fputs(text, stderr);
    fclose(log);
    close(kept);
}

static void a_call_that_differs_is_an_error_at_once(void **state)
{
    (void)state;
    for (size_t how = 0; how < 3; how++) {
        struct fixture fixture;
        char said[16384];
        bool named = false;

        group_set_up(&fixture, 3);
        for (uint32_t r = 0; r < 3; r++)
            fixture.ranks[r].count = how;
        run_and_read(&fixture, disagree, said, sizeof(said));
        assert_non_null(strstr(said, " is at call "));
        assert_non_null(strstr(said, " (this board) is at call "));
        for (uint32_t r = 0; r < 3; r++) {
            assert_true(fixture.ranks[r].err == CN_ECONFLICT || fixture.ranks[r].err == CN_EPEER);
            assert_true(fixture.ranks[r].data[0] == 3);
            assert_true(fixture.ranks[r].took_ms < fixture.ranks[r].config.progress_timeout_ms);
            named |= fixture.ranks[r].err == CN_ECONFLICT;
        }
        assert_true(named);
        group_tear_down(&fixture);
    }
}

static void call_on_bad_sets(struct rank *rank)
{
    const struct cn_set without = {.id = 1, .size = 1, .ranks = {1 - rank->config.view.rank}};
    const struct cn_set beyond = {.id = 2, .size = 2, .ranks = {0, 2}};
    const struct cn_set unordered = {.id = 3, .size = 2, .ranks = {1, 0}};
    struct cn_collective_call call = {.kind = CN_COLLECTIVE_BARRIER, .set = &without};

    rank->count = rank->collective->ops->run(rank->collective, &call) == CN_EINVAL;
    call.set = &beyond;
    rank->count += rank->collective->ops->run(rank->collective, &call) == CN_EINVAL;
    call.set = &unordered;
    rank->count += rank->collective->ops->run(rank->collective, &call) == CN_EINVAL;
    call = (struct cn_collective_call){
        .kind = CN_COLLECTIVE_SEND, .peer = rank->config.view.rank, .data = rank->data, .count = 1};
    rank->count += rank->collective->ops->run(rank->collective, &call) == CN_EINVAL;
    rank->err = cn_barrier(rank->collective); // nothing has happened to the collective
}

static void a_set_without_this_board_is_refused(void **state)
{
    struct fixture fixture;

    (void)state;
    group_set_up(&fixture, 2);
    group_run(&fixture, call_on_bad_sets);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(fixture.ranks[r].count, 4);
        assert_int_equal(fixture.ranks[r].err, CN_OK);
    }
    group_tear_down(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_agree_with_the_serial_result),
        cmocka_unit_test(every_rank_and_every_run_get_the_same_bits),
        cmocka_unit_test(every_rank_sees_a_nan_of_one),
        cmocka_unit_test(narrow_sums_are_added_in_float32_and_rounded_once),
        cmocka_unit_test(broadcast_brings_the_bytes_of_the_root_to_all),
        cmocka_unit_test(messages_pass_between_any_two),
        cmocka_unit_test(messages_of_some_leave_the_calls_of_all_in_step),
        cmocka_unit_test(sets_may_overlap),
        cmocka_unit_test(an_epoch_may_have_any_number_of_sets),
        cmocka_unit_test(a_call_that_differs_is_an_error_at_once),
        cmocka_unit_test(a_set_without_this_board_is_refused),
    };

    return group_can_run() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
