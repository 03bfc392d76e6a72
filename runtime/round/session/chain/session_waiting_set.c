// session_waiting_set.c - what waits to be sent: the name of a round's set of files, in which all
// members have a part.
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/group/purpose.h"
#include "runtime/round/session/session_waiting.h"

#define WORDS (CN_DIGEST_SIZE / sizeof(uint32_t)) // numbers in which a digest travels

// The digests of the parts, in numbers: the largest of all members, and the least as -least. Those
// of a part that a member does not hold are below all others.
struct numbers {
    int64_t most[CN_CUT_PARTS_MAX][WORDS];
    int64_t least[CN_CUT_PARTS_MAX][WORDS];
};

static void put_own(const struct cn_session *session, const uint8_t digest[CN_DIGEST_SIZE],
                    struct numbers *numbers)
{
    for (size_t i = 0; i < WORDS; i++) {
        numbers->most[session->cut.part][i] = cn_get_u32(digest + i * sizeof(uint32_t));
        numbers->least[session->cut.part][i] = -numbers->most[session->cut.part][i];
    }
}

// Reads the digest that all members of a part have. Returns whether there is one.
static bool get(const struct numbers *numbers, uint32_t part, uint8_t digest[CN_DIGEST_SIZE])
{
    bool alike = true;

    for (size_t i = 0; i < WORDS; i++) {
        int64_t word = numbers->most[part][i];

        alike &= word >= 0 && word <= UINT32_MAX && numbers->least[part][i] == -word;
        cn_put_u32(digest + i * sizeof(uint32_t), (uint32_t)word);
    }
    return alike;
}

static cn_err gather(const struct cn_session *session, struct cn_collective *collective,
                     struct numbers *numbers, struct cn_part_digests *digests)
{
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_REDUCE,
                                            .how = CN_REDUCE_MAX,
                                            .type = CN_INT64,
                                            .data = numbers,
                                            .count = sizeof(*numbers) / sizeof(int64_t),
                                            .fingerprint = CN_PURPOSE_WAITING_DIGESTS};
    cn_err err = collective->ops->run(collective, &call);

    for (uint32_t p = 0; !err && p < session->cut.at.parts; p++)
        if (!get(numbers, p, digests->parts[p])) {
            cn_log(CN_LOG_WARN, "session",
                   "round %u: the members do not agree on what waits of part %u: one lies or is "
                   "broken",
                   session->held.round, p + 1);
            err = CN_EDIGEST;
        }
    return err;
}

cn_err cn_session_name_waiting(const struct cn_session *session, struct cn_collective *collective,
                               const struct cn_session_waiting *rows,
                               struct cn_session_new_set *set)
{
    uint32_t *tensors = calloc(session->layout->tensor_count + 1, sizeof(*tensors));
    struct cn_part_header header = {0};
    uint8_t digest[CN_DIGEST_SIZE];
    struct numbers numbers;
    cn_err err = tensors ? CN_OK : CN_ENOMEM;

    memset(set->digests.parts, 0, sizeof(set->digests.parts));
    memset(numbers.most, 0xff, sizeof(numbers.most));   // -1
    memset(numbers.least, 0x80, sizeof(numbers.least)); // below that of any digest
    if (!err)
        cn_session_describe_waiting(session, session->cut.part, set, &header, tensors);
    if (!err && rows) {
        cn_session_digest_waiting(session, &header, tensors, rows, digest);
        put_own(session, digest, &numbers);
    }
    if (!err)
        err = gather(session, collective, &numbers, &set->digests);
    if (!err) {
        cn_part_set_contents(&header, &set->digests);
        set->name = cn_part_state(&header);
    }
    free(tensors);
    return err;
}
