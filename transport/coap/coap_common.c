#include "transport/coap/coap_common.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "runtime/base/log.h"
#include "runtime/base/log_limit.h"
#include "runtime/port/platform.h"

#define BURST 64     // turns of drain in one call of cn_coap_process
#define SEGMENT 1448 // TCP payload of an Ethernet packet, with time stamps

// libcoap's log handler gets no context. These name the address that this thread works at, and
// limit its log lines about dropped records.
static _Thread_local const char *working_at = "";
static _Thread_local struct cn_log_limit dropped;

// Recognises mbedTLS's messages about a record that it drops (ssl_msg.c). They do not name the
// sender.
static bool is_dropped(const char *message, const char **why)
{
    static const struct {
        const char *said, *why;
    } reasons[] = {
        {"replayed record", "was sent again"},
        {"discarding invalid record (mac)", "was forged or damaged"},
    };

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (strstr(message, reasons[i].said)) {
            *why = reasons[i].why;
            return true;
        }
    }
    return false;
}

static void note_dropped(const char *why)
{
    uint64_t count;

    if (cn_log_limit_due(&dropped, cn_platform_now_ms(), &count))
        cn_log(CN_LOG_WARN, "dtls", "%s: %" PRIu64 " record%s dropped, the last one %s", working_at,
               count, count == 1 ? "" : "s", why);
}

// Writes libcoap's messages to cn_log. Strangers on the network must not be able to fill the log,
// so libcoap's warnings become debug lines, and dropped records are counted.
static void write_log(coap_log_t level, const char *message)
{
    int length = (int)strcspn(message, "\n");
    const char *why;

    if (level >= COAP_LOG_DTLS_BASE && is_dropped(message, &why))
        note_dropped(why);
    cn_log(level == COAP_LOG_EMERG ? CN_LOG_WARN : CN_LOG_DEBUG, "libcoap", "%.*s", length,
           message);
}

void cn_coap_start(void)
{
    coap_startup();
    coap_set_log_handler(write_log);
    coap_set_log_level(COAP_LOG_WARN);
    coap_dtls_set_log_level(COAP_LOG_WARN);
}

void cn_coap_allow_files(uint32_t sessions)
{
    struct rlimit limit;

    rlim_t wanted = 2 * (rlim_t)sessions;

    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

void cn_coap_address(const struct cn_address *from, coap_address_t *to)
{
    coap_address_init(to);
    memcpy(&to->addr, &from->storage, from->size);
    to->size = from->size;
}

void cn_coap_address_back(const coap_address_t *from, struct cn_address *to)
{
    memset(to, 0, sizeof(*to));
    to->size = from->size;
    memcpy(&to->storage, &from->addr, from->size);
}

// Handles the events that wait, in at most BURST turns.
static void drain(coap_context_t *coap)
{
    int fd = coap_context_get_coap_fd(coap);
    struct epoll_event events[4];

    for (int i = 0; i < BURST; i++) {
        int count = epoll_wait(fd, events, 4, 0);

        if (count <= 0)
            return;
        coap_io_do_epoll(coap, events, (size_t)count);
    }
}

cn_err cn_coap_process(coap_context_t *coap, const char *where, uint32_t timeout_ms)
{
    int result;

    working_at = where;
    result = coap_io_process(coap, timeout_ms ? timeout_ms : COAP_IO_NO_WAIT);
    if (result >= 0)
        drain(coap);
    working_at = "";
    return result < 0 ? CN_EIO : CN_OK;
}

size_t cn_coap_message_size(const coap_pdu_t *pdu)
{
    size_t size = 4 + coap_pdu_get_token(pdu).length;
    coap_opt_iterator_t options;
    const uint8_t *body;
    size_t body_size;
    coap_opt_t *option;

    coap_option_iterator_init(pdu, &options, COAP_OPT_ALL);
    while ((option = coap_option_next(&options)))
        size += coap_opt_size(option);
    if (coap_get_data(pdu, &body_size, &body) && body_size)
        size += 1 + body_size;
    return size;
}

static bool is_ipv4(const coap_address_t *address)
{
    return address->addr.sa.sa_family == AF_INET ||
           IN6_IS_ADDR_V4MAPPED(&address->addr.sin6.sin6_addr);
}

// Returns the bytes on the wire of a CoAP message, for ChaCha20-Poly1305, whose records have no
// explicit nonce (RFC 7905). With a connection ID of 8 bytes the content is followed by its type
// and padded to a multiple of 16 (RFC 9146, 4).
static size_t wire_size(const coap_session_t *session, size_t message, bool to_server)
{
    size_t ip = is_ipv4(coap_session_get_addr_remote(session)) ? 20 : 40;
    size_t segments;

    if (coap_session_get_proto(session) != COAP_PROTO_TLS)
        return to_server ? ip + 8 + 13 + 8 + (message + 16) / 16 * 16 + 16
                         : ip + 8 + 13 + message + 16;
    message += 5 + 16;
    segments = (message + SEGMENT - 1) / SEGMENT;
    return message + segments * (ip + 32);
}

void cn_coap_count(const coap_session_t *session, const coap_pdu_t *pdu, bool to_server,
                   struct cn_link_bytes *bytes)
{
    size_t size = cn_coap_message_size(pdu), body_size;
    const uint8_t *body;

    if (coap_get_data(pdu, &body_size, &body))
        bytes->payload += body_size;
    bytes->messages += size;
    bytes->wire += wire_size(session, size, to_server);
}
