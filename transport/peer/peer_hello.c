#include "transport/peer/peer_hello.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/port/crypto.h"
#include "transport/coap/address.h"

#define MISSED_MS 2000 // time for a session to recover by itself
#define CALL_MS 1000   // time between the first calls
#define CALLS 10       // number of first calls
#define REST_MS 10000  // time between later calls: a board that is off does not hear
#define BURST 16       // most calls that are read at a time
#define INTERFACES 32  // most interfaces that are called from

#define KIND "cairn-hello-1 "
#define TAG_SIZE 32 // digits of a tag

static const char *port_of(const char *address)
{
    const char *colon = strrchr(address, ':');

    return colon ? colon + 1 : "";
}

static bool has_key(const struct cn_member *member)
{
    static const uint8_t none[CN_KEY_SIZE];

    return memcmp(member->pair_key, none, CN_KEY_SIZE) != 0;
}

// Makes the tag, which proves that the writer of head knows the pair's key.
static cn_err make_tag(const struct cn_member *member, const char *head, char tag[TAG_SIZE + 1])
{
    uint8_t derived[CN_KEY_SIZE];
    cn_err err = cn_crypto_derive(member->pair_key, head, derived);

    for (int i = 0; !err && i < TAG_SIZE / 2; i++)
        snprintf(tag + 2 * i, 3, "%02x", derived[i]);
    cn_crypto_wipe(derived, sizeof(derived));
    return err;
}

size_t cn_peer_hello_encode(const struct cn_peer_hello *hello, const char *host,
                            char text[CN_PEER_HELLO_MAX])
{
    char head[CN_PEER_HELLO_MAX], tag[TAG_SIZE + 1];
    size_t size = (size_t)snprintf(head, sizeof(head), KIND "%s %s:%s",
                                   hello->members[hello->self].name, host, hello->port);

    snprintf(text, CN_PEER_HELLO_MAX, "%s", head);
    for (uint32_t i = 0; i < hello->count; i++) {
        if (i == hello->self || !has_key(&hello->members[i]))
            continue;
        if (size + TAG_SIZE + 2 > CN_PEER_HELLO_MAX || make_tag(&hello->members[i], head, tag))
            return 0;
        size += (size_t)snprintf(text + size, CN_PEER_HELLO_MAX - size, " %s", tag);
    }
    return size;
}

static uint32_t find_member(const struct cn_peer_hello *hello, const char *name, size_t length)
{
    uint32_t i = 0;

    while (i < hello->count && (i == hello->self || strlen(hello->members[i].name) != length ||
                                memcmp(hello->members[i].name, name, length) != 0))
        i++;
    return i;
}

// Finds tag in tags, in which a blank precedes each tag.
static bool has_tag(const char *tags, const char tag[TAG_SIZE + 1])
{
    while (strlen(tags) > TAG_SIZE && tags[0] == ' ') {
        if (cn_crypto_compare(tags + 1, tag, TAG_SIZE) == 0)
            return true;
        tags += 1 + TAG_SIZE;
    }
    return false;
}

bool cn_peer_hello_decode(const struct cn_peer_hello *hello, const char *bytes, size_t size,
                          uint32_t *member, char address[CN_ADDRESS_SIZE])
{
    char text[CN_PEER_HELLO_MAX], head[CN_PEER_HELLO_MAX], tag[TAG_SIZE + 1];
    const char *name = text + strlen(KIND), *place;
    size_t name_size, place_size;
    struct cn_address parsed;

    if (size >= sizeof(text) || memchr(bytes, '\0', size))
        return false;
    memcpy(text, bytes, size);
    text[size] = '\0';
    if (strncmp(text, KIND, strlen(KIND)) != 0)
        return false;
    name_size = strcspn(name, " ");
    *member = find_member(hello, name, name_size);
    if (*member == hello->count || !has_key(&hello->members[*member]) || !name[name_size])
        return false;
    place = name + name_size + 1;
    place_size = strcspn(place, " ");
    if (place_size >= CN_ADDRESS_SIZE)
        return false;
    snprintf(address, CN_ADDRESS_SIZE, "%.*s", (int)place_size, place);
    snprintf(head, sizeof(head), "%.*s", (int)(place + place_size - text), text);
    return !make_tag(&hello->members[*member], head, tag) && has_tag(place + place_size, tag) &&
           !cn_address_parse(address, &parsed);
}

static bool listens_everywhere(const char *listen)
{
    struct cn_address address;
    struct sockaddr_in in;

    if (cn_address_parse(listen, &address) || address.storage.ss_family != AF_INET)
        return false;
    memcpy(&in, &address.storage, sizeof(in));
    return in.sin_addr.s_addr == htonl(INADDR_ANY);
}

static bool open_socket(struct cn_peer_hello *hello)
{
    const struct sockaddr_in all = {.sin_family = AF_INET, .sin_port = htons(CN_PEER_HELLO_PORT)};
    int yes = 1; // other members on this machine must hear the same calls

    hello->socket = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return hello->socket >= 0 &&
           !setsockopt(hello->socket, SOL_SOCKET, SO_BROADCAST, &yes, sizeof(yes)) &&
           !setsockopt(hello->socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) &&
           !bind(hello->socket, (const struct sockaddr *)(const void *)&all, sizeof(all));
}

void cn_peer_hello_init(struct cn_peer_hello *hello, const char *listen,
                        const struct cn_member *members, uint32_t count, uint32_t self)
{
    *hello = (struct cn_peer_hello){.members = members, .count = count, .self = self, .socket = -1};
    snprintf(hello->port, sizeof(hello->port), "%s", port_of(listen));
    if (!listens_everywhere(listen) || open_socket(hello))
        return;
    cn_log(CN_LOG_WARN, "peer",
           "UDP port %u cannot be used: members that all move at once will not find this board",
           CN_PEER_HELLO_PORT);
    cn_peer_hello_deinit(hello);
}

void cn_peer_hello_deinit(struct cn_peer_hello *hello)
{
    if (hello->socket >= 0)
        close(hello->socket);
    hello->socket = -1;
}

static void call_on(const struct cn_peer_hello *hello, const struct ifreq *interface)
{
    int wanted = IFF_UP | IFF_BROADCAST;
    struct ifreq flags = *interface, netmask = *interface;
    struct sockaddr_in to, mask;
    char host[INET_ADDRSTRLEN], text[CN_PEER_HELLO_MAX];
    size_t size;

    memcpy(&to, &interface->ifr_addr, sizeof(to));
    if (to.sin_family != AF_INET || ioctl(hello->socket, SIOCGIFFLAGS, &flags) ||
        (flags.ifr_flags & wanted) != wanted || ioctl(hello->socket, SIOCGIFNETMASK, &netmask) ||
        !inet_ntop(AF_INET, &to.sin_addr, host, sizeof(host)))
        return;
    memcpy(&mask, &netmask.ifr_netmask, sizeof(mask));
    size = cn_peer_hello_encode(hello, host, text);
    to.sin_addr.s_addr |= ~mask.sin_addr.s_addr; // broadcast address of the interface's network
    to.sin_port = htons(CN_PEER_HELLO_PORT);
    if (size && sendto(hello->socket, text, size, 0, (const struct sockaddr *)(const void *)&to,
                       sizeof(to)) < 0)
        cn_log(CN_LOG_DEBUG, "peer", "a call to the members from %s could not be sent", host);
}

// Calls on all interfaces. Does not use getifaddrs, which needs AF_NETLINK: the package's unit file
// denies it.
static void call_everywhere(const struct cn_peer_hello *hello)
{
    struct ifreq interfaces[INTERFACES];
    struct ifconf list = {.ifc_len = sizeof(interfaces), .ifc_req = interfaces};

    if (ioctl(hello->socket, SIOCGIFCONF, &list))
        return; // the next call tries again
    for (size_t i = 0; i < (size_t)list.ifc_len / sizeof(interfaces[0]); i++)
        call_on(hello, &interfaces[i]);
}

void cn_peer_hello_step(struct cn_peer_hello *hello, bool missing, uint64_t now_ms)
{
    if (hello->socket < 0)
        return;
    if (!missing) {
        hello->calls = 0;
        hello->due_ms = now_ms + MISSED_MS;
    } else if (now_ms >= hello->due_ms) {
        hello->due_ms = now_ms + (hello->calls < CALLS ? CALL_MS : REST_MS);
        hello->calls++;
        call_everywhere(hello);
    }
}

bool cn_peer_hello_hear(struct cn_peer_hello *hello, uint32_t *member,
                        char address[CN_ADDRESS_SIZE])
{
    char bytes[CN_PEER_HELLO_MAX];

    for (int i = 0; hello->socket >= 0 && i < BURST; i++) {
        ssize_t size = recv(hello->socket, bytes, sizeof(bytes), 0);

        if (size < 0)
            return false;
        if (cn_peer_hello_decode(hello, bytes, (size_t)size, member, address))
            return true;
    }
    return false;
}
