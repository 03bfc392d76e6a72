// A frame that several members make together has the bytes of one member's; a version that is made
// piece by piece has the bits of one that is made at once.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "runtime/update/residual.h"
#include "runtime/update/update_shares.h"
#include "runtime/update/update_stream.h"
#include "tests/support/layouts.h"

static const struct cn_test_tensor tensors[] = {
    {9000, CN_TENSOR_PARAM}, {10, CN_TENSOR_PARAM},   {20000, CN_TENSOR_PARAM},
    {40, CN_TENSOR_STAT},    {3000, CN_TENSOR_PARAM}, {1500, CN_TENSOR_PARAM},
};
#define TENSORS 6
#define TOTAL 33550
#define MEMBERS 3
#define FRAME_MOST (1 << 20)

struct member {
    struct cn_layout own; // its tensors are those of the whole layout, at other places
    struct cn_tensor_info infos[TENSORS];
    size_t places[TENSORS];
    bool owned[TENSORS];
    float values[TOTAL], next[TOTAL];
    struct cn_update_share share;
    struct cn_update_blocks blocks;
};

struct shares_world {
    struct cn_layout whole;
    struct cn_update_header header;
    uint32_t holders[TENSORS]; // bit per member; the lowest owns the tensor
    float values[TOTAL];
    struct member members[MEMBERS];
};

static int set_up(void **state)
{
    struct shares_world *world = calloc(1, sizeof(*world));

    world->whole = cn_test_layout(tensors, TENSORS);
    world->header = (struct cn_update_header){.run = 3, .round = 2, .group = "lab", .weight = 5};
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct shares_world *world = *state;

    cn_test_layout_free(&world->whole);
    free(world);
    return 0;
}

static void give(struct shares_world *world, uint32_t m)
{
    struct member *member = &world->members[m];
    size_t offset = 0, count = 0;

    for (size_t t = 0; t < TENSORS; t++) {
        const struct cn_tensor_info *tensor = &world->whole.tensors[t];

        if (!(world->holders[t] >> m & 1))
            continue;
        member->infos[count] = *tensor;
        member->infos[count].offset = offset;
        member->places[count] = t;
        member->owned[count++] = (uint32_t)__builtin_ctz(world->holders[t]) == m;
        memcpy(member->values + offset, world->values + tensor->offset,
               tensor->count * sizeof(float));
        offset += tensor->count;
    }
    member->own = (struct cn_layout){member->infos, count, offset};
    member->share = (struct cn_update_share){&world->header, &world->whole, &member->own,
                                             member->places, member->owned};
    cn_buffer_init(&member->blocks.owned, FRAME_MOST);
    cn_buffer_init(&member->blocks.others, FRAME_MOST);
}

static void add(int64_t *sum, const int64_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += numbers[i];
}

// Copies the blocks of the owners to their places in the frame.
static void collect(struct shares_world *world, const int64_t *sizes, size_t first,
                    struct cn_buffer *frame)
{
    size_t used[MEMBERS] = {0};

    for (size_t t = 0; t < TENSORS; t++) {
        uint32_t owner = (uint32_t)__builtin_ctz(world->holders[t]);

        if (!sizes[t])
            continue; // an owner without a block has no bytes to point at
        memcpy(frame->data + first, world->members[owner].blocks.owned.data + used[owner],
               (size_t)sizes[t]);
        used[owner] += (size_t)sizes[t];
        first += (size_t)sizes[t];
    }
}

// Members that have a tensor without owning it see each byte of its block that is another.
static void compare_blocks(struct shares_world *world, const int64_t *sizes, size_t first,
                           struct cn_buffer *frame)
{
    size_t at = first;

    for (size_t t = 0; t < TENSORS; at += (size_t)sizes[t++])
        for (uint32_t m = 0; m < MEMBERS; m++) {
            const struct cn_buffer *others = &world->members[m].blocks.others;
            const struct cn_update_share *share = &world->members[m].share;
            bool looks = world->holders[t] >> m & 1 && world->holders[t] & ((1u << m) - 1);

            assert_true(cn_update_shares_compare(share, others, sizes, frame, first) == SIZE_MAX);
            if (!sizes[t])
                continue;
            frame->data[at + (size_t)sizes[t] - 1] ^= 1;
            assert_true(cn_update_shares_compare(share, others, sizes, frame, first) ==
                        (looks ? t : SIZE_MAX));
            frame->data[at + (size_t)sizes[t] - 1] ^= 1;
        }
}

static cn_err encode_together(struct shares_world *world, struct cn_buffer *frame)
{
    int64_t *counts = calloc(CN_UPDATE_SHARES_COUNTS, sizeof(*counts));
    int64_t *own = calloc(CN_UPDATE_SHARES_COUNTS, sizeof(*own));
    int64_t equal[TENSORS] = {0}, sizes[TENSORS] = {0}, some[TENSORS];
    cn_err err = CN_OK;
    size_t first;

    for (uint32_t m = 0; m < MEMBERS; m++) {
        struct member *member = &world->members[m];

        give(world, m);
        assert_int_equal(cn_update_shares_count(&member->share, member->values, own), CN_OK);
        add(counts, own, CN_UPDATE_SHARES_COUNTS);
    }
    for (uint32_t m = 0; m < MEMBERS; m++) {
        struct member *member = &world->members[m];

        assert_int_equal(cn_update_shares_ties(&member->share, member->values, counts, some),
                         CN_OK);
        add(equal, some, TENSORS);
    }
    for (uint32_t m = 0; m < MEMBERS; m++) {
        struct member *member = &world->members[m];
        cn_err own_err = cn_update_shares_encode(&member->share, member->values, counts, equal,
                                                 member->next, &member->blocks, some);

        assert_true(m == 0 || own_err == err); // alike on all members
        err = own_err;
        add(sizes, some, TENSORS);
    }
    if (!err) {
        assert_int_equal(cn_update_shares_begin(&world->members[0].share, sizes, frame, &first),
                         CN_OK);
        collect(world, sizes, first, frame);
        compare_blocks(world, sizes, first, frame);
        cn_update_shares_end(frame);
    }
    free(counts);
    free(own);
    return err;
}

static void check_next(const struct shares_world *world, const float *next)
{
    for (uint32_t m = 0; m < MEMBERS; m++)
        for (size_t t = 0; t < world->members[m].own.tensor_count; t++) {
            const struct cn_tensor_info *own = &world->members[m].own.tensors[t];
            size_t offset = world->whole.tensors[world->members[m].places[t]].offset;

            assert_memory_equal(world->members[m].next + own->offset, next + offset,
                                own->count * sizeof(float));
        }
}

static void release_blocks(struct cn_update_blocks *blocks)
{
    cn_buffer_deinit(&blocks->owned);
    cn_buffer_deinit(&blocks->others);
}

static void compare(struct shares_world *world)
{
    float *change = malloc(TOTAL * sizeof(*change)), *next = malloc(TOTAL * sizeof(*next));
    struct cn_buffer alone, together;
    cn_err wanted;

    cn_buffer_init(&alone, FRAME_MOST);
    cn_buffer_init(&together, FRAME_MOST);
    memcpy(change, world->values, TOTAL * sizeof(*change));
    wanted = cn_residual_encode(&world->header, &world->whole, change, NULL, next, &alone);
    assert_int_equal(encode_together(world, &together), wanted);
    if (!wanted) {
        assert_int_equal(together.size, alone.size);
        assert_memory_equal(together.data, alone.data, alone.size);
        check_next(world, next);
    }
    for (uint32_t m = 0; m < MEMBERS; m++)
        release_blocks(&world->members[m].blocks);
    cn_buffer_deinit(&alone);
    cn_buffer_deinit(&together);
    free(change);
    free(next);
}

static const enum cn_update_mode modes[] = {CN_UPDATE_RAW32, CN_UPDATE_Q8, CN_UPDATE_TOPK,
                                            CN_UPDATE_BF16,  CN_UPDATE_Q4, CN_UPDATE_SIGN,
                                            CN_UPDATE_SKIP};

static void compare_modes(struct shares_world *world)
{
    static const double densities[] = {0.3, 0.01, 0.001};

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
        for (size_t d = 0; d < (modes[i] == CN_UPDATE_TOPK ? 3 : 1); d++) {
            world->header.rule =
                (struct cn_update_rule){.mode = modes[i], .density = densities[d], .value_bits = 2};
            compare(world);
        }
}

// Owners lie between each other's tensors, and one tensor is on two members.
static void spread(struct shares_world *world)
{
    static const uint32_t holders[TENSORS] = {1, 2, 4, 2, 5, 1};

    memcpy(world->holders, holders, sizeof(holders));
}

static void a_frame_of_several_members_is_that_of_one(void **state)
{
    struct shares_world *world = *state;

    spread(world);
    cn_test_fill(world->values, TOTAL, 7, 0.01f);
    compare_modes(world);
    cn_test_fill_tailed(world->values, TOTAL, 8, 0.01f);
    compare_modes(world);
    world->header.leave_statistics = true;
    compare_modes(world);
}

// Of equal values the first of the model are sent, whoever has them; zeros never.
static void ties_are_given_in_the_order_of_the_model(void **state)
{
    struct shares_world *world = *state;

    spread(world);
    for (size_t i = 0; i < TOTAL; i++)
        world->values[i] = i % 3 == 0 ? 0 : i % 2 ? 0.25f : -0.25f;
    compare_modes(world);
}

static void rules_of_single_tensors_hold(void **state)
{
    struct shares_world *world = *state;

    spread(world);
    world->whole.tensors[0].priority = 3;
    world->whole.tensors[2].priority = -2;
    world->whole.tensors[4].density = 0.2;
    cn_test_fill(world->values, TOTAL, 9, 0.01f);
    compare_modes(world);
    for (size_t i = 0; i < 9000; i++)
        world->values[i] *= 1e-6f; // would be starved without its tenth
    compare_modes(world);
}

static void what_is_too_large_is_limited_and_what_is_not_finite_is_refused_by_all(void **state)
{
    struct shares_world *world = *state;

    spread(world);
    cn_test_fill(world->values, TOTAL, 10, 0.01f);
    world->values[9005] = -40;
    world->values[20000] = 17;
    compare_modes(world);
    world->values[10] = NAN;
    compare_modes(world);
}

static void sizes_that_no_member_has_are_refused(void **state)
{
    struct shares_world *world = *state;
    int64_t sizes[TENSORS] = {0};
    struct cn_buffer frame;
    size_t first;

    spread(world);
    give(world, 0);
    cn_buffer_init(&frame, FRAME_MOST);
    world->header.rule.mode = CN_UPDATE_RAW32;
    sizes[1] = -1;
    assert_int_equal(cn_update_shares_begin(&world->members[0].share, sizes, &frame, &first),
                     CN_EFORMAT);
    sizes[1] = 4 * 10 + 17;
    assert_int_equal(cn_update_shares_begin(&world->members[0].share, sizes, &frame, &first),
                     CN_EFORMAT);
    assert_int_equal(frame.size, 0);
    cn_buffer_deinit(&frame);
    release_blocks(&world->members[0].blocks);
}

// --- a stream ---

struct ends {
    const float *parent;
    float made[TOTAL];
    size_t next;
};

static cn_err read_parent(void *context, size_t offset, float *values, size_t count)
{
    const struct ends *ends = context;

    memcpy(values, ends->parent + offset, count * sizeof(*values));
    return CN_OK;
}

static cn_err take_made(void *context, size_t offset, const float *values, size_t count)
{
    struct ends *ends = context;

    assert_true(offset == ends->next && count <= CN_UPDATE_STREAM_COUNT);
    memcpy(ends->made + offset, values, count * sizeof(*values));
    ends->next += count;
    return CN_OK;
}

static void stream(const struct shares_world *world, const struct cn_buffer *frame,
                   const float *parent, cn_err wanted, const float *made)
{
    struct ends *ends = calloc(1, sizeof(*ends));
    const struct cn_update_stream through = {read_parent, take_made, ends};
    struct cn_version_header header = {.count = TOTAL};
    uint8_t digest[CN_DIGEST_SIZE], own[CN_DIGEST_SIZE];

    ends->parent = parent;
    assert_int_equal(
        cn_update_stream_digest(frame->data, frame->size, &world->whole, &header, &through, own),
        wanted);
    if (!wanted) {
        assert_int_equal(ends->next, TOTAL);
        assert_memory_equal(ends->made, made, sizeof(ends->made));
        cn_version_digest(&header, made, digest);
        assert_memory_equal(own, digest, sizeof(own));
    }
    free(ends);
}

static void a_version_made_piece_by_piece_is_that_made_at_once(void **state)
{
    struct shares_world *world = *state;
    float *parent = malloc(TOTAL * sizeof(float)), *made = malloc(TOTAL * sizeof(float));
    struct cn_buffer frame;

    world->whole.tensors[3].variance = true;
    world->whole.tensors[4].stays = true;
    cn_test_fill(world->values, TOTAL, 11, 0.5f);
    cn_test_fill(parent, TOTAL, 12, 0.1f);
    parent[3] = -0.0f;
    cn_buffer_init(&frame, FRAME_MOST);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
        for (int flags = 0; flags < 8; flags++) {
            world->header.rule = (struct cn_update_rule){
                .mode = modes[i], .density = flags & 1 ? 0.1 : 0.001, .value_bits = 2};
            world->header.rounded = flags & 2;
            world->header.leave_staying = flags & 4;
            frame.size = 0;
            assert_int_equal(
                cn_update_encode(&world->header, &world->whole, world->values, made, &frame),
                CN_OK);
            memcpy(made, parent, TOTAL * sizeof(*made));
            assert_int_equal(cn_update_apply(frame.data, frame.size, &world->whole, made), CN_OK);
            stream(world, &frame, parent, CN_OK, made);
        }
    parent[33000] = 40; // no snapshot of that
    stream(world, &frame, parent, CN_ERANGE, NULL);
    cn_buffer_deinit(&frame);
    free(parent);
    free(made);
}

static void a_snapshot_needs_no_parent_unless_it_leaves_tensors_out(void **state)
{
    struct shares_world *world = *state;
    static const uint8_t parent_digest[CN_DIGEST_SIZE];
    float *parent = malloc(TOTAL * sizeof(float)), *made = malloc(TOTAL * sizeof(float));
    struct cn_buffer frame;

    cn_test_fill(parent, TOTAL, 13, 0.1f);
    for (int stays = 0; stays < 2; stays++) {
        const struct cn_update_stream none = {NULL, NULL, NULL};

        world->whole.tensors[2].stays = stays;
        cn_test_fill(world->values, TOTAL, 14, 0.5f);
        cn_buffer_init(&frame, FRAME_MOST);
        assert_int_equal(
            cn_update_snapshot(3, 2, parent_digest, &world->whole, world->values, &frame), CN_OK);
        memcpy(made, parent, TOTAL * sizeof(*made));
        assert_int_equal(cn_update_apply(frame.data, frame.size, &world->whole, made), CN_OK);
        stream(world, &frame, parent, CN_OK, made);
        assert_int_equal(cn_update_stream(frame.data, frame.size, &world->whole, &none),
                         stays ? CN_ESTALE : CN_OK);
        cn_buffer_deinit(&frame);
    }
    free(parent);
    free(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_frame_of_several_members_is_that_of_one, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(ties_are_given_in_the_order_of_the_model, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(rules_of_single_tensors_hold, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            what_is_too_large_is_limited_and_what_is_not_finite_is_refused_by_all, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(sizes_that_no_member_has_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_version_made_piece_by_piece_is_that_made_at_once, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_snapshot_needs_no_parent_unless_it_leaves_tensors_out,
                                        set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
