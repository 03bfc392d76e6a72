// Downloads from a gateway that sends what it should not.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "runtime/base/log_limit.h"
#include "tests/unit/log_capture.h"
#include "transport/transfer/download.h"

#define SIZE 100
#define NOW_US 1000000

struct gateway {
    struct cn_exchange exchange;
    uint64_t tag; // of the last request
};

static cn_err note_request(struct cn_exchange *exchange, const struct cn_exchange_request *request)
{
    ((struct gateway *)exchange)->tag = request->tag;
    return CN_OK;
}

// Fetches a blob whose first answer holds other bytes than its digest promises.
static void fetch_wrong_bytes(struct gateway *gateway, const struct cn_transfer *transfer)
{
    static const uint8_t digest[CN_DIGEST_SIZE] = {1}, bytes[SIZE] = {2};
    struct cn_exchange_reply reply = {.code = CN_COAP_CONTENT, .body = bytes, .size = SIZE};
    struct cn_download *download;
    uint64_t wake_us = UINT64_MAX;

    assert_int_equal(cn_download_open(transfer, digest, SIZE, &download), CN_OK);
    cn_download_step(download, NOW_US, &wake_us);
    reply.tag = gateway->tag;
    assert_true(cn_download_reply(download, &reply, NOW_US + 1000));
    assert_int_equal(cn_download_state(download), CN_DOWNLOAD_RUNNING);
    cn_download_close(download);
}

static void a_gateway_fills_no_log_with_wrong_bytes(void **state)
{
    static const struct cn_exchange_ops ops = {.send = note_request};
    struct gateway gateway = {.exchange = {.ops = &ops, .state = CN_EXCHANGE_UP, .body_max = 1024}};
    struct cn_controller controller;
    struct cn_rtt rtt = {0};
    struct cn_log_quota lines = {0};
    struct cn_transfer transfer = {.exchange = &gateway.exchange,
                                   .rtt = &rtt,
                                   .controller = &controller,
                                   .kind = 1,
                                   .chunk_size = 64,
                                   .parcel_chunks = 16,
                                   .lines = &lines};
    struct log_capture capture;
    unsigned wrong;

    (void)state;
    log_capture_begin(&capture);
    for (uint16_t i = 0; i < 500; i++) {
        cn_controller_init(&controller, 1024, 1 << 20, 0, 1000);
        transfer.generation = i;
        fetch_wrong_bytes(&gateway, &transfer);
    }
    assert_int_equal(log_capture_end(&capture, "does not match", &wrong), CN_LOG_QUOTA_BURST + 1);
    assert_int_equal(wrong, CN_LOG_QUOTA_BURST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gateway_fills_no_log_with_wrong_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
