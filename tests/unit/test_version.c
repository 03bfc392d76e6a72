// A version's bytes and digest.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/port/crypto.h"
#include "runtime/update/update.h"
#include "runtime/update/version.h"

static struct cn_version_header make_header(void)
{
    struct cn_version_header header = {.count = 3};

    memset(header.graph, 0x11, CN_DIGEST_SIZE);
    memset(header.parent, 0x22, CN_DIGEST_SIZE);
    return header;
}

static void a_header_comes_back_as_it_was_put(void **state)
{
    struct cn_version_header header = make_header();
    struct cn_version_header found;
    uint8_t bytes[CN_VERSION_HEADER_SIZE + 12] = {0};

    (void)state;
    cn_version_put_header(&header, bytes);
    assert_memory_equal(bytes, "cairn-version-1", 16);
    assert_int_equal(cn_version_get_header(bytes, sizeof(bytes), &found), CN_OK);
    assert_memory_equal(&found, &header, sizeof(found));
}

static void a_digest_is_over_header_and_values(void **state)
{
    // Python: sha256(b"cairn-version-1\0" + 32*b"\x11" + 32*b"\x22" + pack("<Q3f", 3, 1, -2, .5))
    struct cn_version_header header = make_header();
    const float values[3] = {1, -2, 0.5f};
    uint8_t bytes[CN_VERSION_HEADER_SIZE + sizeof(values)];
    uint8_t digest[CN_DIGEST_SIZE];
    uint8_t whole[CN_DIGEST_SIZE];
    char text[2 * CN_DIGEST_SIZE + 1];

    (void)state;
    cn_version_digest(&header, values, digest);
    cn_version_put_header(&header, bytes);
    memcpy(bytes + CN_VERSION_HEADER_SIZE, values, sizeof(values));
    cn_crypto_digest(bytes, sizeof(bytes), whole);
    assert_memory_equal(digest, whole, sizeof(whole));
    cn_hex(text, digest, sizeof(digest));
    assert_string_equal(text, "b449babb42b45755c802b036da6c35d9d9036efa6e6ff599f663b2a3f77a45c7");
}

static void another_magic_or_size_is_refused(void **state)
{
    struct cn_version_header header = make_header();
    struct cn_version_header found;
    uint8_t bytes[CN_VERSION_HEADER_SIZE + 16] = {0};

    (void)state;
    cn_version_put_header(&header, bytes);
    for (size_t size = 0; size < CN_VERSION_HEADER_SIZE; size++)
        assert_int_equal(cn_version_get_header(bytes, size, &found), CN_EFORMAT);
    for (size_t size = CN_VERSION_HEADER_SIZE; size <= sizeof(bytes); size++)
        assert_int_equal(cn_version_get_header(bytes, size, &found),
                         size == CN_VERSION_HEADER_SIZE + 12 ? CN_OK : CN_ERANGE);
    cn_put_u64(bytes + 80, UINT64_MAX / 4 + 4); // times 4 it is 12 again
    assert_int_equal(cn_version_get_header(bytes, CN_VERSION_HEADER_SIZE + 12, &found), CN_ERANGE);
    bytes[15] = 1;
    assert_int_equal(cn_version_get_header(bytes, CN_VERSION_HEADER_SIZE + 12, &found), CN_EFORMAT);
}

// The download, its copy and the decoded row, whether the version comes in full or as a delta.
static void what_a_version_takes_covers_full_versions_and_deltas(void **state)
{
    struct cn_tensor_info tensors[2] = {{.count = 100000}, {.count = 7}};
    struct cn_layout layout = {.tensors = tensors, .tensor_count = 2, .total = 100007};
    uint64_t row = 4 * 100007ull;

    (void)state;
    assert_true(cn_version_memory(&layout) >= 2 * (CN_VERSION_HEADER_SIZE + row) + row);
    assert_int_equal(cn_version_memory(&layout), 2 * (uint64_t)cn_update_size_max(&layout) + row);
    layout = (struct cn_layout){.tensors = tensors};
    assert_int_equal(cn_version_memory(&layout), 2 * (uint64_t)cn_update_size_max(&layout));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_comes_back_as_it_was_put),
        cmocka_unit_test(a_digest_is_over_header_and_values),
        cmocka_unit_test(another_magic_or_size_is_refused),
        cmocka_unit_test(what_a_version_takes_covers_full_versions_and_deltas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
