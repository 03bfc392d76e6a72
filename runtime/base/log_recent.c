#include "runtime/base/log_recent.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *ring;     // NULL: nothing is kept
static size_t room;    // bytes of ring
static uint64_t added; // bytes added since open; the next one goes to added % room

cn_err cn_log_recent_open(size_t size)
{
    char *made = malloc(size);

    if (!made)
        return CN_ENOMEM;
    pthread_mutex_lock(&lock);
    free(ring);
    ring = made;
    room = size;
    added = 0;
    pthread_mutex_unlock(&lock);
    return CN_OK;
}

void cn_log_recent_close(void)
{
    pthread_mutex_lock(&lock);
    free(ring);
    ring = NULL;
    room = 0;
    pthread_mutex_unlock(&lock);
}

bool cn_log_recent_is_open(void)
{
    bool open;

    pthread_mutex_lock(&lock);
    open = room > 0;
    pthread_mutex_unlock(&lock);
    return open;
}

void cn_log_recent_add(const char *line, size_t length)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; room && i < length; i++)
        ring[added++ % room] = line[i];
    pthread_mutex_unlock(&lock);
}

// Returns where the newest whole lines begin, as the number of bytes that were added before them.
static uint64_t find_begin(uint32_t lines, size_t size)
{
    uint64_t oldest = added > room ? added - room : 0, begin = added, place = added;

    while (lines > 0 && place > oldest && added - (place - 1) <= size) {
        place--;
        if (place > oldest ? ring[(place - 1) % room] != '\n' : added > room)
            continue; // no line begins here, or the beginning of this one is lost
        begin = place;
        lines--;
    }
    return begin;
}

size_t cn_log_recent_read(uint32_t lines, char *to, size_t size)
{
    size_t length = 0;

    pthread_mutex_lock(&lock);
    for (uint64_t place = room ? find_begin(lines, size) : added; place < added; place++)
        to[length++] = ring[place % room];
    pthread_mutex_unlock(&lock);
    return length;
}
