// The test vectors of the robust rules, which tests/peers/robust.py computes, too.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/merge/robust.h"
#include "tests/support/frame_source.h"
#include "tests/support/layouts.h"

#define VALUES 12
#define MOST 16
#define LINE 1024

struct fixture {
    struct cn_layout layout;
    struct cn_buffer frames[MOST];
    struct cn_robust_update updates[MOST];
    char names[MOST][32];
    size_t count, rules;
};

// Reads "GROUP WEIGHT VALUES".
static void take_update(struct fixture *f, char *line)
{
    const struct cn_update_header header = {.weight = 1, .rule = {.mode = CN_UPDATE_RAW32}};
    float values[VALUES], decoded[VALUES];
    struct cn_buffer *frame = &f->frames[f->count];
    char *rest;
    char *name = strtok_r(line, " ", &rest);
    uint64_t weight = strtoull(strtok_r(NULL, " ", &rest), NULL, 10);

    for (size_t i = 0; i < VALUES; i++)
        values[i] = ldexpf((float)strtol(strtok_r(NULL, " ", &rest), NULL, 10), -27);
    cn_buffer_init(frame, 1 << 16);
    assert_int_equal(cn_update_encode(&header, &f->layout, values, decoded, frame), CN_OK);
    snprintf(f->names[f->count], sizeof(f->names[0]), "%s", name);
    f->updates[f->count] = (struct cn_robust_update){
        .group = f->names[f->count], .source = frame_source(frame), .weight = weight};
    f->count++;
}

static int find(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    fail_msg("%s is unknown", name);
    return -1;
}

// Checks "RULE MIX TOLERATE N BITS".
static void take_rule(struct fixture *f, char *line)
{
    static const char *const rules[] = {"none", "median", "trimmed", "multi_krum", "rfa", "cclip"};
    static const char *const mixes[] = {"none", "bucket", "nearest"};
    float mean[VALUES], center[VALUES] = {0};
    char *rest;
    struct cn_robust robust = {
        .rule = (enum cn_robust_rule)find(rules, 6, strtok_r(line, " ", &rest)),
        .mix = (enum cn_robust_mix)find(mixes, 3, strtok_r(NULL, " ", &rest)),
    };
    const struct cn_robust_config config = {
        .layout = &f->layout, .robust = &robust, .seed = 1, .round = 3};
    size_t count;

    robust.tolerate = (uint32_t)strtoul(strtok_r(NULL, " ", &rest), NULL, 10);
    count = strtoul(strtok_r(NULL, " ", &rest), NULL, 10);
    assert_true(count >= 1 && count <= f->count);
    assert_int_equal(cn_robust_mean(&config, f->updates, count,
                                    cn_robust_rows_kept(&robust) ? center : NULL, mean),
                     CN_OK);
    for (size_t i = 0; i < VALUES; i++) {
        uint32_t expected = (uint32_t)strtoul(strtok_r(NULL, " \n", &rest), NULL, 16), bits;

        memcpy(&bits, &mean[i], sizeof(bits));
        assert_int_equal(bits, expected);
    }
    f->rules++;
}

static void every_rule_gives_the_bits_of_the_second_implementation(void **state)
{
    static const struct cn_test_tensor tensor = {VALUES, CN_TENSOR_PARAM};
    static struct fixture f;
    char line[LINE];
    FILE *file = fopen(CAIRN_TEST_DATA "/robust/vectors.txt", "r");

    (void)state;
    assert_non_null(file);
    f.layout = cn_test_layout(&tensor, 1);
    while (fgets(line, sizeof(line), file)) {
        assert_non_null(strchr(line, '\n'));
        if (strncmp(line, "update ", 7) == 0)
            take_update(&f, line + 7);
        else if (strncmp(line, "rule ", 5) == 0)
            take_rule(&f, line + 5);
    }
    fclose(file);
    assert_int_equal(f.rules, 60);
    for (size_t i = 0; i < f.count; i++)
        cn_buffer_deinit(&f.frames[i]);
    cn_test_layout_free(&f.layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_gives_the_bits_of_the_second_implementation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
