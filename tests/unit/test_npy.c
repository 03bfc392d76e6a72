#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/bytes.h"
#include "runtime/engine/data/npy.h"

struct fixture {
    uint8_t file[512];
    size_t size;
    struct cn_diag diag;
    struct cn_npy npy;
};

// Makes a file of a version with a header and data_size bytes 1, 2, 3 ... behind it.
static cn_err parse(struct fixture *fixture, int version, const char *header, size_t data_size)
{
    size_t length = strlen(header);
    size_t prefix = version == 1 ? 10 : 12;
    uint8_t *copy;
    cn_err err;

    memcpy(fixture->file, "\x93NUMPY", 6);
    fixture->file[6] = (uint8_t)version;
    fixture->file[7] = 0;
    if (version == 1)
        cn_put_u16(fixture->file + 8, (uint16_t)length);
    else
        cn_put_u32(fixture->file + 8, (uint32_t)length);
    memcpy(fixture->file + prefix, header, length);
    for (size_t i = 0; i < data_size; i++)
        fixture->file[prefix + length + i] = (uint8_t)(i + 1);
    fixture->size = prefix + length + data_size;
    cn_diag_init(&fixture->diag);
    // A copy of the exact size lets the address sanitizer see every byte read too far.
    copy = malloc(fixture->size);
    assert_non_null(copy);
    memcpy(copy, fixture->file, fixture->size);
    err = cn_npy_parse(copy, fixture->size, "a.npy", &fixture->diag, &fixture->npy);
    if (!err && fixture->npy.data)
        fixture->npy.data = fixture->file + (fixture->npy.data - copy);
    free(copy);
    return err;
}

static void assert_line(const struct fixture *fixture, const char *part)
{
    if (!strstr(cn_diag_first(&fixture->diag), part))
        fail_msg("'%s' lacks '%s'", cn_diag_first(&fixture->diag), part);
}

static void arrays_of_all_three_versions_are_read(void **state)
{
    struct fixture fixture;
    char type[CN_NPY_TYPE_SIZE];

    (void)state;
    for (int version = 1; version <= 3; version++) {
        assert_int_equal(
            parse(&fixture, version,
                  "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }      \n", 24),
            CN_OK);
        assert_int_equal(fixture.npy.rank, 2);
        assert_int_equal(fixture.npy.dims[0], 2);
        assert_int_equal(fixture.npy.dims[1], 3);
        assert_int_equal(fixture.npy.count, 6);
        assert_int_equal(fixture.npy.data[0], 1);
        cn_npy_type_text(&fixture.npy, type);
        assert_string_equal(type, "float32");
    }
}

static void keys_may_come_in_any_order_and_quotes(void **state)
{
    struct fixture fixture;

    (void)state;
    assert_int_equal(
        parse(&fixture, 1, "{\"shape\":(4,),\"fortran_order\":False,\"descr\":\"|u1\"}", 4), CN_OK);
    assert_int_equal(fixture.npy.count, 4);
    assert_int_equal(parse(&fixture, 1, "{'shape':(),'fortran_order':False,'descr':'<i8'}", 8),
                     CN_OK);
    assert_int_equal(fixture.npy.count, 1);
}

static void integers_of_every_width_are_read(void **state)
{
    static const struct {
        const char *descr;
        size_t size;
        int64_t ones; // the value whose bytes are all ones
    } cases[] = {
        {"|i1", 1, -1},         {"|u1", 1, 255},   {"|b1", 1, 255},
        {"<i2", 2, -1},         {"<u2", 2, 65535}, {"<i4", 4, -1},
        {"<u4", 4, 4294967295}, {"<i8", 8, -1},    {"<u8", 8, INT64_MAX},
    };
    struct fixture fixture;
    char header[100];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(header, sizeof(header), "{'descr':'%s','fortran_order':False,'shape':(2,)}",
                 cases[i].descr);
        assert_int_equal(parse(&fixture, 1, header, 2 * cases[i].size), CN_OK);
        memset(fixture.file + fixture.size - cases[i].size, 0xff, cases[i].size);
        assert_int_equal(cn_npy_int(&fixture.npy, 0) & 0xff, 1);
        assert_int_equal(cn_npy_int(&fixture.npy, 1), cases[i].ones);
    }
}

static void arrays_that_must_be_saved_otherwise_are_refused_with_the_remedy(void **state)
{
    struct fixture fixture;

    (void)state;
    assert_int_equal(parse(&fixture, 1, "{'descr':'>f4','fortran_order':False,'shape':(2,)}", 8),
                     CN_ENOTSUP);
    assert_line(&fixture,
                "a.npy: the numbers are big-endian ('>f4'); save the array with .astype('<f4')");
    assert_int_equal(parse(&fixture, 1, "{'descr':'<f4','fortran_order':True,'shape':(2,2)}", 16),
                     CN_ENOTSUP);
    assert_line(&fixture, "Fortran order");
    assert_int_equal(parse(&fixture, 1, "{'descr':'<U4','fortran_order':False,'shape':(1,)}", 16),
                     CN_ENOTSUP);
    assert_line(&fixture, "'<U4'");
    assert_int_equal(parse(&fixture, 4, "{'descr':'<f4','fortran_order':False,'shape':(2,)}", 8),
                     CN_ENOTSUP);
    assert_line(&fixture, "version 4");
}

static void data_of_another_size_than_the_shape_is_refused(void **state)
{
    struct fixture fixture;

    (void)state;
    assert_int_equal(parse(&fixture, 1, "{'descr':'<f4','fortran_order':False,'shape':(2,2)}", 15),
                     CN_EFORMAT);
    assert_line(&fixture, "15 bytes of data, but its shape wants 16: the file is cut off");
    assert_int_equal(parse(&fixture, 1, "{'descr':'<f4','fortran_order':False,'shape':(2,2)}", 17),
                     CN_EFORMAT);
    assert_int_equal(parse(&fixture, 1,
                           "{'descr':'<f4','fortran_order':False,'shape':(4294967296,4294967296)}",
                           0),
                     CN_EFORMAT);
    assert_line(&fixture, "overflows");
}

static void malformed_headers_are_refused(void **state)
{
    static const char *const headers[] = {
        "",
        "{",
        "{}",
        "{'descr':'<f4','fortran_order':False}",
        "{'descr':'<f4','fortran_order':False,'shape':(1)}",
        "{'descr':'<f4','fortran_order':False,'shape':(1,}",
        "{'descr':'<f4','fortran_order':False,'shape':(,)}",
        "{'descr':'<f4','fortran_order':False,'shape':(-1,)}",
        "{'descr':'<f4','fortran_order':False,'shape':(1,1,1,1,1,1,1,1,1)}",
        "{'descr':'<f4','fortran_order':False,'shape':(99999999999999999999,)}",
        "{'descr':'<f4','fortran_order':None,'shape':(1,)}",
        "{'descr':'<f4,'fortran_order':False,'shape':(1,)}",
        "{'descr':'<f4','fortran_order':False,'shape':(1,),'more':1}",
        "{'descr':'<f4','fortran_order':False,'shape':(1,),'shape':(1,)}",
        "{'descr':'<i4','descr':'<f4','fortran_order':False,'shape':(1,)}",
        "{'descr':'<f4','fortran_order':True,'fortran_order':False,'shape':(1,)}",
        "{'descr':'<f4','fortran_order':False,'shape':(1,)} x",
    };
    struct fixture fixture;

    (void)state;
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        assert_int_equal(parse(&fixture, 1, headers[i], 4), CN_EFORMAT);
        assert_line(&fixture, "a.npy: ");
    }
}

static void every_cut_of_a_file_is_refused(void **state)
{
    struct fixture fixture;
    struct cn_npy npy;

    (void)state;
    assert_int_equal(parse(&fixture, 2, "{'descr':'<f4','fortran_order':False,'shape':(2,)}", 8),
                     CN_OK);
    for (size_t size = 0; size < fixture.size; size++) {
        uint8_t *cut = malloc(size + 1);

        assert_non_null(cut);
        memcpy(cut, fixture.file, size);
        assert_int_equal(cn_npy_parse(cut, size, "a.npy", NULL, &npy), CN_EFORMAT);
        free(cut);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_of_all_three_versions_are_read),
        cmocka_unit_test(keys_may_come_in_any_order_and_quotes),
        cmocka_unit_test(integers_of_every_width_are_read),
        cmocka_unit_test(arrays_that_must_be_saved_otherwise_are_refused_with_the_remedy),
        cmocka_unit_test(data_of_another_size_than_the_shape_is_refused),
        cmocka_unit_test(malformed_headers_are_refused),
        cmocka_unit_test(every_cut_of_a_file_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
