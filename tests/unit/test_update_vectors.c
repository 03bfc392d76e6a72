// The codec makes the bytes of tests/data/update, on every machine.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/port/crypto.h"
#include "runtime/update/update.h"
#include "tests/support/layouts.h"

#define DIRECTORY CAIRN_TEST_DATA "/update/"
#define FILE_LIMIT ((size_t)1 << 20)

static const struct cn_test_tensor tensors[] = {
    {1100, CN_TENSOR_PARAM}, {10, CN_TENSOR_PARAM}, {20, CN_TENSOR_STAT}, {4200, CN_TENSOR_PARAM}};
#define TOTAL 5330

static uint8_t *read_file(const char *name, size_t *size)
{
    char path[4096];
    uint8_t *data = malloc(FILE_LIMIT);
    FILE *file;

    snprintf(path, sizeof(path), DIRECTORY "%s", name);
    file = fopen(path, "rb");
    assert_non_null(file);
    *size = fread(data, 1, FILE_LIMIT, file);
    fclose(file);
    return data;
}

static void expect_vector(const char *name, const struct cn_update_rule *rule, unsigned flags,
                          const char *decoded_digest)
{
    static float values[TOTAL], decoded[TOTAL];
    struct cn_layout layout = cn_test_layout(tensors, 4);
    struct cn_update_header header = {
        .run = 0x0123456789abcdef,
        .round = 5,
        .weight = 1200,
        .rule = *rule,
        .snapshot = flags & 1,
        .leave_statistics = flags & 2,
        .rounded = flags & 4,
        .leave_staying = flags & 8,
        .small_signs = flags & 16,
    };
    uint8_t digest[CN_DIGEST_SIZE];
    char text[2 * CN_DIGEST_SIZE + 1];
    char file_name[64];
    struct cn_buffer frame;
    uint8_t *expected;
    size_t size;

    layout.tensors[0].stays = true;
    memset(header.base, 0xab, CN_DIGEST_SIZE);
    if (strcmp(name, "down") != 0 && !header.snapshot && !header.rounded)
        memcpy(header.group, "north", 6);
    expected = read_file("values.f32", &size);
    assert_int_equal(size, sizeof(values));
    memcpy(values, expected, size);
    free(expected);
    cn_buffer_init(&frame, FILE_LIMIT);
    assert_int_equal(cn_update_encode(&header, &layout, values, decoded, &frame), CN_OK);
    if (header.rounded) { // what it makes of other weights
        for (size_t i = 0; i < TOTAL; i++)
            values[i] *= -0.5f;
        assert_int_equal(cn_update_apply(frame.data, frame.size, &layout, values), CN_OK);
        memcpy(decoded, values, sizeof(decoded));
    }
    cn_crypto_digest(decoded, sizeof(decoded), digest);
    cn_hex(text, digest, sizeof(digest));
    snprintf(file_name, sizeof(file_name), "%s.frame", name);
    expected = read_file(file_name, &size);
    assert_int_equal(frame.size, size);
    assert_memory_equal(frame.data, expected, size);
    assert_string_equal(text, decoded_digest);
    free(expected);
    cn_buffer_deinit(&frame);
    cn_test_layout_free(&layout);
}

static void every_vector_is_made_to_the_byte(void **state)
{
    FILE *list = fopen(DIRECTORY "vectors.txt", "r");
    char line[256];
    size_t count = 0;

    (void)state;
    assert_non_null(list);
    while (fgets(line, sizeof(line), list)) {
        char name[32];
        char digest[65];
        unsigned mode;
        unsigned flags;
        struct cn_update_rule rule;

        assert_int_equal(sscanf(line, "%31s %u %u %lf %u %64s", name, &mode, &rule.value_bits,
                                &rule.density, &flags, digest),
                         6);
        rule.mode = (enum cn_update_mode)mode;
        expect_vector(name, &rule, flags, digest);
        count++;
    }
    fclose(list);
    assert_int_equal(count, 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_vector_is_made_to_the_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
