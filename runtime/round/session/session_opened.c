// session_opened.c - the members tell each other whether they could open their trainers, and who
// lacks memory.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/group/purpose.h"
#include "runtime/round/session/session_chain.h"

// What a member tells, in numbers that travel.
enum opened_word { ERROR, BYTES, LIMIT, PART, SHARDS, OPENED_WORDS };

static void own_words(const struct cn_session *session, cn_err own, int64_t words[OPENED_WORDS])
{
    words[ERROR] = own;
    if (own != CN_ENOMEM)
        return;
    words[BYTES] = (int64_t)session->chain.lacked.bytes;
    words[LIMIT] = (int64_t)session->config.settings->memory_limit;
    words[PART] = session->chain.lacked.part;
    words[SHARDS] = session->chain.lacked.shards;
}

// Says what a member has too little memory for. The member itself reports it, too.
static void tell_lacking(struct cn_session *session, uint32_t rank,
                         const int64_t words[OPENED_WORDS])
{
    uint32_t parts = session->cut.at.parts > 1 ? session->cut.at.parts : 1;
    int64_t part = words[PART] < parts ? words[PART] + 1 : parts; // a member says it
    char text[CN_FAULT_SIZE];

    if (!words[BYTES])
        snprintf(text, sizeof(text), "%s has no memory for its share of the model",
                 cn_session_member(session, rank)->name);
    else
        snprintf(text, sizeof(text),
                 "%s lacks memory: part %" PRId64 " of %u in %" PRId64 " share%s takes %" PRId64
                 " bytes, and memory.train_max is %" PRId64,
                 cn_session_member(session, rank)->name, part, parts, words[SHARDS],
                 words[SHARDS] == 1 ? "" : "s", words[BYTES], words[LIMIT]);
    cn_log(CN_LOG_WARN, "chain", "%s", text);
    if (rank == session->planning.sets->view.rank)
        memcpy(session->chain.lack, text, sizeof(text));
}

cn_err cn_session_agree_opened(struct cn_session *session, struct cn_collective *collective,
                               uint32_t ranks, cn_err own, uint32_t *lacking)
{
    const struct cn_view *view = &session->planning.sets->view;
    int64_t words[CN_GROUP_MAX][OPENED_WORDS] = {{0}};
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                            .type = CN_INT64,
                                            .data = words,
                                            .count = (size_t)view->size * OPENED_WORDS,
                                            .fingerprint = CN_PURPOSE_OPENED};
    cn_err err = CN_OK;

    own_words(session, own, words[view->rank]);
    if (view->size > 1)
        err = collective->ops->run(collective, &call);
    *lacking = 0;
    session->chain.lack[0] = '\0';
    for (uint32_t r = 0; !err && r < view->size; r++) {
        if (!(ranks >> r & 1) || !words[r][ERROR])
            continue;
        *lacking |= 1u << r;
        if (words[r][ERROR] == CN_ENOMEM)
            tell_lacking(session, r, words[r]);
    }
    return err;
}
