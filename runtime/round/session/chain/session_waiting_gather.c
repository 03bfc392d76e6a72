// session_waiting_gather.c - what waits to be sent, read from the files of a chain's members.
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/group/purpose.h"
#include "runtime/round/checkpoint/part_file.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/round/session/session_waiting.h"

#define PIECE ((size_t)1 << 20) // bytes that travel at a time

// The values that this board needs: of the tensors of its part, or of all.
struct wanted {
    struct cn_session *session;
    struct cn_collective *collective;
    struct cn_view view;
    float *part;          // in the order of the part's layout; NULL: whole
    struct cn_row *whole; // as the layout of the model; NULL: part
    size_t *at;           // owned; by tensor: place of its values in part; SIZE_MAX: not needed
    uint8_t *has;         // owned; by tensor: 1 once a checked file had it
    uint8_t *coming;      // owned; likewise, of the file that is read now
    bool odd;             // the file has a value that nothing can wait with
    uint8_t *piece;       // owned
    bool lost;            // no member has all
};

// Returns the tensor with the value `at` of a row.
static size_t tensor_of(const struct cn_layout *layout, size_t at)
{
    size_t low = 0, high = layout->tensor_count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (layout->tensors[middle].offset <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static const char *name_of_member(const struct wanted *wanted, uint32_t rank)
{
    return wanted->session->config.settings->group.members[wanted->view.ranks[rank]].name;
}

static cn_err run(const struct wanted *wanted, const struct cn_collective_call *call)
{
    return wanted->view.size > 1 ? wanted->collective->ops->run(wanted->collective, call) : CN_OK;
}

static void put(const struct wanted *wanted, size_t tensor, size_t first, const float *values,
                size_t count)
{
    size_t offset = wanted->session->layout->tensors[tensor].offset;

    if (wanted->part)
        memcpy(wanted->part + wanted->at[tensor] + (first - offset), values,
               count * sizeof(*values));
    else
        cn_row_write(wanted->whole, first, count, values);
}

static void take(void *context, enum cn_checkpoint_part array, size_t first, size_t count,
                 const float *values)
{
    struct wanted *wanted = context;
    size_t tensor = tensor_of(wanted->session->layout, first);

    if (array != (enum cn_checkpoint_part)wanted->session->held.waiting.array ||
        wanted->at[tensor] == SIZE_MAX || wanted->has[tensor])
        return;
    wanted->odd |= !cn_session_can_wait(values, count);
    wanted->coming[tensor] = 1;
    put(wanted, tensor, first, values, count);
}

// Ends a file: its tensors count if all of it was right, else their values become zeros again.
static void end_file(struct wanted *wanted, cn_err err)
{
    const struct cn_layout *layout = wanted->session->layout;
    static const float zeros[1024];

    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        if (wanted->coming[t] && !err && !wanted->odd) {
            wanted->has[t] = 1;
        } else if (wanted->coming[t]) {
            for (size_t done = 0, some; done < tensor->count; done += some) {
                some = tensor->count - done < 1024 ? tensor->count - done : 1024;
                put(wanted, t, tensor->offset + done, zeros, some);
            }
        }
        wanted->coming[t] = 0;
    }
    wanted->odd = false;
}

static bool has_all(const struct wanted *wanted)
{
    for (size_t t = 0; t < wanted->session->layout->tensor_count; t++)
        if (wanted->at[t] != SIZE_MAX && !wanted->has[t])
            return false;
    return true;
}

// --- this board's files ---

// Reads the files that have something that is still lacking, that of this board's part first.
static void read_own(struct wanted *wanted)
{
    struct cn_session *session = wanted->session;
    uint64_t set = session->held.waiting.set;

    for (uint32_t i = 0; i < CN_CUT_PARTS_MAX && !has_all(wanted); i++) {
        uint32_t part = (session->cut.part + i) % CN_CUT_PARTS_MAX;
        struct cn_part_header header;
        char name[CN_WAITING_NAME_SIZE];
        cn_err err;

        cn_waiting_name(set, part, name);
        err = cn_part_file_read(session->config.store, name, session->layout, &header);
        if (!err && (cn_part_state(&header) != set || header.arrays != CN_PART_WAITING))
            err = CN_ESTALE;
        if (!err)
            err = cn_part_file_take(session->config.store, name, session->layout, take, wanted,
                                    &header);
        end_file(wanted, err);
    }
}

// --- those of others ---

// A file that one member gives to those that lack something.
struct transfer {
    struct cn_set set;
    uint32_t source, part;
    uint64_t size;
};

// What all members said, and which of their files were given already.
struct offers {
    struct cn_waiting_offers of[CN_GROUP_MAX];
    uint32_t given[CN_GROUP_MAX]; // bit per part
    uint32_t lacking;             // bit per rank: it has not all that it needs
};

// Finds the first member with a file of this part that was not given yet.
static bool find_source(const struct wanted *wanted, struct offers *offers, uint32_t part,
                        struct transfer *transfer)
{
    for (uint32_t m = 0; m < wanted->view.size; m++) {
        const struct cn_waiting_offers *of = &offers->of[m];
        struct cn_part_header header = {.arrays = CN_PART_WAITING};

        if (offers->given[m] >> part & 1 || !cn_session_is_offer(wanted->session, of, part))
            continue;
        offers->given[m] |= 1u << part;
        header.tensors = (uint32_t)of->tensors[part];
        header.values = (uint64_t)of->values[part];
        *transfer = (struct transfer){.source = m, .part = part, .size = cn_part_size(&header)};
        return true;
    }
    return false;
}

static cn_err send_file(const struct wanted *wanted, const struct transfer *transfer,
                        struct cn_collective_call *call)
{
    struct cn_store *store = wanted->session->config.store;
    struct cn_store_file *file = NULL;
    char name[CN_WAITING_NAME_SIZE];
    uint64_t size;
    cn_err err = CN_OK, read;

    cn_waiting_name(wanted->session->held.waiting.set, transfer->part, name);
    read = store->ops->open(store, name, &file, &size);
    if (!read && size != transfer->size)
        read = CN_ESTALE;
    for (uint64_t at = 0; !err && at < transfer->size; at += call->count) {
        call->count = transfer->size - at < PIECE ? (size_t)(transfer->size - at) : PIECE;
        if (!read)
            read = store->ops->read(file, at, wanted->piece, call->count);
        if (read) // the others find that the digest is another
            memset(wanted->piece, 0, call->count);
        err = run(wanted, call);
    }
    store->ops->abort(file);
    return err;
}

static cn_err receive_file(struct wanted *wanted, const struct transfer *transfer,
                           struct cn_collective_call *call)
{
    struct cn_part_reader reader = {.left = 0};
    cn_err err = CN_OK, content = CN_OK;

    for (uint64_t at = 0; !err && at < transfer->size; at += call->count) {
        size_t head = at == 0 ? CN_PART_HEADER_SIZE : 0;

        call->count = transfer->size - at < PIECE ? (size_t)(transfer->size - at) : PIECE;
        err = run(wanted, call);
        if (err)
            break;
        if (head) {
            content =
                cn_part_reader_begin(&reader, wanted->session->layout, wanted->piece, take, wanted);
            if (!content && (cn_part_state(&reader.header) != wanted->session->held.waiting.set ||
                             reader.header.arrays != CN_PART_WAITING ||
                             reader.left != transfer->size - CN_PART_HEADER_SIZE))
                content = CN_ESTALE;
        }
        if (!content)
            content = cn_part_reader_put(&reader, wanted->piece + head, call->count - head);
    }
    if (!err && (content || wanted->odd))
        cn_log(CN_LOG_WARN, "session", "what waits at %s is not used: %s",
               name_of_member(wanted, transfer->source),
               content ? cn_err_text(content) : "a value is not finite or too large");
    end_file(wanted, err ? err : content);
    cn_part_reader_end(&reader);
    return err;
}

// Gives each part to the members that lack something. Sets *gave to whether there was a file left
// to give.
static cn_err bring_parts(struct wanted *wanted, struct offers *offers, bool *gave)
{
    uint32_t rank = wanted->view.rank;
    struct transfer transfer;
    cn_err err = CN_OK;

    *gave = false;
    for (uint32_t p = 0; !err && p < CN_CUT_PARTS_MAX; p++) {
        struct cn_collective_call call = {.kind = CN_COLLECTIVE_BROADCAST,
                                          .fingerprint = CN_PURPOSE_WAITING_BYTES};

        if (!find_source(wanted, offers, p, &transfer))
            continue;
        *gave = true;
        transfer.set = cn_ranks_set(offers->lacking | 1u << transfer.source);
        if (transfer.set.size == 1 || !(transfer.set.id >> rank & 1))
            continue;
        call.set = transfer.set.size == wanted->view.size ? NULL : &transfer.set;
        call.peer = transfer.source;
        call.data = wanted->piece;
        err = rank == transfer.source ? send_file(wanted, &transfer, &call)
                                      : receive_file(wanted, &transfer, &call);
    }
    return err;
}

static cn_err exchange(struct wanted *wanted, struct offers *offers)
{
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                            .type = CN_INT64,
                                            .data = offers->of,
                                            .count = wanted->view.size *
                                                     (sizeof(offers->of[0]) / sizeof(int64_t)),
                                            .fingerprint = CN_PURPOSE_WAITING_OFFERS};
    cn_err err;

    offers->of[wanted->view.rank].has_all = has_all(wanted);
    err = run(wanted, &call);
    offers->lacking = 0;
    for (uint32_t m = 0; m < wanted->view.size; m++)
        offers->lacking |= (uint32_t)(offers->of[m].has_all == 0) << m;
    return err;
}

// Whoever lacks something is told of all files, and given them. One that turns out to be wrong is
// replaced by that of another member, while there is one.
static cn_err bring(struct wanted *wanted)
{
    struct offers *offers = calloc(1, sizeof(*offers));
    bool gave = true;
    cn_err err = offers ? CN_OK : CN_ENOMEM;

    if (err)
        return err;
    read_own(wanted);
    err = exchange(wanted, offers);
    if (!err && offers->lacking) {
        cn_session_list_waiting(wanted->session, &offers->of[wanted->view.rank]);
        err = exchange(wanted, offers);
    }
    while (!err && offers->lacking && gave) {
        err = bring_parts(wanted, offers, &gave);
        if (!err && gave)
            err = exchange(wanted, offers);
    }
    wanted->lost = offers->lacking != 0;
    for (uint32_t m = 0; !err && m < wanted->view.size; m++)
        if (offers->lacking >> m & 1)
            cn_log(CN_LOG_WARN, "session",
                   "round %u: %s needs what earlier updates left out of its part, and no member "
                   "that is here has all of it: what is missing is lost",
                   wanted->session->held.round, name_of_member(wanted, m));
    free(offers);
    return err;
}

// The members of the epoch.
static struct cn_view view_of(const struct cn_session *session)
{
    const struct cn_reducer *reducer = session->reducer;
    struct cn_view view = {.size = 1, .ranks = {session->planning.seat}};

    if (!reducer)
        return view;
    view = (struct cn_view){.size = reducer->size, .rank = reducer->rank};
    memcpy(view.ranks, reducer->members, sizeof(view.ranks));
    return view;
}

static cn_err allocate(struct wanted *wanted)
{
    const struct cn_session *session = wanted->session;
    const struct cn_layout *own = cn_trainer_layout(session->trainer);
    size_t count = session->layout->tensor_count;

    wanted->at = calloc(count + 1, sizeof(*wanted->at));
    wanted->has = calloc(count + 1, 1);
    wanted->coming = calloc(count + 1, 1);
    wanted->piece = malloc(PIECE);
    if (!wanted->at || !wanted->has || !wanted->coming || !wanted->piece)
        return CN_ENOMEM;
    for (size_t t = 0; t < count; t++)
        wanted->at[t] = wanted->whole ? session->layout->tensors[t].offset : SIZE_MAX;
    for (size_t t = 0; wanted->part && t < own->tensor_count; t++)
        wanted->at[cn_trainer_whole_tensor(session->trainer, t)] = own->tensors[t].offset;
    return CN_OK;
}

static cn_err read_wanted(struct wanted *wanted)
{
    cn_err err = allocate(wanted);

    if (!err)
        err = bring(wanted);
    free(wanted->at);
    free(wanted->has);
    free(wanted->coming);
    free(wanted->piece);
    return err;
}

cn_err cn_session_read_waiting(struct cn_session *session, struct cn_collective *collective,
                               float *part, bool *lost)
{
    struct wanted wanted = {session, collective, .view = view_of(session), .part = part};
    cn_err err = read_wanted(&wanted);

    *lost = wanted.lost;
    return err;
}

cn_err cn_session_gather_waiting(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_checkpoint *held = &session->held;
    struct cn_row whole = {0};
    struct wanted wanted = {session, collective, .view = view_of(session), .whole = &whole};
    cn_err err;

    if (!held->waiting.set)
        return CN_OK;
    err = cn_row_allocate(&whole, held->total,
                          session->config.job->options.residual == CN_RESIDUAL_BF16);
    if (!err)
        err = read_wanted(&wanted);
    if (err) {
        cn_row_deinit(&whole);
        return err;
    }
    held->resets += wanted.lost;
    held->residual = whole;
    held->waiting = (struct cn_waiting_set){0};
    cn_session_change_row(session, CN_ROWS_RESIDUAL);
    return CN_OK;
}
