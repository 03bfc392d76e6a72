#include "transport/coap/address.h"

#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_SIZE 300

static cn_err split(const char *text, char host[TEXT_SIZE], const char **port)
{
    const char *colon = strrchr(text, ':');
    size_t size = colon ? (size_t)(colon - text) : 0;

    if (!size || size >= TEXT_SIZE || !colon[1])
        return CN_EINVAL;
    if (text[0] == '[' && text[size - 1] == ']') {
        text++;
        size -= 2;
    } else if (memchr(text, ':', size)) {
        return CN_EINVAL; // an IPv6 address needs its brackets
    }
    memcpy(host, text, size);
    host[size] = 0;
    *port = colon + 1;
    return CN_OK;
}

static void add(struct cn_address_list *list, const struct addrinfo *entry)
{
    struct cn_address *address = &list->at[list->count++];

    memset(address, 0, sizeof(*address));
    memcpy(&address->storage, entry->ai_addr, entry->ai_addrlen);
    address->size = entry->ai_addrlen;
}

static cn_err find(const char *text, int flags, struct cn_address_list *list)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = flags | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char host[TEXT_SIZE];
    const char *port;
    cn_err err = split(text, host, &port);
    int result;

    if (err)
        return err;
    result = getaddrinfo(host, port, &hints, &found);
    if (result)
        return result == EAI_MEMORY ? CN_ENOMEM : CN_ENOTFOUND;
    list->count = 0;
    for (const struct addrinfo *entry = found; entry && list->count < CN_ADDRESSES_MAX;
         entry = entry->ai_next)
        add(list, entry);
    freeaddrinfo(found);
    return CN_OK;
}

static cn_err find_first(const char *text, int flags, struct cn_address *address)
{
    struct cn_address_list list;
    cn_err err = find(text, flags, &list);

    if (!err)
        *address = list.at[0];
    return err;
}

cn_err cn_address_parse(const char *text, struct cn_address *address)
{
    return find_first(text, AI_NUMERICHOST, address);
}

cn_err cn_address_resolve(const char *text, struct cn_address *address)
{
    return find_first(text, AI_ADDRCONFIG, address);
}

cn_err cn_address_print(const struct cn_address *address, const char *text, char *printed,
                        size_t size)
{
    static const char mapped[] = "::ffff:"; // RFC 4291, 2.5.5.2
    const char *port = strrchr(text, ':');
    char host[NI_MAXHOST];
    const char *shown = host;
    bool brackets;

    if (!port || getnameinfo((const struct sockaddr *)&address->storage, address->size, host,
                             sizeof(host), NULL, 0, NI_NUMERICHOST))
        return CN_EINVAL;
    if (strncmp(host, mapped, strlen(mapped)) == 0 && strchr(host, '.'))
        shown += strlen(mapped);
    brackets = strchr(shown, ':') != NULL;
    return snprintf(printed, size, "%s%s%s%s", brackets ? "[" : "", shown, brackets ? "]" : "",
                    port) < (int)size
               ? CN_OK
               : CN_EINVAL;
}

struct cn_lookup {
    char text[TEXT_SIZE];
    struct cn_address_list found;
    cn_err result;
    atomic_bool done;
    atomic_int holders; // number of users: owner and thread; the last one to let go frees
};

static void let_go(struct cn_lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->holders, 1) == 1)
        free(lookup);
}

static void *look_up(void *argument)
{
    struct cn_lookup *lookup = argument;

    lookup->result = find(lookup->text, AI_ADDRCONFIG, &lookup->found);
    atomic_store(&lookup->done, true);
    let_go(lookup);
    return NULL;
}

cn_err cn_lookup_start(const char *text, struct cn_lookup **lookup)
{
    struct cn_lookup *started;
    pthread_t thread;

    if (strlen(text) >= TEXT_SIZE)
        return CN_EINVAL;
    started = calloc(1, sizeof(*started));
    if (!started)
        return CN_ENOMEM;
    snprintf(started->text, sizeof(started->text), "%s", text);
    atomic_store(&started->holders, 2);
    if (pthread_create(&thread, NULL, look_up, started)) {
        free(started);
        return CN_ENOMEM;
    }
    pthread_detach(thread);
    *lookup = started;
    return CN_OK;
}

cn_err cn_lookup_poll(struct cn_lookup *lookup, struct cn_address_list *found)
{
    if (!atomic_load(&lookup->done))
        return CN_EAGAIN;
    if (!lookup->result)
        *found = lookup->found;
    return lookup->result;
}

void cn_lookup_free(struct cn_lookup *lookup)
{
    if (lookup)
        let_go(lookup);
}
