#include "ports/tcp/candidates.h"

#include <string.h>

#include "ports/tcp/socket.h"

static bool same(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, CN_CANDIDATES_SOURCE) == 0;
}

// Returns how many connections a source would have, with the new one.
static size_t count_of(const struct cn_candidates *candidates, const uint8_t *source,
                       const uint8_t *newcomer)
{
    size_t count = same(source, newcomer);

    for (size_t i = 0; i < CN_CANDIDATES; i++)
        count += candidates->pairs[i] && same(candidates->sources[i], source);
    return count;
}

size_t cn_candidates_place(const struct cn_candidates *candidates,
                           const uint8_t source[CN_CANDIDATES_SOURCE])
{
    size_t found = 0, most = 0;

    for (size_t i = 0; i < CN_CANDIDATES; i++) {
        if (!candidates->pairs[i])
            return i;
        size_t count = count_of(candidates, candidates->sources[i], source);
        if (count > most || (count == most && candidates->since[i] < candidates->since[found])) {
            most = count;
            found = i;
        }
    }
    return found;
}

void cn_candidates_add(struct cn_candidates *candidates, struct cn_pair *pair)
{
    uint8_t source[CN_CANDIDATES_SOURCE];

    cn_socket_source(cn_pair_descriptor(pair), source);
    size_t place = cn_candidates_place(candidates, source);
    cn_pair_close(candidates->pairs[place]);
    candidates->pairs[place] = pair;
    candidates->since[place] = candidates->count++;
    memcpy(candidates->sources[place], source, sizeof(source));
}

void cn_candidates_close(struct cn_candidates *candidates)
{
    for (size_t i = 0; i < CN_CANDIDATES; i++)
        cn_pair_close(candidates->pairs[i]);
    *candidates = (struct cn_candidates){0};
}
