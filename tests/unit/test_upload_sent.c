// The bytes that an upload counts as sent, by which the link learns the rate of the path.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "transport/transfer/upload.h"

#define SIZE 10000
#define CHUNK 64
#define NOW_US 1000000

struct gateway {
    struct cn_exchange exchange;
    uint64_t size; // of all chunks that came
};

static cn_err note_chunks(struct cn_exchange *exchange, const struct cn_exchange_request *request)
{
    if (request->method == CN_COAP_PUT)
        ((struct gateway *)exchange)->size += request->size;
    return CN_OK;
}

static void what_was_sent_counts_after_another_division(void **state)
{
    static const struct cn_exchange_ops ops = {.send = note_chunks};
    static const uint8_t bytes[SIZE] = {1};
    struct gateway gateway = {.exchange = {.ops = &ops, .state = CN_EXCHANGE_UP, .body_max = 1024}};
    struct cn_controller controller;
    struct cn_rtt rtt = {0};
    struct cn_transfer transfer = {.exchange = &gateway.exchange,
                                   .rtt = &rtt,
                                   .controller = &controller,
                                   .board = "board",
                                   .kind = 1,
                                   .chunk_size = CHUNK,
                                   .parcel_chunks = 4};
    const struct cn_link_upload frame = {
        .run = 1, .round = 1, .frame = bytes, .size = SIZE, .fresh = true};
    uint64_t wake_us = UINT64_MAX;
    struct cn_upload *upload;

    (void)state;
    cn_controller_init(&controller, 4 * CHUNK + CN_TRANSFER_OVERHEAD, SIZE, 0, 1000);
    assert_int_equal(cn_upload_open(&transfer, &frame, &upload), CN_OK);
    assert_int_equal(cn_upload_sent_size(upload), 0);
    cn_upload_step(upload, NOW_US, &wake_us);
    assert_true(gateway.size > 0 && gateway.size < SIZE);
    assert_int_equal(cn_upload_sent_size(upload), gateway.size);
    assert_int_equal(cn_upload_resize(upload, CHUNK, 2, NOW_US), CN_OK);
    assert_int_equal(cn_upload_sent_size(upload), gateway.size);
    cn_upload_close(upload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_sent_counts_after_another_division),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
