#include "transport/coap_common.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "runtime/base/log.h"

#define BURST 64 // datagrams

// What strangers on the network can provoke must not fill the log: libcoap's warnings are for
// debugging.
static void write_log(coap_log_t level, const char *message)
{
    int length = (int)strcspn(message, "\n");

    cn_log(level == COAP_LOG_EMERG ? CN_LOG_WARN : CN_LOG_DEBUG, "libcoap", "%.*s", length,
           message);
}

void cn_coap_start(void)
{
    coap_startup();
    coap_set_log_handler(write_log);
    coap_set_log_level(COAP_LOG_WARN);
}

void cn_coap_allow_files(uint32_t sessions)
{
    struct rlimit limit;

    rlim_t wanted = 2 * (rlim_t)sessions;

    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit); // as many as there may be
}

void cn_coap_address(const struct cn_address *from, coap_address_t *to)
{
    coap_address_init(to);
    memcpy(&to->addr, &from->storage, from->size);
    to->size = from->size;
}

void cn_coap_drain(coap_context_t *coap)
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
