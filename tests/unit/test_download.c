// Downloads from a gateway that sends what it should not.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/log_limit.h"
#include "runtime/port/crypto.h"
#include "tests/unit/log_capture.h"
#include "transport/transfer/download.h"

#define SIZE 100
#define NOW_US 1000000

struct gateway {
    struct cn_exchange exchange;
    uint64_t tag;   // of the last request
    char path[128]; // of the last request
};

static cn_err note_request(struct cn_exchange *exchange, const struct cn_exchange_request *request)
{
    struct gateway *gateway = (struct gateway *)exchange;

    gateway->tag = request->tag;
    snprintf(gateway->path, sizeof(gateway->path), "%s", request->path);
    return CN_OK;
}

static void answer(struct gateway *gateway, struct cn_download *download, const uint8_t *bytes,
                   size_t size)
{
    struct cn_exchange_reply reply = {.code = CN_COAP_CONTENT, .body = bytes, .size = size};

    reply.tag = gateway->tag;
    assert_true(cn_download_reply(download, &reply, NOW_US + 1000));
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

static void expect_request(struct gateway *gateway, struct cn_download *download,
                           const char *wanted)
{
    uint64_t wake_us = UINT64_MAX;

    cn_download_step(download, NOW_US, &wake_us);
    assert_string_equal(gateway->path + sizeof("b/") - 1 + 2 * CN_DIGEST_SIZE, wanted);
}

// A gateway that was started again with smaller chunks sends the second half of a blob.
static void a_download_goes_on_in_chunks_of_another_size(void **state)
{
    static const struct cn_exchange_ops ops = {.send = note_request};
    struct gateway gateway = {.exchange = {.ops = &ops, .state = CN_EXCHANGE_UP, .body_max = 1024}};
    struct cn_controller controller;
    struct cn_rtt rtt = {0};
    struct cn_transfer transfer = {.exchange = &gateway.exchange,
                                   .rtt = &rtt,
                                   .controller = &controller,
                                   .kind = 1,
                                   .chunk_size = 64,
                                   .parcel_chunks = 1};
    uint8_t bytes[SIZE], digest[CN_DIGEST_SIZE];
    struct cn_download *download;
    size_t size;

    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (uint8_t)(i * 7);
    cn_crypto_digest(bytes, SIZE, digest);
    cn_controller_init(&controller, 64 + CN_TRANSFER_OVERHEAD, 1, 0, 1000); // one parcel at a time
    assert_int_equal(cn_download_open(&transfer, digest, SIZE, &download), CN_OK);
    expect_request(&gateway, download, "/0/1");
    answer(&gateway, download, bytes, 64);
    assert_int_equal(cn_download_resize(download, 32, 2), CN_OK);
    expect_request(&gateway, download, "/2/2");
    answer(&gateway, download, bytes + 64, SIZE - 64);
    assert_int_equal(cn_download_state(download), CN_DOWNLOAD_FINISHED);
    assert_memory_equal(cn_download_data(download, &size), bytes, SIZE);
    cn_download_close(download);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gateway_fills_no_log_with_wrong_bytes),
        cmocka_unit_test(a_download_goes_on_in_chunks_of_another_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
