// coap_board.c - a board under a test's control: sends what it is told to the aggregator.
//
// usage: coap_board ADDRESS KEYFILE
//
// Each line of standard input is "METHOD PATH HEX": 1 to 4 for GET, POST, PUT, DELETE, and the
// body, "-" for none. Each gives one line: "CODE HEX", CODE as in "404"; or "- WHY" when nobody
// answered or nobody lets it in.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "transport/coap/coap_client.h"
#include "transport/coap/security.h"

#define ANSWER_MS 6000
#define REPEAT_MS 1000

struct answer {
    uint64_t tag;
    bool arrived;
    struct cn_exchange_reply reply;
    uint8_t body[CN_COAP_BODY_MAX];
};

static bool keep(void *context, const struct cn_exchange_reply *reply)
{
    struct answer *answer = context;
    if (reply->tag != answer->tag || answer->arrived || reply->size > sizeof(answer->body))
        return false;
    answer->arrived = true;
    answer->reply = *reply;
    if (reply->size)
        memcpy(answer->body, reply->body, reply->size);
    return true;
}

// True when an answer came.
static bool ask(struct cn_exchange *exchange, struct cn_exchange_request *request,
                struct answer *answer)
{
    uint64_t end = cn_platform_now_ms() + ANSWER_MS, next = 0;
    answer->arrived = false;
    answer->tag = ++request->tag;
    while (!answer->arrived && cn_platform_now_ms() < end) {
        exchange->ops->step(exchange);
        if (exchange->state == CN_EXCHANGE_REFUSED)
            return false;
        if (cn_platform_now_ms() >= next && exchange->ops->send(exchange, request) == CN_OK)
            next = cn_platform_now_ms() + REPEAT_MS;
        cn_platform_sleep_ms(1);
    }
    return answer->arrived;
}

static void print_answer(struct cn_exchange *exchange, bool came, const struct answer *answer)
{
    if (!came) {
        printf("- %s\n", exchange->state == CN_EXCHANGE_UP ? "no answer" : exchange->text);
    } else {
        printf("%u%02u ", answer->reply.code >> 5, answer->reply.code & 31);
        for (size_t i = 0; i < answer->reply.size; i++)
            printf("%02x", answer->body[i]);
        putchar('\n');
    }
    fflush(stdout);
}

// Reads "METHOD PATH HEX". False for anything else.
static bool parse(char *line, struct cn_exchange_request *request, uint8_t *body)
{
    char *method = strtok(line, " \n"), *path = strtok(NULL, " \n"), *hex = strtok(NULL, " \n");
    if (!hex || strlen(hex) > 2 * (size_t)CN_COAP_BODY_MAX)
        return false;
    request->method = (enum cn_coap_method)atoi(method);
    request->path = path;
    request->body = body;
    request->size = strcmp(hex, "-") == 0 ? 0 : strlen(hex) / 2;
    return cn_hex_parse(request->size ? hex : "", body, request->size) == CN_OK;
}

static int serve(struct cn_exchange *exchange)
{
    static char line[2 * CN_COAP_BODY_MAX + 512];
    static uint8_t body[CN_COAP_BODY_MAX];
    static struct answer answer;
    struct cn_exchange_request request = {0};
    exchange->sink = keep;
    exchange->context = &answer;
    while (fgets(line, sizeof(line), stdin)) {
        if (!parse(line, &request, body))
            return 2;
        bool came = ask(exchange, &request, &answer);
        print_answer(exchange, came, &answer);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct cn_coap_client_config config = {.addresses = (const char *const *)&argv[1],
                                           .address_count = 1};
    struct cn_board_key key;
    struct cn_diag diag;
    struct cn_exchange *exchange;
    cn_diag_init(&diag);
    if (argc != 3)
        return 2;
    cn_log_set_level(CN_LOG_ERROR);
    if (cn_security_load_key(argv[2], &diag, &key) || cn_security_dtls_key(&key, config.key)) {
        fprintf(stderr, "%s\n", cn_diag_first(&diag));
        return 1;
    }
    config.board = key.board;
    if (cn_coap_client_open(&config, &exchange))
        return 1;
    int result = serve(exchange);
    exchange->ops->close(exchange);
    return result;
}
