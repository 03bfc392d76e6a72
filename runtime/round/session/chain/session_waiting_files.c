// session_waiting_files.c - the files with what waits to be sent: their names, what is in them, and
// when they are removed.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/port/crypto.h"
#include "runtime/round/checkpoint/part_file.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/round/session/session_waiting.h"

#define VALUES 4096 // values that are rounded at a time
#define SETS 4      // most sets whose files a board keeps

bool cn_session_divides_waiting(const struct cn_session *session)
{
    return cn_session_is_cut(session) && session->plan.chain.parts > 1 &&
           !session->config.job->keep_optimizer && !cn_session_has_local(session);
}

// Returns a number that tells cuts apart.
static uint32_t cut_of(const struct cn_session *session)
{
    uint8_t digest[CN_DIGEST_SIZE];

    cn_crypto_digest(session->cut.holders,
                     session->layout->tensor_count * sizeof(*session->cut.holders), digest);
    return cn_get_u32(digest);
}

struct cn_session_counts cn_session_counts_now(const struct cn_session *session)
{
    const struct cn_checkpoint *held = &session->held;
    const struct cn_session_counts *since = &session->steps.unsaved_counts;

    return (struct cn_session_counts){.samples = held->samples + since->samples,
                                      .cursor = held->cursor + since->cursor,
                                      .train_loss = held->train_loss + since->train_loss};
}

void cn_session_describe_waiting(const struct cn_session *session, uint32_t part,
                                 const struct cn_session_new_set *set,
                                 struct cn_part_header *header, uint32_t *tensors)
{
    const struct cn_checkpoint *held = &session->held;

    *header = (struct cn_part_header){.run = held->run,
                                      .lineage = held->lineage,
                                      .round = held->round,
                                      .step = held->steps,
                                      .parts = session->cut.at.parts,
                                      .samples = set->counts.samples,
                                      .cursor = set->counts.cursor,
                                      .train_loss = set->counts.train_loss,
                                      .arrays = CN_PART_WAITING,
                                      .part = part,
                                      .cut = cut_of(session)};
    memcpy(header->base, held->base_digest, sizeof(header->base));
    cn_part_set_contents(header, &set->digests);
    for (size_t t = 0; t < session->layout->tensor_count; t++) {
        if (!(session->cut.holders[t] >> part & 1))
            continue;
        tensors[header->tensors++] = (uint32_t)t;
        header->values += session->layout->tensors[t].count;
    }
}

bool cn_session_can_wait(const float *values, size_t count)
{
    bool can = true;

    for (size_t i = 0; can && i < count; i++)
        can = fabsf(values[i]) <= CN_SESSION_WAITING_MAX;
    return can;
}

cn_err cn_session_allocate_waiting(struct cn_session_waiting *rows, size_t count)
{
    *rows = (struct cn_session_waiting){
        .next = cn_scratch_allocate((count + 1) * sizeof(*rows->next)),
        .change = cn_scratch_allocate((count + 1) * sizeof(*rows->change))};
    return rows->next && rows->change ? CN_OK : CN_ENOMEM;
}

void cn_session_free_waiting(struct cn_session_waiting *rows)
{
    cn_scratch_free(rows->next);
    cn_scratch_free(rows->change);
    *rows = (struct cn_session_waiting){0};
}

static void add_to_digest(void *to, const float *values, size_t count)
{
    cn_sha256_add(to, values, count * sizeof(*values));
}

static void put_rounded(const struct cn_session *session, cn_checkpoint_put *put, void *to,
                        const float *values, size_t count)
{
    float rounded[VALUES];

    if (session->config.job->options.residual != CN_RESIDUAL_BF16) {
        put(to, values, count);
        return;
    }
    for (size_t done = 0, some; done < count; done += some) {
        some = count - done < VALUES ? count - done : VALUES;
        memcpy(rounded, values + done, some * sizeof(*rounded));
        cn_row_round(rounded, some);
        put(to, rounded, some);
    }
}

static void put_rows(const struct cn_session *session, cn_checkpoint_put *put, void *to,
                     const struct cn_session_waiting *rows, size_t count)
{
    put_rounded(session, put, to, rows->next, count);
    put_rounded(session, put, to, rows->change, count);
}

void cn_session_digest_waiting(const struct cn_session *session,
                               const struct cn_part_header *header, const uint32_t *tensors,
                               const struct cn_session_waiting *rows,
                               uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_sha256 sha;

    cn_sha256_init(&sha);
    cn_sha256_add(&sha, tensors, header->tensors * sizeof(*tensors));
    put_rows(session, add_to_digest, &sha, rows, (size_t)header->values);
    cn_sha256_finish(&sha, digest);
}

cn_err cn_session_write_waiting(const struct cn_session *session,
                                const struct cn_part_header *header,
                                const struct cn_part_digests *digests, const uint32_t *tensors,
                                const struct cn_session_waiting *rows)
{
    struct cn_part_writer *writer = malloc(sizeof(*writer));
    char name[CN_WAITING_NAME_SIZE];
    cn_err err = writer ? CN_OK : CN_ENOMEM;

    if (!err && !cn_session_has_room(session))
        err = CN_ENOSPC;
    if (!err) {
        cn_waiting_name(cn_part_state(header), header->part, name);
        cn_part_writer_begin(writer, session->config.store, name, header, digests, tensors);
        put_rows(session, cn_part_writer_put, writer, rows, (size_t)header->values);
        err = cn_part_writer_end(writer, CN_OK);
    }
    free(writer);
    return err;
}

// --- what this board has ---

void cn_session_list_waiting(struct cn_session *session, struct cn_waiting_offers *own)
{
    uint64_t set = session->held.waiting.set;

    *own = (struct cn_waiting_offers){0};
    for (uint32_t p = 0; p < CN_CUT_PARTS_MAX; p++) {
        struct cn_part_header header;
        char name[CN_WAITING_NAME_SIZE];
        cn_err err;

        cn_waiting_name(set, p, name);
        err = cn_part_file_check(session->config.store, name, session->layout, &header);
        if (!err &&
            (cn_part_state(&header) != set || header.part != p || header.arrays != CN_PART_WAITING))
            err = CN_ESTALE;
        if (!err) {
            own->parts |= 1 << p;
            own->tensors[p] = header.tensors;
            own->values[p] = (int64_t)header.values;
        } else if (err != CN_ENOTFOUND) {
            cn_log(CN_LOG_WARN, "session", "%s is not used: %s", name, cn_err_text(err));
        }
    }
}

bool cn_session_is_offer(const struct cn_session *session, const struct cn_waiting_offers *offers,
                         uint32_t part)
{
    const struct cn_layout *layout = session->layout;

    return offers->parts >> part & 1 && offers->tensors[part] >= 0 && offers->values[part] >= 0 &&
           (uint64_t)offers->tensors[part] <= layout->tensor_count &&
           (uint64_t)offers->values[part] <= layout->total;
}

// --- removal ---

// A walk over the files: which sets there are, or the removal of some.
struct walk {
    struct cn_store *store;
    // Files of later rounds than its state stay; NULL: they go, too.
    const struct cn_session *session;
    uint64_t keep[3]; // sets that stay
    uint64_t found[SETS + 1];
    uint32_t count; // of found, at most SETS + 1
};

static cn_err find_set(void *context, const char *name)
{
    struct walk *walk = context;
    uint32_t part, i = 0;
    uint64_t set;

    if (!cn_waiting_parse(name, &set, &part))
        return CN_OK;
    while (i < walk->count && walk->found[i] != set)
        i++;
    if (i == walk->count && walk->count < SETS + 1)
        walk->found[walk->count++] = set;
    return CN_OK;
}

// The state of another member may name the set of a later round, with a part that only this board
// has: its own state may be older, where its disk has refused a newer one.
static bool is_later(const struct cn_session *session, const char *name)
{
    const struct cn_checkpoint *held = &session->held;
    struct cn_part_header header;
    cn_err err = cn_part_file_read(session->config.store, name, session->layout, &header);

    if (err)
        return err != CN_EFORMAT; // it may be one
    return header.run == held->run && header.lineage == held->lineage && header.round > held->round;
}

static cn_err remove_other(void *context, const char *name)
{
    const struct walk *walk = context;
    uint32_t part;
    uint64_t set;
    cn_err err;

    if (!cn_waiting_parse(name, &set, &part) || set == walk->keep[0] || set == walk->keep[1] ||
        set == walk->keep[2] || (walk->session && is_later(walk->session, name)))
        return CN_OK;
    err = walk->store->ops->remove(walk->store, name);
    if (err)
        cn_log(CN_LOG_WARN, "session", "%s stays: %s", name, cn_err_text(err));
    return CN_OK;
}

static void remove_others(struct cn_session *session, struct walk *walk)
{
    cn_err err = walk->store->ops->list(walk->store, remove_other, walk);

    if (err)
        cn_log(CN_LOG_WARN, "session", "%s: %s", session->config.settings->state, cn_err_text(err));
}

void cn_session_forget_waiting(struct cn_session *session)
{
    struct walk walk = {.store = session->config.store,
                        .session = session,
                        .keep = {session->held.waiting.set, session->disk.named}};

    remove_others(session, &walk);
}

// Attempts to end a round that were broken off leave sets that another member may name; so a few of
// them stay.
void cn_session_bound_waiting(struct cn_session *session, uint64_t set)
{
    struct walk walk = {.store = session->config.store,
                        .keep = {session->held.waiting.set, session->disk.named, set}};

    (void)walk.store->ops->list(walk.store, find_set, &walk);
    if (walk.count > SETS)
        remove_others(session, &walk);
}
