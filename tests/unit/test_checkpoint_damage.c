// Disks that fail, slots that are damaged, and states that lie.
#include "tests/unit/checkpoint_world.h"

static void a_flipped_bit_anywhere_brings_the_other_slot_back(void **state)
{
    struct fixture *f = *state;
    uint8_t *bytes;
    size_t size;

    save_step(f, 1);
    save_step(f, 2);
    bytes = cn_flaky_store_bytes(&f->flaky, "checkpoint.a", &size);
    for (size_t bit = 0; bit < 8 * size; bit += bit < 8 * 344 ? 1 : 13) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(load(f), CN_OK);
        assert_int_equal(f->loaded.step, 1);
        assert_non_null(strstr(f->diag.lines[1], "checkpoint.a cannot be used"));
        assert_non_null(strstr(f->diag.lines[2], "checkpoint.b is used instead"));
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(load(f), CN_OK);
    assert_int_equal(f->loaded.step, 2);
}

static void a_damaged_slot_is_the_next_to_be_written(void **state)
{
    struct fixture *f = *state;
    size_t size;

    save_step(f, 1);
    save_step(f, 2);
    cn_flaky_store_bytes(&f->flaky, "checkpoint.a", &size)[50] ^= 4;
    assert_int_equal(load(f), CN_OK);
    f->loaded.step = 3;
    assert_int_equal(cn_checkpoint_save(f->store, &f->loaded), CN_OK);
    assert_int_equal(load(f), CN_OK);
    assert_int_equal(f->loaded.step, 3);
    assert_int_equal(f->diag.count, 0);
}

static void two_damaged_slots_are_an_error_and_not_a_new_start(void **state)
{
    struct fixture *f = *state;
    size_t size;

    save_step(f, 1);
    save_step(f, 2);
    cn_flaky_store_bytes(&f->flaky, "checkpoint.a", &size)[50] ^= 4;
    cn_flaky_store_bytes(&f->flaky, "checkpoint.b", &size)[50] ^= 4;
    assert_int_equal(load(f), CN_EFORMAT);
}

static void a_slot_copied_to_the_other_name_is_not_used(void **state)
{
    struct fixture *f = *state;
    uint8_t *bytes;
    size_t size;

    save_step(f, 1);
    bytes = cn_flaky_store_bytes(&f->flaky, "checkpoint.b", &size);
    assert_int_equal(cn_store_replace(f->store, "checkpoint.a", bytes, size), CN_OK);
    assert_int_equal(load(f), CN_OK);
    assert_int_equal(f->diag.count, 2);
}

static void a_state_larger_than_the_model_is_refused(void **state)
{
    struct fixture *f = *state;

    save_step(f, 1);
    assert_int_equal(cn_checkpoint_load(f->store, TOTAL - 1, FRAME_LIMIT, NULL, &f->loaded),
                     CN_ERANGE);
    assert_int_equal(cn_checkpoint_load(f->store, TOTAL, 332, NULL, &f->loaded), CN_ERANGE);
    assert_int_equal(cn_checkpoint_load(f->store, TOTAL, 333, NULL, &f->loaded), CN_OK);
}

// Fails the first operation of a save, then the second, until it succeeds. After each failure the
// state before is whole; a commit that is reported as failed may also have happened.
static void sweep_saves(struct fixture *f, bool lasting, bool commit_before_failing)
{
    for (unsigned number = 1;; number++) {
        cn_err err;

        assert_true(number < 100);
        f->flaky.commit_before_failing = commit_before_failing;
        f->saved.step = number;
        cn_flaky_store_fail(&f->flaky, number, lasting, CN_ENOSPC);
        err = cn_checkpoint_save(f->store, &f->saved);
        cn_flaky_store_fail(&f->flaky, 0, false, CN_ENOSPC);
        assert_int_equal(load(f), CN_OK);
        assert_int_equal(f->diag.count, 0);
        if (!err) {
            assert_int_equal(f->loaded.step, number);
            return;
        }
        assert_int_equal(err, CN_ENOSPC);
        assert_true(f->loaded.step == 1000 || (commit_before_failing && f->loaded.step == number));
        save_step(f, 1000); // and the next save works
        assert_int_equal(load(f), CN_OK);
        assert_int_equal(f->loaded.step, 1000);
    }
}

static void a_save_that_fails_at_any_operation_leaves_a_whole_state(void **state)
{
    struct fixture *f = *state;

    save_step(f, 1000);
    sweep_saves(f, true, false);
    save_step(f, 1000);
    sweep_saves(f, false, false);
    save_step(f, 1000);
    sweep_saves(f, true, true);
}

static void a_first_save_that_fails_can_be_repeated(void **state)
{
    struct fixture *f = *state;

    for (unsigned number = 1;; number++) {
        cn_err err;

        cn_flaky_store_fail(&f->flaky, number, true, CN_ENOSPC);
        err = cn_checkpoint_save(f->store, &f->saved);
        cn_flaky_store_fail(&f->flaky, 0, false, CN_ENOSPC);
        if (!err)
            break;
        assert_int_equal(load(f), CN_ENOTFOUND);
    }
    assert_int_equal(load(f), CN_OK);
}

static void a_load_that_fails_never_reports_an_empty_store(void **state)
{
    struct fixture *f = *state;

    save_step(f, 1);
    save_step(f, 2);
    for (int lasting = 0; lasting < 2; lasting++) {
        for (unsigned number = 1;; number++) {
            cn_err err;

            assert_true(number < 100);
            cn_flaky_store_fail(&f->flaky, number, lasting, CN_EIO);
            err = load(f);
            cn_flaky_store_fail(&f->flaky, 0, false, CN_EIO);
            if (!err && f->flaky.operations && f->diag.count == 0 && number > 4)
                break;
            assert_true(err == CN_OK || err == CN_EIO);
            if (!lasting)
                assert_int_equal(err, CN_OK); // it is read again
        }
    }
    assert_int_equal(load(f), CN_OK);
    assert_int_equal(f->loaded.step, 2);
}

// Bytes of another board: with a digest that fits, but numbers that do not.
static void a_sealed_state_with_impossible_numbers_is_refused(void **state)
{
    // The last two are a rule that no update can have.
    static const struct {
        size_t offset;
        uint8_t value;
    } lies[] = {{7, '1'}, {8, 0},   {36, 4},   {36, 2},     {39, 1},    {68, 0x3f},
                {68, 1},  {71, 1},  {216, 49}, {216, 51},   {223, 1},   {224, 0},
                {225, 9}, {231, 1}, {232, 0},  {223, 0x40}, {264, 8},   {300, 1},
                {348, 2}, {7, '3'}, {268, 9},  {279, 0x7f}, {279, 0xbf}};
    struct fixture *f = *state;
    struct cn_buffer bytes;

    cn_buffer_init(&bytes, 100000);
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        bytes.size = 0;
        assert_int_equal(cn_checkpoint_encode(&f->saved, &bytes), CN_OK);
        bytes.data[lies[i].offset] = lies[i].value;
        cn_crypto_digest(bytes.data, bytes.size - CN_DIGEST_SIZE,
                         bytes.data + bytes.size - CN_DIGEST_SIZE);
        if (!cn_checkpoint_decode(bytes.data, bytes.size, TOTAL, FRAME_LIMIT, NULL, &f->loaded))
            fail_msg("lie %zu was believed", i);
    }
    cn_buffer_deinit(&bytes);
}

// A state that names files with what waits: the name, the array and the rows must fit each other.
static void a_sealed_state_with_an_impossible_set_is_refused(void **state)
{
    static const struct {
        enum cn_phase phase;
        size_t offset;
        uint8_t value;
    } lies[] = {{CN_PHASE_SEND, 408, 4},
                {CN_PHASE_BASE, 408, 0},
                {CN_PHASE_BASE, 408, 3},
                {CN_PHASE_BASE, 408, 6},
                {CN_PHASE_TRAIN, 408, 0},
                {CN_PHASE_BASE, 412, 1},
                {CN_PHASE_BASE, 400, 0},
                {CN_PHASE_BASE, 7, '5'},
                {CN_PHASE_BASE, 68, 0x09},
                {CN_PHASE_SEND, 68, 0x31},
                {CN_PHASE_BASE, 36, CN_PHASE_EMPTY}};
    struct fixture *f = *state;
    struct cn_buffer bytes;

    cn_buffer_init(&bytes, 100000);
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        cn_checkpoint_deinit(&f->saved);
        make_state(lies[i].phase, &f->saved);
        f->saved.waiting =
            (struct cn_waiting_set){7, lies[i].phase == CN_PHASE_SEND ? 0 : CN_PART_NEXT_RESIDUAL};
        bytes.size = 0;
        assert_int_equal(cn_checkpoint_encode(&f->saved, &bytes), CN_OK);
        assert_int_equal(
            cn_checkpoint_decode(bytes.data, bytes.size, TOTAL, FRAME_LIMIT, NULL, &f->loaded),
            CN_OK);
        cn_checkpoint_deinit(&f->loaded);
        bytes.data[lies[i].offset] = lies[i].value;
        if (lies[i].offset == 68) { // rows that the state must not have, with a size that fits
            assert_int_equal(cn_buffer_resize(&bytes, bytes.size + (i == 8 ? 4u : 8u) * TOTAL),
                             CN_OK);
            cn_put_u64(bytes.data + 8, bytes.size);
        }
        if (lies[i].offset == 36) // nothing but its header
            cn_put_u32(bytes.data + 68, 0);
        cn_crypto_digest(bytes.data, bytes.size - CN_DIGEST_SIZE,
                         bytes.data + bytes.size - CN_DIGEST_SIZE);
        if (!cn_checkpoint_decode(bytes.data, bytes.size, TOTAL, FRAME_LIMIT, NULL, &f->loaded))
            fail_msg("lie %zu was believed", i);
    }
    cn_buffer_deinit(&bytes);
}

// The frame cut out of a state of SEND, with all sizes and digests made to fit.
static void a_state_to_send_without_a_frame_is_refused(void **state)
{
    struct fixture *f = *state;
    struct cn_buffer bytes;
    size_t end;

    cn_buffer_init(&bytes, 100000);
    assert_int_equal(cn_checkpoint_encode(&f->saved, &bytes), CN_OK);
    end = bytes.size - CN_DIGEST_SIZE - f->saved.frame_size;
    cn_put_u64(bytes.data + 8, end + CN_DIGEST_SIZE);
    cn_put_u64(bytes.data + 224, 0);
    cn_crypto_digest("", 0, bytes.data + 232);
    cn_crypto_digest(bytes.data, end, bytes.data + end);
    assert_int_equal(cn_checkpoint_decode(bytes.data, end + CN_DIGEST_SIZE, TOTAL, FRAME_LIMIT,
                                          NULL, &f->loaded),
                     CN_EFORMAT);
    f->saved.frame_size = 0;
    assert_int_equal(cn_checkpoint_encode(&f->saved, &bytes), CN_EINVAL);
    cn_buffer_deinit(&bytes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_flipped_bit_anywhere_brings_the_other_slot_back),
        TEST(a_damaged_slot_is_the_next_to_be_written),
        TEST(two_damaged_slots_are_an_error_and_not_a_new_start),
        TEST(a_slot_copied_to_the_other_name_is_not_used),
        TEST(a_state_larger_than_the_model_is_refused),
        TEST(a_save_that_fails_at_any_operation_leaves_a_whole_state),
        TEST(a_first_save_that_fails_can_be_repeated),
        TEST(a_load_that_fails_never_reports_an_empty_store),
        TEST(a_sealed_state_with_impossible_numbers_is_refused),
        TEST(a_sealed_state_with_an_impossible_set_is_refused),
        TEST(a_state_to_send_without_a_frame_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
