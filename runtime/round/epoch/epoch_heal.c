#include "runtime/round/epoch/epoch_heal.h"
#include "runtime/group/purpose.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/log_limit.h"
#include "runtime/group/ranks.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/port/scratch.h"
#include "runtime/round/epoch/epoch_limits.h"
#include "runtime/round/epoch/recovery.h"

// --- messages of the members ---

// The int64 numbers that a member sends.
enum word {
    LINEAGE,
    RUN,
    ROUND,
    PHASE,
    STEP,
    SAMPLES,
    COUNTED_ROUND,
    COUNTED_OWN,
    COUNTED,
    FRAME,
    HOLDS,
    APPLIED,
    BUSY,
    VOTES, // votes of the last step that was applied
    WORDS = VOTES + CN_STEP_VOTES
};

struct table {
    int64_t words[CN_GROUP_MAX][WORDS];
    struct cn_recovery_row rows[CN_GROUP_MAX];
    uint32_t source;
};

static void put_words(const struct cn_session *session, int64_t *words)
{
    const float *votes = cn_session_applied_votes(session);
    struct cn_state_tag tag;

    cn_epoch_tag(session, &tag);
    words[LINEAGE] = tag.lineage;
    words[RUN] = (int64_t)tag.run;
    words[ROUND] = tag.round;
    words[PHASE] = tag.phase;
    words[STEP] = tag.step;
    words[SAMPLES] = (int64_t)tag.samples;
    words[COUNTED_ROUND] = tag.counted_round;
    words[COUNTED_OWN] = tag.counted_own;
    memcpy(&words[COUNTED], tag.counted, CN_TAG_DIGEST_SIZE);
    memcpy(&words[FRAME], tag.frame, CN_TAG_DIGEST_SIZE);
    words[HOLDS] = (int64_t)cn_session_holds(session);
    words[APPLIED] = (int64_t)cn_session_applied(session);
    words[BUSY] = (int64_t)(1e3 * cn_session_busy_ms(session));
    for (uint32_t v = 0; v < CN_STEP_VOTES; v++)
        memcpy(&words[VOTES + v], &votes[v], sizeof(float));
}

static void get_row(const int64_t *words, struct cn_recovery_row *row)
{
    *row = (struct cn_recovery_row){
        .tag = {.lineage = (uint32_t)words[LINEAGE],
                .run = (uint64_t)words[RUN],
                .round = (uint32_t)words[ROUND],
                .phase = (uint32_t)words[PHASE],
                .step = (uint32_t)words[STEP],
                .samples = (uint64_t)words[SAMPLES],
                .counted_round = (uint32_t)words[COUNTED_ROUND],
                .counted_own = words[COUNTED_OWN] != 0},
        .holds = (uint64_t)words[HOLDS],
        .applied = (uint64_t)words[APPLIED],
        .busy_us = (uint64_t)words[BUSY],
    };
    memcpy(row->tag.counted, &words[COUNTED], CN_TAG_DIGEST_SIZE);
    memcpy(row->tag.frame, &words[FRAME], CN_TAG_DIGEST_SIZE);
}

// Exchanges the members' rows. All members choose the same source: one with the state that the view
// names.
static cn_err exchange_rows(struct cn_epoch *epoch, struct table *table)
{
    uint32_t size = epoch->view.view.size;
    struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                      .type = CN_INT64,
                                      .data = table->words,
                                      .count = (size_t)size * WORDS,
                                      .fingerprint = CN_PURPOSE_HEAL_ROWS};
    cn_err err;

    put_words(epoch->session, table->words[epoch->view.view.rank]);
    err = epoch->collective->ops->run(epoch->collective, &call);
    if (err)
        return err;
    for (uint32_t r = 0; r < size; r++)
        get_row(table->words[r], &table->rows[r]);
    table->source = cn_recovery_source(table->rows, size, epoch->view.source);
    return CN_OK;
}

// --- the step at which the last epoch was interrupted ---

static cn_err complete_step(struct cn_epoch *epoch, const struct table *table)
{
    struct cn_session *session = epoch->session;
    const int64_t *words = table->words[table->source] + VOTES;
    float votes[CN_STEP_VOTES];

    switch (cn_recovery_decide(&table->rows[epoch->view.view.rank], &table->rows[table->source])) {
    case CN_RECOVERY_NOTHING:
        return CN_OK;
    case CN_RECOVERY_DROP:
        return cn_session_drop_sums(session);
    case CN_RECOVERY_ROLL_FORWARD:
        break;
    }
    for (uint32_t v = 0; v < CN_STEP_VOTES; v++)
        memcpy(&votes[v], &words[v], sizeof(float));
    cn_log(CN_LOG_INFO, "epoch", "round %u: step %u is completed with the sums that are held",
           cn_session_held(session)->round, cn_session_held(session)->step + 1);
    return cn_session_roll_forward(session, votes);
}

// --- pieces that differ ---

// A transfer of the source's state in pieces.
struct transfer {
    // On members other than the source: this member's bytes, replaced piece by piece.
    struct cn_buffer state; // its data is memory of scratch.h
    size_t piece, count;    // bytes of a piece; number of pieces
    uint8_t *digests;       // digests of the source's pieces
    int64_t *wanted;        // by piece, then by rank: whether the rank wants the piece
    size_t lacks;           // number of pieces that this member wants
    size_t came;            // number of these pieces that have arrived
};

// Gives the state room for size bytes in all, in memory of scratch.h: cn_buffer itself must not
// have to grow.
static cn_err make_room(const struct cn_session *session, struct cn_buffer *state, size_t size)
{
    uint8_t *data;

    if (size <= state->capacity)
        return CN_OK;
    if (size > state->limit)
        return CN_ERANGE;
    data = cn_session_allocate_state(session, size);
    if (!data)
        return CN_ENOMEM;
    if (state->size)
        memcpy(data, state->data, state->size);
    cn_scratch_free(state->data);
    state->data = data;
    state->capacity = size;
    return CN_OK;
}

// Encodes the state without the values that differ from board to board.
static cn_err encode_shared(struct cn_session *session, struct cn_buffer *state)
{
    struct cn_checkpoint shared;
    size_t size;
    cn_err err = cn_session_snapshot(session);

    shared = *cn_session_held(session);
    shared.counter = shared.epoch = 0;
    if (!err)
        err = cn_checkpoint_size(&shared, &size);
    if (!err)
        err = make_room(session, state, size);
    return err ? err : cn_checkpoint_encode(&shared, state);
}

static size_t size_of(const struct transfer *transfer, size_t index)
{
    size_t rest = transfer->state.size - index * transfer->piece;

    return rest < transfer->piece ? rest : transfer->piece;
}

static bool is_piece(const struct transfer *transfer, size_t index, const uint8_t *bytes)
{
    uint8_t digest[CN_DIGEST_SIZE];

    cn_crypto_digest(bytes, size_of(transfer, index), digest);
    return memcmp(digest, transfer->digests + index * CN_DIGEST_SIZE, CN_DIGEST_SIZE) == 0;
}

// Returns whether this member has the piece, in its own state or from a transfer that was cut off.
static bool has_piece(struct transfer *transfer, size_t index, const struct cn_buffer *part)
{
    size_t begin = index * transfer->piece, size = size_of(transfer, index);

    if (is_piece(transfer, index, transfer->state.data + begin))
        return true;
    if (part->size < begin + size || !is_piece(transfer, index, part->data + begin))
        return false;
    memcpy(transfer->state.data + begin, part->data + begin, size);
    return true;
}

static cn_err broadcast(struct cn_epoch *epoch, const struct cn_set *set, uint32_t source,
                        void *data, size_t size, enum cn_purpose what)
{
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_BROADCAST,
                                            .set = set,
                                            .peer = source,
                                            .data = data,
                                            .count = size,
                                            .fingerprint = what};

    return epoch->collective->ops->run(epoch->collective, &call);
}

static cn_err allocate(struct transfer *transfer)
{
    transfer->count = (transfer->state.size + transfer->piece - 1) / transfer->piece;
    transfer->digests = calloc(transfer->count + 1, CN_DIGEST_SIZE);
    transfer->wanted = calloc(transfer->count + CN_GROUP_MAX, sizeof(*transfer->wanted));
    return transfer->digests && transfer->wanted ? CN_OK : CN_ENOMEM;
}

static const char *name_of(const struct cn_epoch *epoch, uint32_t rank)
{
    const struct cn_settings *settings = cn_session_get_config(epoch->session)->settings;

    return settings->group.members[epoch->view.view.ranks[rank]].name;
}

// Chooses the source of the state and its size: the first member that holds the newest state and
// could encode it. encoded is the result of this member's encoding.
static cn_err find_source(struct cn_epoch *epoch, struct table *table, const struct transfer *own,
                          cn_err encoded, uint64_t *size)
{
    uint32_t count = epoch->view.view.size, rank = epoch->view.view.rank;

    for (;;) {
        uint8_t header[8];
        cn_err err;

        cn_put_u64(header, encoded ? 0 : own->state.size);
        err = broadcast(epoch, NULL, table->source, header, sizeof(header), CN_PURPOSE_HEAL_SIZE);
        *size = cn_get_u64(header);
        if (err || *size)
            return err;
        cn_log(CN_LOG_WARN, "epoch", "%s cannot give its state%s%s", name_of(epoch, table->source),
               rank == table->source ? ": " : "",
               rank == table->source ? cn_err_text(encoded) : "");
        table->rows[table->source].unable = true;
        table->source = cn_recovery_source(table->rows, count, table->source);
        if (table->source == count)
            return encoded ? encoded : CN_EAGAIN;
    }
}

// Broadcasts the size and digests of the source's pieces. Bytes that a member lacks count as zeros:
// pieces of zeros, which a state often has, need no transfer.
static cn_err tell_pieces(struct cn_epoch *epoch, uint32_t source, uint64_t size,
                          struct transfer *transfer)
{
    bool gives = epoch->view.view.rank == source;
    cn_err err = size > transfer->state.limit
                     ? CN_ERANGE
                     : make_room(epoch->session, &transfer->state, (size_t)size);

    if (!err)
        err = cn_buffer_resize(&transfer->state, (size_t)size);
    if (!err)
        err = allocate(transfer);
    if (err)
        return err;
    for (size_t i = 0; gives && i < transfer->count; i++)
        cn_crypto_digest(transfer->state.data + i * transfer->piece, size_of(transfer, i),
                         transfer->digests + i * CN_DIGEST_SIZE);
    return broadcast(epoch, NULL, source, transfer->digests, transfer->count * CN_DIGEST_SIZE,
                     CN_PURPOSE_HEAL_DIGESTS);
}

static cn_err tell_wanted(struct cn_epoch *epoch, uint32_t source, struct transfer *transfer)
{
    const struct cn_buffer *part = cn_session_part(epoch->session);
    uint32_t rank = epoch->view.view.rank;
    struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_REDUCE,
                                      .how = CN_REDUCE_MAX,
                                      .type = CN_INT64,
                                      .data = transfer->wanted,
                                      .count = transfer->count + CN_GROUP_MAX,
                                      .fingerprint = CN_PURPOSE_HEAL_WANTED};

    for (size_t i = 0; rank != source && i < transfer->count; i++) {
        transfer->wanted[i] = !has_piece(transfer, i, part);
        transfer->lacks += transfer->wanted[i] != 0;
    }
    transfer->wanted[transfer->count + rank] = transfer->lacks > 0;
    return epoch->collective->ops->run(epoch->collective, &call);
}

// Returns the source and the ranks that lack a piece; 0 if none does.
static uint32_t find_ranks(const struct cn_epoch *epoch, uint32_t source,
                           const struct transfer *transfer)
{
    uint32_t ranks = 0;

    for (uint32_t r = 0; r < epoch->view.view.size; r++)
        ranks |= (uint32_t)(transfer->wanted[transfer->count + r] != 0) << r;
    return ranks ? ranks | 1u << source : 0;
}

static cn_err move_pieces(struct cn_epoch *epoch, uint32_t source, const struct cn_set *set,
                          struct transfer *transfer)
{
    bool whole = set->size == epoch->view.view.size;

    for (size_t i = 0; i < transfer->count; i++) {
        uint8_t *bytes = transfer->state.data + i * transfer->piece;
        cn_err err;

        if (!transfer->wanted[i])
            continue;
        err = broadcast(epoch, whole ? NULL : set, source, bytes, size_of(transfer, i),
                        CN_PURPOSE_HEAL_PIECE);
        if (!err && !is_piece(transfer, i, bytes))
            err = CN_EDIGEST;
        if (err)
            return err;
        transfer->came++;
    }
    return CN_OK;
}

// Transfers the pieces. Those that arrive before a transfer is cut off are kept for the next epoch.
static cn_err take(struct cn_epoch *epoch, uint32_t source, const struct cn_set *set,
                   struct transfer *transfer)
{
    struct cn_session *session = epoch->session;
    cn_err err;

    if (transfer->lacks)
        cn_log(CN_LOG_INFO, "epoch", "taking %zu of %zu pieces of the state from %s",
               transfer->lacks, transfer->count, name_of(epoch, source));
    err = move_pieces(epoch, source, set, transfer);
    if (epoch->view.view.rank == source)
        return err;
    cn_session_keep_part(session, NULL);
    if (!err) {
        uint32_t most = cn_epoch_newest_round(epoch);

        err = cn_session_take(session, transfer->state.data, transfer->state.size, most);
        if (err == CN_ERANGE)
            cn_epoch_disbelieve(epoch, source, most);
        if (err == CN_EFORMAT)
            cn_log_within(cn_log_quota_of(epoch->lines, name_of(epoch, source)),
                          cn_platform_now_ms(), CN_LOG_ERROR, "epoch",
                          "%s gave a state that cannot be used", name_of(epoch, source));
        return err;
    }
    cn_log(CN_LOG_WARN, "epoch",
           "%zu pieces of the state arrived; they are kept for the next epoch", transfer->came);
    cn_session_keep_part(session, &transfer->state);
    return err;
}

static cn_err level(struct cn_epoch *epoch, struct table *table, struct transfer *transfer)
{
    // A member that cannot encode its state takes all of the source's.
    cn_err encoded = encode_shared(epoch->session, &transfer->state);
    uint32_t ranks, source;
    struct cn_set set;
    uint64_t size;
    cn_err err = find_source(epoch, table, transfer, encoded, &size);

    source = table->source;
    if (!err)
        err = tell_pieces(epoch, source, size, transfer);
    if (!err)
        err = tell_wanted(epoch, source, transfer);
    if (err)
        return err;
    ranks = find_ranks(epoch, source, transfer);
    if (!(ranks >> epoch->view.view.rank & 1))
        return CN_OK;
    set = cn_ranks_set(ranks);
    return take(epoch, source, &set, transfer);
}

cn_err cn_epoch_heal(struct cn_epoch *epoch)
{
    struct transfer transfer = {.piece = epoch->piece ? epoch->piece : CN_HEAL_PIECE};
    struct table table = {0};
    cn_err err;

    if (epoch->view.view.size == 1) {
        err = cn_session_drop_sums(epoch->session);
        return err ? err
                   : cn_session_take_parts(epoch->session, epoch->collective, &epoch->view.view);
    }
    cn_buffer_init(&transfer.state, cn_session_state_limit(epoch->session));
    err = exchange_rows(epoch, &table);
    if (!err)
        err = complete_step(epoch, &table);
    if (!err)
        err = level(epoch, &table, &transfer);
    cn_scratch_free(transfer.state.data);
    free(transfer.digests);
    free(transfer.wanted);
    return err ? err : cn_session_take_parts(epoch->session, epoch->collective, &epoch->view.view);
}
