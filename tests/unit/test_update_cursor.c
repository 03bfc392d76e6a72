// A cursor reads the values that decoding gives, and is total.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/random.h"
#include "runtime/update/update_cursor.h"
#include "tests/support/frame_source.h"
#include "tests/support/layouts.h"

static const struct cn_test_tensor tensors[] = {
    {40000, CN_TENSOR_PARAM}, {30, CN_TENSOR_PARAM}, {5000, CN_TENSOR_PARAM}, {30, CN_TENSOR_STAT}};
#define TOTAL 45060

struct fixture {
    struct cn_layout layout;
    struct cn_buffer frame;
    float values[TOTAL], decoded[TOTAL], read[TOTAL];
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->layout = cn_test_layout(tensors, 4);
    cn_test_fill_tailed(f->values, TOTAL, 3, 1);
    cn_buffer_init(&f->frame, 1 << 20);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    cn_buffer_deinit(&f->frame);
    cn_test_layout_free(&f->layout);
    free(f);
    return 0;
}

static void make_frame(struct fixture *f, const struct cn_update_header *header)
{
    f->frame.size = 0;
    assert_int_equal(cn_update_encode(header, &f->layout, f->values, f->decoded, &f->frame), CN_OK);
}

// Reads all values, step at a time.
static cn_err read_all(struct fixture *f, size_t step)
{
    const struct cn_update_source source = frame_source(&f->frame);
    struct cn_update_cursor *cursor;
    cn_err err = cn_update_cursor_open(&source, &f->layout, &cursor);

    for (size_t done = 0; done < TOTAL && !err; done += step)
        err = cn_update_cursor_next(cursor, f->read + done,
                                    TOTAL - done < step ? TOTAL - done : step);
    cn_update_cursor_close(cursor);
    return err;
}

static void any_step_reads_what_decoding_gives_in_every_mode(void **state)
{
    static const size_t steps[] = {1, 999, 4096, 16384, TOTAL};
    struct fixture *f = *state;

    for (int mode = CN_UPDATE_RAW32; mode <= CN_UPDATE_SKIP; mode++) {
        for (size_t i = 0; i < 2 * sizeof(steps) / sizeof(steps[0]) && mode != CN_UPDATE_AUTO;
             i++) {
            const struct cn_update_header header = {
                .weight = 1,
                .rule = {.mode = (enum cn_update_mode)mode,
                         .density = i % 2 ? 0.001 : 0.05, // blocks of 16384 and of 4096
                         .value_bits = 2},
                .leave_statistics = i % 2};

            make_frame(f, &header);
            assert_int_equal(read_all(f, steps[i / 2]), CN_OK);
            assert_memory_equal(f->read, f->decoded, sizeof(f->read));
        }
    }
}

static void it_goes_back_to_the_first_value(void **state)
{
    struct fixture *f = *state;
    struct cn_update_source source;
    struct cn_update_cursor *cursor;

    make_frame(f, &(struct cn_update_header){.weight = 1, .rule = {.mode = CN_UPDATE_Q8}});
    source = frame_source(&f->frame);
    assert_int_equal(cn_update_cursor_open(&source, &f->layout, &cursor), CN_OK);
    for (int pass = 0; pass < 2; pass++) {
        cn_update_cursor_rewind(cursor);
        assert_int_equal(cn_update_cursor_next(cursor, f->read, TOTAL), CN_OK);
        assert_memory_equal(f->read, f->decoded, sizeof(f->read));
    }
    cn_update_cursor_close(cursor);
}

static void snapshots_and_frames_that_are_cut_are_refused(void **state)
{
    struct fixture *f = *state;
    struct cn_update_header header = {
        .weight = 1, .rule = {.mode = CN_UPDATE_Q8}, .snapshot = true};

    make_frame(f, &header);
    assert_int_equal(read_all(f, TOTAL), CN_EFORMAT);
    header.snapshot = false;
    make_frame(f, &header);
    f->frame.size -= 1;
    assert_int_not_equal(read_all(f, TOTAL), CN_OK);
    assert_int_equal(cn_buffer_append(&f->frame, "tail of a frame", 15), CN_OK);
    assert_int_equal(read_all(f, TOTAL), CN_EFORMAT); // bytes after the last block
    f->frame.size = 40;
    assert_int_equal(read_all(f, TOTAL), CN_EFORMAT);
}

// Whatever the bytes are, a cursor gives values of an update or an error.
static void changed_bytes_give_an_error_or_values_in_range(void **state)
{
    struct fixture *f = *state;

    for (uint64_t i = 0; i < 400; i++) {
        make_frame(
            f, &(struct cn_update_header){.weight = 1,
                                          .rule = {.mode = i % 2 ? CN_UPDATE_TOPK : CN_UPDATE_Q4,
                                                   .density = 0.05,
                                                   .value_bits = 2}});
        assert_true(f->frame.size > 0);
        for (uint64_t change = 0; change <= i % 3 && f->frame.size; change++) {
            uint32_t random[4];

            cn_random_block(5, i, change, random);
            f->frame.data[random[0] % f->frame.size] ^= (uint8_t)(1u << random[1] % 8);
        }
        if (read_all(f, 4096) == CN_OK)
            for (size_t k = 0; k < TOTAL; k++)
                assert_true(f->read[k] >= -CN_UPDATE_VALUE_MAX &&
                            f->read[k] <= CN_UPDATE_VALUE_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_step_reads_what_decoding_gives_in_every_mode),
        cmocka_unit_test(it_goes_back_to_the_first_value),
        cmocka_unit_test(snapshots_and_frames_that_are_cut_are_refused),
        cmocka_unit_test(changed_bytes_give_an_error_or_values_in_range),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
