#include "transport/peer/peer_coap.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/log_limit.h"
#include "runtime/group/membership_wire.h"
#include "runtime/port/platform.h"
#include "transport/coap/address.h"
#include "transport/coap/coap_client.h"
#include "transport/coap/coap_server.h"
#include "transport/peer/peer_hello.h"

#define HANDSHAKE_MS 2000
// After this silence a member that was asked may have a new process, so the link connects again.
#define SILENCE_MS 1000
#define RETRY_MAX_MS 1000
#define REOPEN_MS 500   // time between two attempts after signs of life from a member
#define TELL_MS 1000    // time between two messages that tell others where a member is
#define INBOX 64        // most waiting messages; the oldest is dropped
#define HINT_PATH "at/" // followed by the name of a member
#define KEY_LABEL "cairn/1 pair dtls"

struct message {
    uint32_t member;
    size_t size;
    uint8_t bytes[CN_PEER_MESSAGE_MAX];
};

struct peer {
    struct cn_exchange *exchange; // NULL for this board, members without a key and after an error
    uint8_t key[CN_KEY_SIZE];
    uint64_t opened_ms;
    bool told;                     // it was logged that the member refuses this board
    struct cn_log_quota lines;     // log lines about its address and its refusals
    char address[CN_ADDRESS_SIZE]; // address of the current attempt or session
    char at[CN_ADDRESS_SIZE];      // address at which it answered last; "": never
    // Address from which it was heard or that a hint gave, if not the one in the list; else "".
    char other[CN_ADDRESS_SIZE];
    bool hinted; // another member or a call on the LAN gave an address: it is to be tried
};

struct peer_link {
    struct cn_peer_link base;
    const struct cn_member *members;
    uint32_t count, self;
    int epoll_fd;
    struct cn_coap_server *server;
    uint64_t tag;
    uint64_t told_ms; // time at which addresses were last told to others
    struct cn_peer_hello hello;
    struct peer peers[CN_GROUP_MAX];
    struct message inbox[INBOX];
    uint32_t inbox_begin, inbox_count;
};

// The resources of the message types (GROUP.md).
static const char *const names[] = {
    [CN_MEMBERSHIP_JOIN] = "join",       [CN_MEMBERSHIP_BUSY] = "busy",
    [CN_MEMBERSHIP_COMMIT] = "commit",   [CN_MEMBERSHIP_HEARTBEAT] = "hb",
    [CN_MEMBERSHIP_SUSPECT] = "suspect", [CN_MEMBERSHIP_PREPARE] = "prepare",
    [CN_MEMBERSHIP_READY] = "ready",     [CN_MEMBERSHIP_BYE] = "bye",
};

static const char *name_of(uint8_t type)
{
    return type < sizeof(names) / sizeof(names[0]) ? names[type] : NULL;
}

static uint32_t find_member(const struct peer_link *link, const char *board)
{
    uint32_t i = 0;

    while (i < link->count && (i == link->self || strcmp(link->members[i].name, board) != 0))
        i++;
    return i;
}

static bool has_key(const struct cn_member *member)
{
    static const uint8_t none[CN_KEY_SIZE];

    return memcmp(member->pair_key, none, CN_KEY_SIZE) != 0;
}

static cn_err watch(struct peer_link *link, int descriptor)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(link->epoll_fd, EPOLL_CTL_ADD, descriptor, &event) ? CN_EIO : CN_OK;
}

// Any answer shows that the session works; its content does not matter.
static bool take_reply(void *context, const struct cn_exchange_reply *reply)
{
    const struct cn_member *member = context;

    if (reply->code >= CN_COAP_BAD_REQUEST)
        cn_log(CN_LOG_DEBUG, "peer", "%s answers %u.%02u", member->name, reply->code / 32,
               reply->code % 32);
    return true;
}

// Returns the address to try next. It alternates between the address where the member was last
// heard and the one in the list.
static const char *next_address(const struct peer_link *link, uint32_t index)
{
    const struct peer *peer = &link->peers[index];
    const char *listed = link->members[index].address;

    return peer->other[0] && strcmp(peer->address, listed) == 0 ? peer->other : listed;
}

static cn_err connect_to(struct peer_link *link, uint32_t index)
{
    struct peer *peer = &link->peers[index];
    const char *address = peer->address;
    struct cn_coap_client_config config = {
        .board = link->members[link->self].name,
        .addresses = &address,
        .address_count = 1,
        .handshake_ms = HANDSHAKE_MS,
        .silence_ms = SILENCE_MS,
        .retry_max_ms = RETRY_MAX_MS,
        .transport = CN_LINK_UDP,
    };
    cn_err err;

    if (peer->exchange)
        peer->exchange->ops->close(peer->exchange);
    peer->exchange = NULL;
    peer->opened_ms = cn_platform_now_ms();
    snprintf(peer->address, sizeof(peer->address), "%s", next_address(link, index));
    memcpy(config.key, peer->key, CN_KEY_SIZE);
    err = cn_coap_client_open(&config, &peer->exchange);
    cn_crypto_wipe(config.key, sizeof(config.key));
    if (err)
        return err;
    peer->exchange->sink = take_reply;
    peer->exchange->context = (void *)&link->members[index];
    return watch(link, peer->exchange->descriptor);
}

static bool is_up(const struct peer *peer)
{
    return peer->exchange && peer->exchange->state == CN_EXCHANGE_UP;
}

static bool has_moved(const struct peer_link *link, uint32_t index)
{
    const char *at = link->peers[index].at;

    return at[0] && strcmp(at, link->members[index].address) != 0;
}

static void note_place(struct peer_link *link, uint32_t index)
{
    struct peer *peer = &link->peers[index];
    const struct cn_member *member = &link->members[index];
    bool moved = has_moved(link, index);

    if (!is_up(peer) || strcmp(peer->at, peer->address) == 0)
        return;
    memcpy(peer->at, peer->address, sizeof(peer->at));
    if (has_moved(link, index))
        cn_log_within(&peer->lines, cn_platform_now_ms(), CN_LOG_INFO, "peer",
                      "%s answers at %s; group.members says %s", member->name, peer->at,
                      member->address);
    else if (moved)
        cn_log_within(&peer->lines, cn_platform_now_ms(), CN_LOG_INFO, "peer",
                      "%s answers at %s again", member->name, peer->at);
}

static void tell_refusal(struct peer_link *link, uint32_t index)
{
    struct peer *peer = &link->peers[index];
    enum cn_exchange_state state = peer->exchange->state;

    if (state == CN_EXCHANGE_REFUSED && !peer->told)
        cn_log_within(&peer->lines, cn_platform_now_ms(), CN_LOG_WARN, "peer",
                      "%s refuses this board: %s", link->members[index].name, peer->exchange->text);
    if (state == CN_EXCHANGE_UP || state == CN_EXCHANGE_REFUSED)
        peer->told = state == CN_EXCHANGE_REFUSED;
}

// Tries at once: a member that was heard can be reached now.
static void hurry(struct peer_link *link, uint32_t index)
{
    struct peer *peer = &link->peers[index];

    if (is_up(peer))
        return;
    if (cn_platform_now_ms() - peer->opened_ms < REOPEN_MS)
        return;
    if (connect_to(link, index))
        cn_log(CN_LOG_WARN, "peer", "%s: no memory for a session", link->members[index].name);
}

// Tries the address of a hint. A handshake in progress is left to finish, because hints may be old
// messages that somebody repeats.
static void follow_hint(struct peer_link *link, uint32_t index)
{
    struct peer *peer = &link->peers[index];

    if (!peer->hinted || (!is_up(peer) && cn_platform_now_ms() - peer->opened_ms < HANDSHAKE_MS))
        return;
    hurry(link, index);
    peer->hinted = false;
}

static void put_message(struct peer_link *link, uint32_t member, const uint8_t *bytes, size_t size)
{
    struct message *message;

    if (link->inbox_count == INBOX) {
        link->inbox_begin = (link->inbox_begin + 1) % INBOX;
        link->inbox_count--;
    }
    message = &link->inbox[(link->inbox_begin + link->inbox_count++) % INBOX];
    message->member = member;
    message->size = size;
    memcpy(message->bytes, bytes, size);
}

// Notes the address from which a member was heard while this board is not connected to it.
static void note_address(struct peer_link *link, uint32_t index, const char *address)
{
    struct peer *peer = &link->peers[index];
    const char *listed = link->members[index].address;

    if (is_up(peer) || !peer->exchange)
        return;
    snprintf(peer->other, sizeof(peer->other), "%s", strcmp(address, listed) == 0 ? "" : address);
}

static void note_sender(struct peer_link *link, uint32_t index, const struct cn_address *from)
{
    char address[CN_ADDRESS_SIZE];

    if (from && !cn_address_print(from, link->members[index].address, address, sizeof(address)))
        note_address(link, index, address);
}

// Takes another member's hint about where a member is. A wrong hint does no harm: no handshake
// succeeds there.
static void take_hint(struct peer_link *link, const struct cn_coap_request *request,
                      struct cn_coap_reply *reply)
{
    uint32_t member = find_member(link, request->path + strlen(HINT_PATH));
    struct cn_address parsed;
    char address[CN_ADDRESS_SIZE];

    if (member < link->count && request->size < sizeof(address)) {
        memcpy(address, request->body, request->size);
        address[request->size] = '\0';
        if (strlen(address) == request->size && !cn_address_parse(address, &parsed)) {
            note_address(link, member, address);
            link->peers[member].hinted = true;
            reply->code = CN_COAP_CHANGED;
            return;
        }
    }
    cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "not a member and its address");
}

static void handle(void *context, const struct cn_coap_request *request,
                   struct cn_coap_reply *reply)
{
    struct peer_link *link = context;
    uint32_t member = find_member(link, request->board);
    const char *name = request->size ? name_of(request->body[0]) : NULL;

    if (member == link->count) {
        cn_coap_reply_error(reply, CN_COAP_FORBIDDEN, "not a member");
        return;
    }
    if (strncmp(request->path, HINT_PATH, strlen(HINT_PATH)) == 0) {
        take_hint(link, request, reply);
        return;
    }
    if (request->size > CN_PEER_MESSAGE_MAX || !name || strcmp(request->path, name) != 0) {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "not a message of that name");
        return;
    }
    note_sender(link, member, request->from);
    put_message(link, member, request->body, request->size);
    reply->code = CN_COAP_CHANGED;
}

static cn_err find_key(void *context, const char *board, uint8_t key[CN_KEY_SIZE])
{
    const struct peer_link *link = context;
    uint32_t member = find_member(link, board);

    if (member == link->count || !has_key(&link->members[member]))
        return CN_EAUTH;
    memcpy(key, link->peers[member].key, CN_KEY_SIZE);
    return CN_OK;
}

static void send_hint(struct peer_link *link, uint32_t to, uint32_t member)
{
    const char *address = link->peers[member].at;
    char path[sizeof("g/" HINT_PATH) + CN_NAME_SIZE];
    const struct cn_exchange_request request = {
        .method = CN_COAP_POST,
        .path = path,
        .body = (const uint8_t *)address,
        .size = strlen(address),
        .tag = ++link->tag,
    };
    cn_err err;

    snprintf(path, sizeof(path), "g/" HINT_PATH "%s", link->members[member].name);
    err = link->peers[to].exchange->ops->send(link->peers[to].exchange, &request);
    if (err && err != CN_EAGAIN)
        cn_log(CN_LOG_DEBUG, "peer", "%s is not told where %s is: %s", link->members[to].name,
               link->members[member].name, cn_err_text(err));
}

// Tells all connected members the addresses of those that have moved: two members that have both
// moved cannot find each other. Repeats it, because a message may be lost.
static void tell_moved(struct peer_link *link)
{
    uint64_t now_ms = cn_platform_now_ms();

    if (now_ms - link->told_ms < TELL_MS)
        return;
    link->told_ms = now_ms;
    for (uint32_t member = 0; member < link->count; member++)
        for (uint32_t to = 0; has_moved(link, member) && to < link->count; to++)
            if (to != member && is_up(&link->peers[member]) && is_up(&link->peers[to]))
                send_hint(link, to, member);
}

static bool misses_members(const struct peer_link *link)
{
    for (uint32_t i = 0; i < link->count; i++)
        if (link->peers[i].exchange && !is_up(&link->peers[i]))
            return true;
    return false;
}

// Finds members that have all moved by their calls on the LAN. Anybody can repeat a call that he
// has heard, so only a few are read at a time.
static void find_moved(struct peer_link *link)
{
    char address[CN_ADDRESS_SIZE];
    uint32_t member;

    cn_peer_hello_step(&link->hello, misses_members(link), cn_platform_now_ms());
    for (uint32_t i = 0; i < link->count && cn_peer_hello_hear(&link->hello, &member, address);
         i++) {
        note_address(link, member, address);
        link->peers[member].hinted = true;
    }
}

static void step_all(struct peer_link *link)
{
    find_moved(link);
    if (cn_coap_server_step(link->server, 0))
        cn_log(CN_LOG_DEBUG, "peer", "the server's step failed; trying again");
    for (uint32_t i = 0; i < link->count; i++) {
        if (!link->peers[i].exchange)
            continue;
        link->peers[i].exchange->ops->step(link->peers[i].exchange);
        note_place(link, i);
        tell_refusal(link, i);
        follow_hint(link, i);
    }
    tell_moved(link);
}

static cn_err link_poll(struct cn_peer_link *base, uint32_t *member,
                        uint8_t message[CN_PEER_MESSAGE_MAX], size_t *size)
{
    struct peer_link *link = (struct peer_link *)base;
    const struct message *first;

    if (!link->inbox_count)
        step_all(link);
    if (!link->inbox_count)
        return CN_EAGAIN;
    first = &link->inbox[link->inbox_begin];
    *member = first->member;
    *size = first->size;
    memcpy(message, first->bytes, first->size);
    link->inbox_begin = (link->inbox_begin + 1) % INBOX;
    link->inbox_count--;
    hurry(link, *member);
    return CN_OK;
}

static cn_err link_send(struct cn_peer_link *base, uint32_t member, const void *message,
                        size_t size)
{
    struct peer_link *link = (struct peer_link *)base;
    struct cn_exchange_request request = {
        .method = CN_COAP_POST, .body = message, .size = size, .tag = ++link->tag};
    struct cn_exchange *exchange;
    const char *name;
    char path[16];
    cn_err err;

    if (member >= link->count || member == link->self || size == 0 || size > CN_PEER_MESSAGE_MAX)
        return CN_ERANGE;
    name = name_of(*(const uint8_t *)message);
    if (!name)
        return CN_EINVAL;
    exchange = link->peers[member].exchange;
    if (!exchange)
        return CN_OK; // treated like a lost message
    snprintf(path, sizeof(path), "g/%s", name);
    request.path = path;
    err = exchange->ops->send(exchange, &request);
    return err == CN_EAGAIN ? CN_OK : err;
}

static int link_descriptor(const struct cn_peer_link *base)
{
    return ((const struct peer_link *)base)->epoll_fd;
}

static void link_close(struct cn_peer_link *base)
{
    struct peer_link *link = (struct peer_link *)base;

    if (!link)
        return;
    for (uint32_t i = 0; i < CN_GROUP_MAX; i++)
        if (link->peers[i].exchange)
            link->peers[i].exchange->ops->close(link->peers[i].exchange);
    cn_coap_server_close(link->server);
    cn_peer_hello_deinit(&link->hello);
    if (link->epoll_fd >= 0)
        close(link->epoll_fd);
    cn_crypto_wipe(link, sizeof(*link));
    free(link);
}

static const char *link_address(const struct cn_peer_link *base, uint32_t member)
{
    const struct peer_link *link = (const struct peer_link *)base;

    return has_moved(link, member) ? link->peers[member].at : link->members[member].address;
}

static const struct cn_peer_link_ops link_ops = {
    .close = link_close,
    .descriptor = link_descriptor,
    .send = link_send,
    .poll = link_poll,
    .address = link_address,
};

static cn_err listen_at(struct peer_link *link, const char *address)
{
    static const struct cn_coap_route routes[] = {
        {.method = CN_COAP_POST, .prefix = "g", .handle = handle},
    };
    const struct cn_coap_server_config config = {
        .listen = &address,
        .listen_count = 1,
        .only_udp = true,
        .routes = routes,
        .route_count = 1,
        .context = link,
        .find_key = find_key,
        .handshakes_max = CN_GROUP_MAX,
        .sessions_max = 2 * CN_GROUP_MAX, // a new and an old session for each member
    };
    cn_err err = cn_coap_server_open(&config, &link->server);

    return err ? err : watch(link, cn_coap_server_descriptor(link->server));
}

static cn_err connect_all(struct peer_link *link)
{
    cn_err err = CN_OK;

    for (uint32_t i = 0; !err && i < link->count; i++) {
        if (i == link->self || !has_key(&link->members[i]))
            continue;
        err = cn_crypto_derive(link->members[i].pair_key, KEY_LABEL, link->peers[i].key);
        if (!err)
            err = connect_to(link, i);
    }
    return err;
}

// A board that is alone in its group for now would not notice that gradients cannot reach it.
static void tell_taken_port(const char *listen)
{
    const int one = 1; // connections that have ended do not count
    struct cn_address address;
    int fd;

    if (cn_address_resolve(listen, &address))
        return;
    fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) &&
        bind(fd, (const struct sockaddr *)&address.storage, address.size) && errno == EADDRINUSE)
        cn_log(CN_LOG_ERROR, "peer",
               "group.listen %s: another program uses this TCP port, and no gradients arrive",
               listen);
    close(fd);
}

cn_err cn_peer_coap_open(const char *listen, const struct cn_member *members, uint32_t count,
                         uint32_t self, struct cn_peer_link **opened)
{
    struct peer_link *link = calloc(1, sizeof(*link));
    cn_err err;

    assert(count >= 1 && count <= CN_GROUP_MAX && self < count);
    if (!link)
        return CN_ENOMEM;
    link->base.ops = &link_ops;
    link->members = members;
    link->count = count;
    link->self = self;
    cn_peer_hello_init(&link->hello, listen, members, count, self);
    link->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    err = link->epoll_fd < 0 ? CN_EIO : listen_at(link, listen);
    if (!err)
        err = connect_all(link);
    if (!err)
        tell_taken_port(listen);
    if (err) {
        link_close(&link->base);
        return err;
    }
    *opened = &link->base;
    return CN_OK;
}
