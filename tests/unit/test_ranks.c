#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "runtime/group/ranks.h"

// Members 0, 2, 4, ...: places are not ranks.
static struct cn_set even_members(uint32_t size)
{
    struct cn_set set = {.id = 5, .size = size};

    for (uint32_t p = 0; p < size; p++)
        set.ranks[p] = 2 * p;
    return set;
}

static struct cn_ranks place(const struct cn_set *set, uint32_t shards, uint32_t p)
{
    struct cn_ranks ranks;

    assert_int_equal(cn_ranks_place(set, shards, set->ranks[p], &ranks), CN_OK);
    return ranks;
}

static void dp_rank_is_the_replica_times_the_shards_plus_the_shard(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= CN_GROUP_MAX / 2; size++)
        for (uint32_t shards = 1; shards <= size; shards++) {
            struct cn_set set = even_members(size);
            uint32_t seen = 0;

            for (uint32_t p = 0; p < size / shards * shards; p++) {
                struct cn_ranks ranks = place(&set, shards, p);

                assert_false(ranks.idle);
                assert_int_equal(ranks.dp_rank, ranks.replica * shards + ranks.shard);
                assert_true(ranks.replica < ranks.replicas && ranks.shard < shards);
                seen |= 1u << ranks.dp_rank;
            }
            // A bijection: no two members draw the same samples, and none are left out.
            assert_int_equal(seen, (1u << (size / shards * shards)) - 1);
        }
}

static void one_shard_is_plain_data_parallel_and_one_replica_is_all_shards(void **state)
{
    struct cn_set set = even_members(6);

    (void)state;
    for (uint32_t p = 0; p < 6; p++) {
        assert_int_equal(place(&set, 1, p).replica, p);
        assert_int_equal(place(&set, 6, p).shard, p);
    }
}

static void replicas_and_shards_partition_the_set(void **state)
{
    struct cn_set set = even_members(6);

    (void)state;
    for (uint32_t p = 0; p < 6; p++) {
        struct cn_ranks ranks = place(&set, 3, p);

        assert_int_equal(ranks.together.size, 3);
        assert_int_equal(ranks.alike.size, 2);
        assert_int_equal(ranks.together.ranks[ranks.shard], set.ranks[p]);
        assert_int_equal(ranks.alike.ranks[ranks.replica], set.ranks[p]);
        for (uint32_t s = 0; s < 3; s++)
            assert_int_equal(ranks.together.ranks[s], set.ranks[ranks.replica * 3 + s]);
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(ranks.alike.ranks[r], set.ranks[r * 3 + ranks.shard]);
        assert_int_not_equal(ranks.together.id, ranks.alike.id);
        assert_int_equal(place(&set, 3, p / 3 * 3).together.id, ranks.together.id);
    }
}

static void members_without_a_complete_replica_are_idle(void **state)
{
    struct cn_set set = even_members(5);

    (void)state;
    assert_false(place(&set, 2, 3).idle);
    assert_true(place(&set, 2, 4).idle);
    assert_int_equal(place(&set, 2, 4).dp_size, 4);
    assert_int_equal(place(&set, 2, 4).all.size, 4);
}

// Samples are numbered through all places: the union over the places is the whole epoch, and no two
// places have one in common. With dp_rank = replica, shards would read the same ones.
static void every_sample_of_an_epoch_is_drawn_by_one_place(void **state)
{
    static const uint32_t layouts[][2] = {{1, 1}, {4, 1}, {4, 2}, {6, 3}, {6, 6}, {8, 2}};

    (void)state;
    for (size_t l = 0; l < sizeof(layouts) / sizeof(layouts[0]); l++) {
        struct cn_set set = even_members(layouts[l][0]);
        uint32_t micro[CN_GROUP_MAX], steps = 5, all = 0;
        uint8_t drawn[1024] = {0};

        for (uint32_t p = 0; p < CN_GROUP_MAX; p++)
            micro[p] = p % 3; // uneven, some none
        micro[0] = 2;
        for (uint32_t p = 0; p < set.size; p++)
            all += micro[p];
        for (uint32_t step = 0; step < steps; step++)
            for (uint32_t p = 0; p < set.size; p++) {
                struct cn_ranks ranks = place(&set, layouts[l][1], p);

                for (uint32_t i = 0; i < micro[ranks.dp_rank]; i++)
                    drawn[step * all + cn_ranks_first(micro, ranks.dp_rank) + i]++;
            }
        for (uint32_t i = 0; i < steps * all; i++)
            assert_int_equal(drawn[i], 1);
        assert_int_equal(drawn[steps * all], 0);
    }
}

static void shards_that_do_not_fit_are_refused(void **state)
{
    struct cn_set set = even_members(3);
    struct cn_ranks ranks;

    (void)state;
    assert_int_equal(cn_ranks_place(&set, 0, 0, &ranks), CN_EINVAL);
    assert_int_equal(cn_ranks_place(&set, 4, 0, &ranks), CN_EINVAL);
}

static void a_transformer_over_three_groups_of_three(void **state)
{
    struct cn_set set = {.size = 9, .ranks = {0, 1, 2, 3, 4, 5, 6, 7, 8}};
    const struct cn_chain_wish wish = {.parts = 3};
    struct cn_chain_place place;

    (void)state;
    for (uint32_t rank = 0; rank < 9; rank++) {
        assert_int_equal(cn_ranks_chain(set.ranks, set.size, &wish, rank, &place), CN_OK);
        assert_false(place.idle);
        assert_int_equal(place.part, rank / 3);
        assert_int_equal(place.number, rank % 3);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(place.alike.ranks[i], rank / 3 * 3 + i);
            assert_int_equal(place.chain.ranks[i], rank % 3 + 3 * i);
            assert_int_equal(cn_ranks_of_part(&place, i), rank % 3 + 3 * i);
        }
        // An embedding that the first and the last part hold.
        assert_int_equal(cn_ranks_parts(&place, 1u << 0 | 1u << 2).id,
                         cn_ranks_set(1u << rank % 3 | 1u << (rank % 3 + 6)).id);
    }
}

static void chains_partition_the_members_that_work(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= CN_GROUP_MAX / 2; size++)
        for (uint32_t parts = 1; parts <= size; parts++) {
            struct cn_set set = even_members(size);
            const struct cn_chain_wish wish = {.parts = parts};
            uint32_t chains = size / parts, seen = 0;

            for (uint32_t p = 0; p < size; p++) {
                struct cn_chain_place place;

                assert_int_equal(cn_ranks_chain(set.ranks, set.size, &wish, 2 * p, &place), CN_OK);
                assert_int_equal(place.idle, p >= parts * chains);
                if (place.idle)
                    continue;
                assert_int_equal(place.part * chains + place.number, p);
                assert_int_equal(place.chain.ranks[place.part], 2 * p);
                assert_int_equal(place.alike.ranks[place.number], 2 * p);
                assert_int_equal(place.shards, 1);
                assert_int_equal(place.together.id, cn_ranks_set(1u << 2 * p).id);
                assert_int_equal(place.same.id, place.alike.id);
                seen |= 1u << p;
            }
            assert_int_equal(seen, (1u << (parts * chains)) - 1);
        }
}

// Three holders of a tensor: a sum of three numbers depends on which two come first.
static void a_sum_over_parts_has_one_order_unless_members_changed_places(void **state)
{
    static const uint32_t straight[] = {0, 1, 2, 3, 4, 5}, moved[] = {2, 3, 4, 5, 6, 0};
    static const uint32_t turned[] = {2, 3, 4, 5, 0, 1};
    const struct cn_chain_wish wish = {.parts = 3};
    struct cn_chain_place place;

    (void)state;
    assert_int_equal(cn_ranks_chain(straight, 6, &wish, 3, &place), CN_OK);
    assert_true(cn_ranks_add_alike(&place, 7));
    assert_int_equal(cn_ranks_chain(turned, 6, &wish, 3, &place), CN_OK);
    assert_true(cn_ranks_add_alike(&place, 7)); // both begin with the third part
    assert_int_equal(cn_ranks_chain(moved, 6, &wish, 3, &place), CN_OK);
    assert_false(cn_ranks_add_alike(&place, 7));
    for (uint32_t one = 0; one < 3; one++) // two holders, or one
        for (uint32_t other = 0; other < 3; other++)
            assert_true(cn_ranks_add_alike(&place, 1u << one | 1u << other));
}

// A slow board may be put last: parts follow the order given, sets that of the ranks.
static void parts_follow_the_order_of_the_ranks_that_are_given(void **state)
{
    static const uint32_t order[] = {3, 1, 0, 2};
    const struct cn_chain_wish wish = {.parts = 2};
    struct cn_chain_place place;

    (void)state;
    assert_int_equal(cn_ranks_chain(order, 4, &wish, 0, &place), CN_OK); // chains 3 0 and 1 2
    assert_int_equal(place.part, 1);
    assert_int_equal(place.number, 0);
    assert_int_equal(cn_ranks_of_part(&place, 0), 3);
    assert_int_equal(place.chain.ranks[0], 0);
    assert_int_equal(place.alike.id, cn_ranks_set(1u << 0 | 1u << 2).id);
    assert_int_equal(cn_ranks_parts(&place, 1u << 0).id, cn_ranks_set(1u << 3).id);
}

static void chains_beyond_the_limit_and_parts_beyond_the_members(void **state)
{
    const struct cn_chain_wish one = {.parts = 2, .replicas = 1}, seven = {.parts = 7}, none = {0};
    struct cn_set set = even_members(6);
    struct cn_chain_place place;

    (void)state;
    assert_int_equal(cn_ranks_chain(set.ranks, set.size, &one, 4, &place), CN_OK);
    assert_true(place.idle);
    assert_int_equal(place.all.size, 2);
    assert_int_equal(cn_ranks_chain(set.ranks, set.size, &seven, 0, &place), CN_EINVAL);
    assert_int_equal(cn_ranks_chain(set.ranks, set.size, &none, 0, &place), CN_EINVAL);
}

// place = (p * R + r) * S + s, and two chains have no samples in common.
static void a_place_is_that_of_part_replica_and_shard(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= CN_GROUP_MAX / 2; size++)
        for (uint32_t parts = 2; parts <= size; parts++)
            for (uint32_t shards = 2; parts * shards <= size; shards++) {
                const struct cn_chain_wish wish = {.parts = parts, .shards = shards};
                struct cn_set set = even_members(size);
                uint32_t replicas = size / (parts * shards);

                for (uint32_t i = 0; i < parts * replicas * shards; i++) {
                    struct cn_chain_place place;
                    uint32_t r = i / shards % replicas, s = i % shards;

                    assert_int_equal(cn_ranks_chain(set.ranks, set.size, &wish, 2 * i, &place),
                                     CN_OK);
                    assert_int_equal(place.part, i / (shards * replicas));
                    assert_int_equal(place.number, r * shards + s);
                    assert_int_equal(place.shard, s);
                    assert_int_equal(place.chains, replicas * shards);
                    assert_int_equal(place.together.size, shards);
                    assert_int_equal(place.together.ranks[s], 2 * i);
                    assert_int_equal(place.same.size, replicas);
                    assert_int_equal(place.same.ranks[r], 2 * i);
                    assert_int_equal(place.alike.size, replicas * shards);
                }
            }
}

// A share is that of a member's place among the ranks: the members of chains that begin elsewhere
// must not hold two shares alike and none of the rest.
static void each_share_of_a_part_is_held_once_whatever_the_order(void **state)
{
    static const uint32_t order[] = {3, 1, 0, 2, 7, 4, 5, 6};
    const struct cn_chain_wish wish = {.parts = 2, .shards = 2};

    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        struct cn_chain_place place, other;

        assert_int_equal(cn_ranks_chain(order, 8, &wish, order[i], &place), CN_OK);
        assert_int_equal(place.number, i % 4);
        assert_int_equal(place.together.ranks[place.shard], order[i]);
        for (uint32_t r = 0; r < place.same.size; r++) {
            assert_int_equal(cn_ranks_chain(order, 8, &wish, place.same.ranks[r], &other), CN_OK);
            assert_int_equal(other.shard, place.shard);
            assert_int_equal(other.part, place.part);
            assert_int_equal(other.same.id, place.same.id);
        }
    }
}

// First the shards become fewer: a part with all of its state is slower to store, but it trains.
static void fewer_members_hold_fewer_shards_before_they_wait(void **state)
{
    const struct cn_chain_wish wish = {.parts = 2, .shards = 3, .replicas = 2};
    static const uint32_t chains[] = {0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3, 6, 6, 6, 6, 6};
    static const uint32_t wanted[] = {3, 3, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
    uint32_t shards;

    (void)state;
    for (uint32_t count = 0; count <= CN_GROUP_MAX; count++) {
        assert_int_equal(cn_ranks_chains(&wish, count, &shards), chains[count]);
        assert_int_equal(shards, wanted[count]);
    }
}

// Rounds go by, and each member in its turns trains the first, second, third, ... of its samples.
static void all_members_have_as_many_turns_and_none_is_counted_twice(void **state)
{
    (void)state;
    for (uint32_t count = 2; count <= CN_GROUP_MAX; count++)
        for (uint32_t chains = 1; 2 * chains <= count; chains++) {
            uint64_t turns[CN_GROUP_MAX] = {0};

            for (uint32_t round = 1; round <= count; round++)
                for (uint32_t r = 0; r < chains; r++) {
                    uint32_t member = (cn_ranks_turn(count, chains, round) + r) % count;

                    assert_int_equal(cn_ranks_turns_before(count, chains, round, r), turns[member]);
                    turns[member]++;
                }
            for (uint32_t m = 0; m < count; m++)
                assert_int_equal(turns[m], chains);
        }
    assert_int_equal(cn_ranks_turn(3, 1, 0), 0); // before the first round as in it
    assert_int_equal(cn_ranks_turn(16, 8, UINT32_MAX), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transformer_over_three_groups_of_three),
        cmocka_unit_test(all_members_have_as_many_turns_and_none_is_counted_twice),
        cmocka_unit_test(chains_partition_the_members_that_work),
        cmocka_unit_test(parts_follow_the_order_of_the_ranks_that_are_given),
        cmocka_unit_test(a_sum_over_parts_has_one_order_unless_members_changed_places),
        cmocka_unit_test(chains_beyond_the_limit_and_parts_beyond_the_members),
        cmocka_unit_test(a_place_is_that_of_part_replica_and_shard),
        cmocka_unit_test(each_share_of_a_part_is_held_once_whatever_the_order),
        cmocka_unit_test(fewer_members_hold_fewer_shards_before_they_wait),
        cmocka_unit_test(dp_rank_is_the_replica_times_the_shards_plus_the_shard),
        cmocka_unit_test(one_shard_is_plain_data_parallel_and_one_replica_is_all_shards),
        cmocka_unit_test(replicas_and_shards_partition_the_set),
        cmocka_unit_test(members_without_a_complete_replica_are_idle),
        cmocka_unit_test(every_sample_of_an_epoch_is_drawn_by_one_place),
        cmocka_unit_test(shards_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
