// The checkpoint: whatever fails, one whole state is left, and it is the newest.
#include "tests/unit/checkpoint_world.h"

static void expect_row(const float *a, const float *b)
{
    assert_true(!a == !b);
    if (a)
        assert_memory_equal(a, b, TOTAL * sizeof(float));
}

static void expect_waiting(const struct cn_row *a, const struct cn_row *b)
{
    assert_true(!a->data == !b->data);
    if (!a->data)
        return;
    assert_int_equal(a->half, b->half);
    assert_memory_equal(a->data, b->data, TOTAL * cn_row_width(a));
}

static void expect_same(const struct cn_checkpoint *a, const struct cn_checkpoint *b)
{
    assert_int_equal(a->counter, b->counter);
    assert_int_equal(a->run, b->run);
    assert_int_equal(a->lineage, b->lineage);
    assert_true(a->loss_scale.factor == b->loss_scale.factor);
    assert_int_equal(a->loss_scale.steps, b->loss_scale.steps);
    assert_int_equal(a->phase, b->phase);
    assert_int_equal(a->round, b->round);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->updates, b->updates);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->version, b->version);
    assert_memory_equal(a->graph, b->graph, CN_DIGEST_SIZE);
    assert_memory_equal(a->base_digest, b->base_digest, CN_DIGEST_SIZE);
    assert_memory_equal(a->base_parent, b->base_parent, CN_DIGEST_SIZE);
    assert_int_equal(a->samples, b->samples);
    assert_true(a->train_loss == b->train_loss && a->held_out_loss == b->held_out_loss);
    assert_int_equal(a->held_out_correct, b->held_out_correct);
    assert_int_equal(a->held_out_count, b->held_out_count);
    assert_int_equal(a->resets, b->resets);
    assert_int_equal(a->total, b->total);
    assert_int_equal(a->rule.mode, b->rule.mode);
    assert_int_equal(a->rule.value_bits, b->rule.value_bits);
    assert_true(a->rule.density == b->rule.density && a->guard.factor == b->guard.factor);
    assert_int_equal(a->guard.streak, b->guard.streak);
    assert_int_equal(a->steps, b->steps);
    assert_int_equal(a->residual_version, b->residual_version);
    assert_true(a->cursor == b->cursor);
    assert_memory_equal(a->micro, b->micro, sizeof(a->micro));
    assert_int_equal(a->counted.round, b->counted.round);
    assert_int_equal(a->counted.own, b->counted.own);
    assert_memory_equal(a->counted.digest, b->counted.digest, CN_DIGEST_SIZE);
    expect_row(a->base, b->base);
    expect_row(a->weights, b->weights);
    expect_row(a->optimizer, b->optimizer);
    expect_waiting(&a->residual, &b->residual);
    expect_waiting(&a->next_residual, &b->next_residual);
    expect_waiting(&a->change, &b->change);
    assert_int_equal(a->frame_size, b->frame_size);
    assert_memory_equal(a->frame_digest, b->frame_digest, CN_DIGEST_SIZE);
    if (a->frame_size)
        assert_memory_equal(a->frame, b->frame, a->frame_size);
}

static void every_phase_comes_back_as_it_was_saved(void **state)
{
    struct fixture *f = *state;

    for (enum cn_phase phase = CN_PHASE_EMPTY; phase <= CN_PHASE_SEND; phase++) {
        cn_checkpoint_deinit(&f->saved);
        make_state(phase, &f->saved);
        assert_int_equal(cn_checkpoint_save(f->store, &f->saved), CN_OK);
        assert_int_equal(f->saved.counter, phase + 1);
        assert_int_equal(load(f), CN_OK);
        assert_int_equal(f->diag.count, 0);
        expect_same(&f->saved, &f->loaded);
    }
}

// Version 5 has them. A state without them is written as version 4, which older releases read.
static void control_variates_come_back_as_they_were_saved(void **state)
{
    struct fixture *f = *state;

    for (enum cn_phase phase = CN_PHASE_BASE; phase <= CN_PHASE_SEND; phase++)
        for (int rows = 0; rows < 3; rows++) {
            struct cn_checkpoint back = {0};
            struct cn_buffer out;

            cn_checkpoint_deinit(&f->saved);
            make_state(phase, &f->saved);
            cn_buffer_init(&out, 1 << 16);
            assert_int_equal(cn_checkpoint_encode(&f->saved, &out), CN_OK);
            assert_memory_equal(out.data, "cairnck4", 8);
            out.size = 0;
            f->saved.control =
                (struct cn_variates){.epoch = 4, .count = 3, .version = 8, .inverse = 0.125f};
            f->saved.control.own = rows > 0 ? row(8) : NULL;
            f->saved.control.server = rows > 1 ? row(9) : NULL;
            assert_int_equal(cn_checkpoint_encode(&f->saved, &out), CN_OK);
            assert_memory_equal(out.data, "cairnck5", 8);
            assert_int_equal(
                cn_checkpoint_decode(out.data, out.size, TOTAL, FRAME_LIMIT, NULL, &back), CN_OK);
            expect_same(&f->saved, &back);
            assert_int_equal(back.control.epoch, 4);
            assert_int_equal(back.control.count, 3);
            assert_int_equal(back.control.version, 8);
            assert_true(back.control.inverse == 0.125f);
            expect_row(f->saved.control.own, back.control.own);
            expect_row(f->saved.control.server, back.control.server);
            cn_checkpoint_deinit(&back);
            assert_int_equal(cn_checkpoint_save(f->store, &f->saved), CN_OK);
            assert_int_equal(load(f), CN_OK);
            expect_row(f->saved.control.own, f->loaded.control.own);
            cn_buffer_deinit(&out);
        }
}

// Only version 6 names the files that have what waits; the state then has none of these rows.
static void the_set_of_what_waits_comes_back(void **state)
{
    struct fixture *f = *state;

    for (enum cn_phase phase = CN_PHASE_BASE; phase <= CN_PHASE_SEND; phase++)
        for (int corrects = 0; corrects < 2; corrects++) {
            struct cn_checkpoint back = {0};
            struct cn_buffer out;

            cn_checkpoint_deinit(&f->saved);
            make_state(phase, &f->saved);
            f->saved.control.epoch = corrects ? 4 : 0;
            f->saved.waiting = (struct cn_waiting_set){0x8877665544332211,
                                                       phase == CN_PHASE_SEND ? 0 : CN_PART_CHANGE};
            cn_buffer_init(&out, 1 << 16);
            assert_int_equal(cn_checkpoint_encode(&f->saved, &out), CN_OK);
            assert_memory_equal(out.data, "cairnck6", 8);
            assert_int_equal(
                cn_checkpoint_decode(out.data, out.size, TOTAL, FRAME_LIMIT, NULL, &back), CN_OK);
            assert_int_equal(back.waiting.set, f->saved.waiting.set);
            assert_int_equal(back.waiting.array, f->saved.waiting.array);
            assert_int_equal(back.control.epoch, f->saved.control.epoch);
            assert_null(back.residual.data);
            cn_row_deinit(&f->saved.residual);
            cn_row_deinit(&f->saved.next_residual);
            cn_row_deinit(&f->saved.change);
            expect_same(&f->saved, &back);
            cn_checkpoint_deinit(&back);
            assert_int_equal(cn_checkpoint_save(f->store, &f->saved), CN_OK);
            assert_int_equal(load(f), CN_OK);
            assert_int_equal(f->loaded.waiting.set, f->saved.waiting.set);
            cn_buffer_deinit(&out);
        }
}

static void halve(struct cn_row *row)
{
    struct cn_row half = {0};

    if (!row->data)
        return;
    assert_int_equal(cn_row_allocate(&half, TOTAL, true), CN_OK);
    cn_row_write(&half, 0, TOTAL, row->data);
    cn_row_deinit(row);
    *row = half;
}

// In bfloat16 the three rows that wait take half of the bytes, and a flag says so.
static void a_residual_in_halves_comes_back_as_it_was_saved(void **state)
{
    struct fixture *f = *state;

    for (int phase = CN_PHASE_BASE; phase <= CN_PHASE_SEND; phase++) {
        struct cn_checkpoint made, back;
        struct cn_buffer full, halves;

        make_state((enum cn_phase)phase, &made);
        cn_buffer_init(&full, SIZE_MAX);
        cn_buffer_init(&halves, SIZE_MAX);
        assert_int_equal(cn_checkpoint_encode(&made, &full), CN_OK);
        halve(&made.residual);
        halve(&made.next_residual);
        halve(&made.change);
        assert_int_equal(cn_checkpoint_encode(&made, &halves), CN_OK);
        assert_int_equal(full.size - halves.size, 2 * TOTAL * (phase == CN_PHASE_SEND ? 3 : 1));
        assert_int_equal(cn_checkpoint_decode(halves.data, halves.size, TOTAL, 1000, NULL, &back),
                         CN_OK);
        expect_same(&made, &back);
        // The flag without halves, and halves without the flag.
        for (int i = 0; i < 2; i++) {
            uint8_t *bytes = i ? full.data : halves.data;
            size_t size = i ? full.size : halves.size;

            bytes[300] ^= 1;
            cn_crypto_digest(bytes, size - CN_DIGEST_SIZE, bytes + size - CN_DIGEST_SIZE);
            assert_int_equal(cn_checkpoint_decode(bytes, size, TOTAL, 1000, NULL, &f->loaded),
                             CN_EFORMAT);
        }
        cn_checkpoint_deinit(&back);
        cn_checkpoint_deinit(&made);
        cn_buffer_deinit(&full);
        cn_buffer_deinit(&halves);
    }
}

static void an_empty_store_has_no_checkpoint(void **state)
{
    assert_int_equal(load(*state), CN_ENOTFOUND);
}

static void the_newest_of_many_saves_is_loaded(void **state)
{
    struct fixture *f = *state;

    for (uint32_t step = 0; step < 7; step++) {
        save_step(f, step);
        assert_int_equal(load(f), CN_OK);
        assert_int_equal(f->loaded.step, step);
    }
}

static void take_values(void *context, enum cn_checkpoint_part array, size_t first, size_t count,
                        const float *values)
{
    assert_int_equal(array, CN_PART_WEIGHTS);
    memcpy((float *)context + first, values, count * sizeof(*values));
}

// What is open stays what it was; a read that fails for good says so.
static void one_part_is_read_while_newer_states_are_saved(void **state)
{
    struct fixture *f = *state;
    struct cn_checkpoint_file *file;
    struct cn_checkpoint numbers;
    float weights[TOTAL] = {0};
    void *places[CN_PART_COUNT] = {[CN_PART_WEIGHTS] = weights, [CN_PART_FRAME] = weights};
    const struct cn_checkpoint_target target = {1u << CN_PART_WEIGHTS, take_values, weights};

    cn_checkpoint_deinit(&f->saved);
    make_state(CN_PHASE_TRAIN, &f->saved);
    save_step(f, 5);
    assert_int_equal(cn_checkpoint_open(f->store, TOTAL, FRAME_LIMIT, &f->diag, &file, &numbers),
                     CN_OK);
    assert_int_equal(numbers.step, 5);
    assert_null(numbers.base);
    assert_true(cn_checkpoint_has(file, CN_PART_BASE));
    assert_false(cn_checkpoint_has(file, CN_PART_FRAME));
    save_step(f, 6);
    save_step(f, 7);
    cn_flaky_store_fail(&f->flaky, 1, false, CN_EIO);
    assert_int_equal(cn_checkpoint_read(file, places), CN_OK);
    expect_row(weights, f->saved.weights);
    memset(weights, 0, sizeof(weights));
    assert_int_equal(cn_checkpoint_read_to(file, &target), CN_OK);
    expect_row(weights, f->saved.weights);
    cn_flaky_store_fail(&f->flaky, 2, true, CN_EIO);
    assert_int_equal(cn_checkpoint_read(file, places), CN_EIO);
    cn_flaky_store_fail(&f->flaky, 0, false, CN_OK);
    cn_checkpoint_close(file);
}

static void a_state_without_what_its_phase_needs_is_not_saved(void **state)
{
    struct fixture *f = *state;

    save_step(f, 1);
    cn_row_deinit(&f->saved.change);
    assert_int_equal(cn_checkpoint_save(f->store, &f->saved), CN_EINVAL);
    assert_int_equal(load(f), CN_OK);
    assert_int_equal(f->loaded.step, 1);
}

static void arrays_that_the_phase_does_not_have_are_left_out(void **state)
{
    struct fixture *f = *state;

    f->saved.phase = CN_PHASE_BASE;
    save_step(f, 1);
    assert_int_equal(load(f), CN_OK);
    assert_null(f->loaded.change.data);
    assert_null(f->loaded.next_residual.data);
    assert_int_equal(f->loaded.frame_size, 0);
}

static void a_state_that_was_not_loaded_does_not_replace_the_newest_first(void **state)
{
    struct fixture *f = *state;

    for (uint32_t step = 1; step <= 6; step++)
        save_step(f, step);
    f->saved.counter = 0; // a new run, or a state taken from another board
    save_step(f, 100);
    assert_int_equal(f->saved.counter, 7);
    assert_int_equal(load(f), CN_OK);
    assert_int_equal(f->loaded.step, 100);
}

// The arrays of a state, from elsewhere.
struct brought {
    const struct cn_checkpoint *state;
    uint32_t calls, fails_at;
    float *row; // one for all of them
};

static cn_err bring(void *context, enum cn_checkpoint_part array, cn_checkpoint_put *put, void *to)
{
    struct brought *brought = context;
    const float *from = array == CN_PART_WEIGHTS     ? brought->state->weights
                        : array == CN_PART_OPTIMIZER ? brought->state->optimizer
                                                     : brought->state->second;

    if (++brought->calls == brought->fails_at)
        return CN_EPEER;
    memcpy(brought->row, from, TOTAL * sizeof(float));
    put(to, brought->row, 3); // in pieces of any size
    put(to, brought->row + 3, TOTAL - 3);
    return CN_OK;
}

// A state without those arrays, and who brings them.
static void take_apart(struct fixture *f, struct cn_checkpoint *whole, struct brought *brought,
                       struct cn_checkpoint_source *source)
{
    make_state(CN_PHASE_TRAIN, whole);
    whole->second = row(7);
    cn_checkpoint_deinit(&f->saved);
    make_state(CN_PHASE_TRAIN, &f->saved);
    cn_scratch_free(f->saved.weights);
    cn_scratch_free(f->saved.optimizer);
    f->saved.weights = f->saved.optimizer = NULL;
    *brought = (struct brought){.state = whole, .row = row(0)};
    *source = (struct cn_checkpoint_source){
        .arrays = 1u << CN_PART_WEIGHTS | 1u << CN_PART_OPTIMIZER | 1u << CN_PART_SECOND,
        .bring = bring,
        .context = brought,
    };
}

static void arrays_that_are_brought_one_by_one_make_the_same_state(void **state)
{
    struct fixture *f = *state;
    struct cn_checkpoint whole;
    struct brought brought;
    struct cn_checkpoint_source source;

    take_apart(f, &whole, &brought, &source);
    assert_int_equal(cn_checkpoint_save(f->store, &f->saved), CN_EINVAL);
    assert_int_equal(cn_checkpoint_save_from(f->store, &f->saved, &source), CN_OK);
    assert_int_equal(brought.calls, 3);
    whole.counter = f->saved.counter;
    assert_int_equal(load(f), CN_OK);
    expect_same(&whole, &f->loaded);
    expect_row(whole.second, f->loaded.second);
    cn_scratch_free(brought.row);
    cn_checkpoint_deinit(&whole);
}

// The members of a group bring them together, so one whose disk fails goes on.
static void arrays_are_brought_whatever_the_disk_does(void **state)
{
    struct fixture *f = *state;
    struct cn_checkpoint whole;
    struct brought brought;
    struct cn_checkpoint_source source;
    cn_err err = CN_ENOSPC;

    save_step(f, 1000);
    take_apart(f, &whole, &brought, &source);
    for (unsigned number = 1; err; number++) {
        assert_true(number < 100);
        brought.calls = 0;
        f->saved.step = number;
        f->saved.counter = 1;
        cn_flaky_store_fail(&f->flaky, number, true, CN_ENOSPC);
        err = cn_checkpoint_save_from(f->store, &f->saved, &source);
        cn_flaky_store_fail(&f->flaky, 0, false, CN_ENOSPC);
        assert_true(!err || err == CN_ENOSPC);
        assert_int_equal(brought.calls, 3);
        assert_int_equal(load(f), CN_OK);
        assert_int_equal(f->loaded.step, err ? 1000 : number);
    }
    for (brought.fails_at = 1; brought.fails_at <= 3; brought.fails_at++) {
        brought.calls = 0;
        f->saved.step = 2000;
        assert_int_equal(cn_checkpoint_save_from(f->store, &f->saved, &source), CN_EPEER);
        assert_int_equal(brought.calls, brought.fails_at);
        assert_int_equal(load(f), CN_OK);
        assert_int_not_equal(f->loaded.step, 2000);
    }
    cn_scratch_free(brought.row);
    cn_checkpoint_deinit(&whole);
}

// As before an update: the header ends 40 bytes earlier.
static void a_state_of_the_version_before_is_read(void **state)
{
    struct fixture *f = *state;
    struct cn_buffer bytes;
    size_t size;

    cn_buffer_init(&bytes, 100000);
    assert_int_equal(cn_checkpoint_encode(&f->saved, &bytes), CN_OK);
    size = bytes.size - 40;
    memmove(bytes.data + 344, bytes.data + 384, bytes.size - 384);
    bytes.data[7] = '3';
    cn_put_u64(bytes.data + 8, size);
    cn_crypto_digest(bytes.data, size - CN_DIGEST_SIZE, bytes.data + size - CN_DIGEST_SIZE);
    assert_int_equal(
        cn_checkpoint_decode(bytes.data, size, TOTAL, FRAME_LIMIT, &f->diag, &f->loaded), CN_OK);
    f->saved.counted = (struct cn_counted){0};
    expect_same(&f->saved, &f->loaded);
    assert_int_equal(
        cn_checkpoint_decode(bytes.data, size - 1, TOTAL, FRAME_LIMIT, NULL, &f->loaded),
        CN_EDIGEST);
    cn_buffer_deinit(&bytes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_phase_comes_back_as_it_was_saved),
        TEST(control_variates_come_back_as_they_were_saved),
        TEST(the_set_of_what_waits_comes_back),
        TEST(a_residual_in_halves_comes_back_as_it_was_saved),
        TEST(an_empty_store_has_no_checkpoint),
        TEST(the_newest_of_many_saves_is_loaded),
        TEST(one_part_is_read_while_newer_states_are_saved),
        TEST(a_state_without_what_its_phase_needs_is_not_saved),
        TEST(arrays_that_the_phase_does_not_have_are_left_out),
        TEST(a_state_that_was_not_loaded_does_not_replace_the_newest_first),
        TEST(arrays_that_are_brought_one_by_one_make_the_same_state),
        TEST(arrays_are_brought_whatever_the_disk_does),
        TEST(a_state_of_the_version_before_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
