#include "runtime/round/session/session_chain.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/group/pipeline_order.h"
#include "runtime/port/crypto.h"

#define PIECE ((size_t)1 << 18) // values that are gathered at a time
#define SAMPLES_SEEN 4096       // most samples of a split in the fingerprint of a data set

enum fingerprint { AGREE = 0x70690001, PIECES };

// --- the cut ---

uint32_t cn_session_chain_micro(const struct cn_session *session)
{
    return session->chain.cut.parts * cn_job_accumulate(session->config.job);
}

static void set_part(struct cn_session *session, uint32_t part)
{
    session->chain.part = part;
    session->chain.slots =
        cn_pipeline_in_flight(session->chain.cut.parts, cn_session_chain_micro(session), part);
}

// Returns the part that this board gets if all members are there.
static uint32_t likely_part(const struct cn_session *session)
{
    const struct cn_settings *settings = session->config.settings;
    const struct cn_job *job = session->config.job;
    struct cn_set all = cn_ranks_set((1u << settings->group.member_count) - 1);
    struct cn_chain_place place;
    uint32_t own = 0;

    while (own < settings->group.member_count &&
           strcmp(settings->group.members[own].name, settings->name) != 0)
        own++;
    return cn_ranks_chain(&all, job->pipeline.parts, job->parallel.replicate, own, &place) ||
                   place.idle
               ? 0
               : place.part;
}

// Notes the number of words that pass each place of the cut.
static cn_err measure_cut(struct cn_session *session, const struct cn_graph *graph)
{
    const struct cn_cut *cut = &session->chain.cut;
    struct cn_cut_place *places = NULL;
    size_t count = 0;
    cn_err err = cn_cut_places(graph, &places, &count);

    for (size_t i = 0; !err && i < count; i++)
        for (uint32_t p = 0; p + 1 < cut->parts; p++)
            if (places[i].nodes == cut->places[p])
                session->chain.words[p] = places[i].words + places[i].gradient_words;
    free(places);
    return err;
}

static cn_err cut_graph(struct cn_session *session, const struct cn_graph *graph,
                        struct cn_diag *diag)
{
    const struct cn_pipeline_settings *settings = &session->config.job->pipeline;
    char text[512];
    struct cn_cut cut;
    cn_err err = settings->cut[0]
                     ? cn_cut_read(graph, &session->layout_own, settings->cut, diag, &cut)
                     : cn_trainer_choose_cut(graph, settings->parts, diag, &cut);

    if (err)
        return err;
    session->chain.holders =
        calloc(session->layout_own.tensor_count + 1, sizeof(*session->chain.holders));
    if (!session->chain.holders)
        return CN_ENOMEM;
    session->chain.cut = cut;
    err = cn_trainer_cut_text(graph, &cut, text, sizeof(text));
    if (!err)
        err = measure_cut(session, graph);
    if (err)
        return err;
    cn_log(CN_LOG_INFO, "chain", "parallel.cut %s: %s of the work",
           settings->cut[0] ? "as the job says" : "auto, equal work with the fewest values sent",
           text);
    return cn_cut_holders(graph, &session->layout_own, &cut, session->chain.holders);
}

cn_err cn_session_cut_model(struct cn_session *session, struct cn_diag *diag)
{
    const struct cn_session_config *config = &session->config;
    const struct cn_job *job = config->job;
    uint32_t parts = job->pipeline.parts, members = config->settings->group.member_count;
    struct cn_graph graph;
    cn_err err;

    if (config->alone || parts <= 1)
        return CN_OK;
    if (members < parts) {
        cn_diag_add(diag,
                    "parallel.pipeline of job '%s' is %u, and %u boards are in group.members "
                    "of this profile; wanted at least %u",
                    job->name, parts, members ? members : 1, parts);
        return CN_EINVAL;
    }
    err = cn_trainer_import(session->onnx, job->loss, &job->rules, diag, &session->layout_own,
                            &graph);
    if (err)
        return err;
    err = cut_graph(session, &graph, diag);
    cn_graph_deinit(&graph);
    if (!err)
        set_part(session, likely_part(session));
    return err;
}

// --- the samples ---

static size_t input_words(const struct cn_sample_shape *shape)
{
    size_t words = 0, one = 1;

    for (uint32_t i = 0; i < shape->input_count; i++) {
        one = 1;
        for (uint32_t d = 0; d < shape->inputs[i].rank; d++)
            one *= shape->inputs[i].dims[d];
        words += one;
    }
    if (shape->input_count)
        return words;
    for (uint32_t d = 0; d < shape->rank; d++)
        one *= shape->dims[d];
    return one;
}

static uint32_t look_at_split(const struct cn_session *session, enum cn_split split,
                              struct cn_batch *batch, uint32_t crc)
{
    uint64_t count = cn_dataset_count(session->data.set, split);
    uint64_t stride = count / SAMPLES_SEEN + 1;
    struct cn_sample_shape shape;

    cn_trainer_sample_shape(session->trainer, &shape);
    crc = cn_crc32c(crc, &count, sizeof(count));
    for (uint64_t i = 0; i < count; i += stride) {
        cn_dataset_range(session->data.set, split, i, 1, batch);
        crc = cn_crc32c(crc, batch->inputs, input_words(&shape) * sizeof(float));
        if (shape.loss == CN_LOSS_CROSS_ENTROPY)
            crc = cn_crc32c(crc, batch->labels, shape.rows * sizeof(*batch->labels));
        else if (shape.loss != CN_LOSS_OUTPUT)
            crc = cn_crc32c(crc, batch->targets, shape.outputs * sizeof(*batch->targets));
    }
    return crc;
}

cn_err cn_session_look_at_samples(struct cn_session *session, struct cn_diag *diag)
{
    struct cn_batch *batch = &session->data.batch;

    if (!cn_session_is_cut(session))
        return CN_OK;
    if (cn_dataset_is_open_ended(session->data.set)) {
        cn_diag_add(diag,
                    "data set '%s' is a folder, whose files may differ between the members of a "
                    "chain; wanted files with parallel.pipeline",
                    session->config.job->data_set);
        return CN_ENOTSUP;
    }
    session->chain.samples = look_at_split(session, CN_SPLIT_TRAIN, batch, 0);
    session->chain.samples =
        look_at_split(session, CN_SPLIT_HELD_OUT, batch, session->chain.samples);
    return CN_OK;
}

// --- chains ---

static const char *name_of(const struct cn_session *session, uint32_t rank)
{
    return session->config.settings->group.members[session->planning.sets->view.ranks[rank]].name;
}

uint32_t cn_session_most_frequent(const int64_t *samples, uint32_t size)
{
    uint32_t most = 0, found = 0;

    for (uint32_t r = 0; r < size; r++) {
        uint32_t count = 0;

        for (uint32_t other = 0; other < size; other++)
            count += samples[other] == samples[r];
        if (count > most) {
            most = count;
            found = r;
        }
    }
    return found;
}

// Says that a member is in no chain because its samples are not those of rank most. The member
// itself reports it, too.
static void tell_other_samples(struct cn_session *session, uint32_t rank, uint32_t most)
{
    char text[CN_FAULT_SIZE];

    snprintf(
        text, sizeof(text),
        "data set '%s' of %s has other samples than that of %s, and a chain needs the same: %s "
        "looks on",
        session->config.job->data_set, name_of(session, rank), name_of(session, most),
        name_of(session, rank));
    cn_log(CN_LOG_ERROR, "chain", "%s", text);
    if (rank == session->planning.sets->view.rank)
        memcpy(session->chain.why, text, sizeof(text));
}

// Exchanges the fingerprints of the samples. Sets *ranks to those that have the most frequent one.
static cn_err find_alike(struct cn_session *session, struct cn_collective *collective,
                         uint32_t *ranks)
{
    const struct cn_view *view = &session->planning.sets->view;
    int64_t samples[CN_GROUP_MAX] = {0};
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                            .type = CN_INT64,
                                            .data = samples,
                                            .count = view->size,
                                            .fingerprint = AGREE};
    uint32_t most;
    cn_err err;

    samples[view->rank] = session->chain.samples;
    err = collective->ops->run(collective, &call);
    most = cn_session_most_frequent(samples, view->size);
    *ranks = 0;
    for (uint32_t r = 0; !err && r < view->size; r++) {
        *ranks |= (uint32_t)(samples[r] == samples[most]) << r;
        if (samples[r] != samples[most])
            tell_other_samples(session, r, most);
    }
    return err;
}

// Says who is missing for a chain. Nobody trains in this epoch.
static void wait_for_members(struct cn_session *session, uint32_t ranks)
{
    const struct cn_group_settings *group = &session->config.settings->group;
    const struct cn_view *view = &session->planning.sets->view;
    char there[128], missing[128] = "", text[CN_FAULT_SIZE];
    size_t length = 0;

    cn_session_name_ranks(session, ranks, there, sizeof(there));
    for (uint32_t m = 0; m < group->member_count && length < sizeof(missing); m++) {
        uint32_t r = 0;

        while (r < view->size && view->ranks[r] != m)
            r++;
        if (r == view->size)
            length += (size_t)snprintf(missing + length, sizeof(missing) - length, "%s%s",
                                       length ? " " : "", group->members[m].name);
    }
    snprintf(text, sizeof(text), "a chain of %u parts cannot be made of %.80s: waiting for %.80s",
             session->chain.cut.parts, there,
             missing[0] ? missing : "members with the same samples");
    cn_log(CN_LOG_WARN, "chain", "%s", text);
    if (!session->chain.why[0]) // else it is the reason of this board
        memcpy(session->chain.why, text, sizeof(text));
    session->chain.waits = true;
}

static void set_plan(struct cn_session *session, const struct cn_chain_place *place)
{
    struct cn_session_sets *sets = session->planning.sets;
    struct cn_step_plan *plan = &session->plan;
    uint32_t micro = cn_session_chain_micro(session);

    plan->chain = *place;
    plan->train = place->all;
    plan->whole = place->all.size == sets->view.size;
    plan->trains = !place->idle;
    plan->place = place->part * place->replicas + place->replica;
    plan->micro = place->idle ? 0 : micro;
    plan->before = place->replica * micro;
    plan->total = place->replicas * micro;
    for (uint32_t p = 0; p < place->all.size; p++) {
        plan->seats[p] = sets->view.ranks[place->all.ranks[p]];
        session->planning.micro[p] = micro;
    }
    if (!place->idle) // random draws are those of the chain's first member
        session->planning.seat = sets->view.ranks[place->chain.ranks[0]];
    sets->train = sets->allowed = place->all.id & cn_session_everybody(sets);
    cn_session_name_ranks(session, sets->train, plan->names, sizeof(plan->names));
}

// Gives the trainer another part of the model.
static cn_err open_part(struct cn_session *session, uint32_t part)
{
    uint32_t before = session->chain.part, slots = session->chain.slots;
    cn_err err;

    set_part(session, part);
    if (part == before && session->chain.slots == slots)
        return CN_OK;
    err = cn_session_recall(session);
    if (!err)
        err = cn_session_reopen_trainer(session, 1, session->sharing.stage);
    if (!err)
        return cn_session_load_trainer(session);
    session->chain.part = before;
    session->chain.slots = slots;
    return cn_session_reopen_trainer(session, 1, session->sharing.stage) ? CN_EWEDGED : err;
}

static void tell(const struct cn_session *session)
{
    const struct cn_chain_place *place = &session->plan.chain;
    const struct cn_layout *layout = cn_trainer_layout(session->trainer);
    char names[128];

    cn_session_name_ranks(session, place->chain.id & cn_session_everybody(session->planning.sets),
                          names, sizeof(names));
    cn_log(CN_LOG_INFO, "chain",
           "part %u of %u, chain %u of %u (%s): %zu of %zu values, %u micro-batches a step, %u in "
           "flight, %" PRIu64 " bytes in all",
           place->part + 1, place->parts, place->replica + 1, place->replicas, names, layout->total,
           session->layout->total, session->plan.micro, session->chain.slots,
           cn_trainer_memory(session->trainer));
}

cn_err cn_session_form_chains(struct cn_session *session, struct cn_collective *collective)
{
    const struct cn_view *view = &session->planning.sets->view;
    struct cn_chain_place place;
    struct cn_set set;
    uint32_t ranks;
    cn_err err;

    session->chain.why[0] = '\0';
    err = find_alike(session, collective, &ranks);
    if (err)
        return err;
    set = cn_ranks_set(ranks);
    session->chain.waits = false;
    if (cn_ranks_chain(&set, session->chain.cut.parts, session->config.job->parallel.replicate,
                       view->rank, &place)) {
        wait_for_members(session, ranks);
        return CN_OK;
    }
    set_plan(session, &place);
    err = collective->ops->prepare(collective, &session->plan.train, 1);
    if (err || place.idle)
        return err;
    err = open_part(session, place.part);
    if (err)
        return err;
    tell(session);
    return cn_session_store_held(session);
}

bool cn_session_waits(const struct cn_session *session)
{
    return session->chain.waits;
}

// --- rows ---

cn_err cn_session_put_row(struct cn_session *session,
                          cn_err (*put)(struct cn_trainer *trainer, const float *row),
                          const float *row)
{
    float *part;
    cn_err err;

    if (!row || !cn_session_is_cut(session))
        return put(session->trainer, row);
    part = malloc((cn_trainer_layout(session->trainer)->total + 1) * sizeof(*part));
    if (!part)
        return CN_ENOMEM;
    cn_trainer_row_to_part(session->trainer, session->layout, row, part);
    err = put(session->trainer, part);
    free(part);
    return err;
}

// Copies the values of this board's part to their places in a whole row.
static cn_err own_values(struct cn_session *session,
                         cn_err (*get)(struct cn_trainer *trainer, float *row), float *row)
{
    float *part = calloc(cn_trainer_layout(session->trainer)->total + 1, sizeof(*part));
    cn_err err = part ? get(session->trainer, part) : CN_ENOMEM;

    if (!err)
        cn_trainer_part_to_row(session->trainer, session->layout, part, row);
    free(part);
    return err;
}

// Returns the part that gives a tensor to the others: the lowest that holds it.
static uint32_t owner_of(const struct cn_session *session, size_t tensor)
{
    return (uint32_t)__builtin_ctz(session->chain.holders[tensor]);
}

cn_err cn_session_gather_parts(struct cn_session *session, struct cn_collective *collective,
                               cn_err (*get)(struct cn_trainer *trainer, float *row), float *row,
                               uint32_t fingerprint)
{
    const struct cn_chain_place *place = &session->plan.chain;
    const struct cn_layout *layout = session->layout;
    cn_err err = own_values(session, get, row);

    for (size_t t = 0, next; !err && t < layout->tensor_count; t = next) {
        uint32_t owner = owner_of(session, t);
        size_t count = 0;
        struct cn_collective_call call = {.kind = CN_COLLECTIVE_BROADCAST,
                                          .set = &place->chain,
                                          .peer = place->chain.ranks[owner],
                                          .data = row + layout->tensors[t].offset,
                                          .fingerprint = fingerprint + (owner << 8)};

        for (next = t; next < layout->tensor_count && owner_of(session, next) == owner; next++)
            count += layout->tensors[next].count;
        call.count = count * sizeof(*row);
        if (count)
            err = collective->ops->run(collective, &call);
    }
    return err;
}

// The values of a row, from the first tensor to the last.
struct walk {
    size_t tensor, done; // next tensor of the whole model; values of it that are done
    size_t own;          // next tensor of this part
};

// Copies the next values that one owner has to buffer, if this board is the owner. Returns their
// number.
static size_t next_values(const struct cn_session *session, enum cn_trainer_row row,
                          const float *view, uint32_t owner, struct walk *walk, float *buffer)
{
    const struct cn_trainer *trainer = session->trainer;
    const struct cn_layout *layout = session->layout, *part = cn_trainer_layout(trainer);
    size_t filled = 0;

    while (walk->tensor < layout->tensor_count && owner_of(session, walk->tensor) == owner &&
           filled < PIECE) {
        size_t left = layout->tensors[walk->tensor].count - walk->done;
        size_t count = left < PIECE - filled ? left : PIECE - filled;

        while (walk->own < part->tensor_count &&
               cn_trainer_whole_tensor(trainer, walk->own) < walk->tensor)
            walk->own++;
        if (owner == session->chain.part)
            cn_trainer_get_part(trainer, row, view, part->tensors[walk->own].offset + walk->done,
                                count, buffer + filled);
        filled += count;
        walk->done += count;
        if (walk->done < layout->tensors[walk->tensor].count)
            continue;
        walk->tensor++;
        walk->done = 0;
    }
    return filled;
}

static cn_err gather_view(struct cn_session *session, struct cn_collective *collective,
                          enum cn_trainer_row row, const float *view, float *buffer,
                          cn_checkpoint_put *put, void *to)
{
    const struct cn_chain_place *place = &session->plan.chain;
    struct walk walk = {0};
    cn_err err = CN_OK;

    while (!err && walk.tensor < session->layout->tensor_count) {
        uint32_t owner = owner_of(session, walk.tensor);
        size_t count = next_values(session, row, view, owner, &walk, buffer);
        const struct cn_collective_call call = {.kind = CN_COLLECTIVE_BROADCAST,
                                                .set = &place->chain,
                                                .peer = place->chain.ranks[owner],
                                                .data = buffer,
                                                .count = count * sizeof(*buffer),
                                                .fingerprint = PIECES + ((uint32_t)row << 8)};

        if (count)
            err = collective->ops->run(collective, &call);
        if (!err)
            put(to, buffer, count);
    }
    return err;
}

cn_err cn_session_gather_pieces(struct cn_session *session, struct cn_collective *collective,
                                enum cn_session_row what, cn_checkpoint_put *put, void *to)
{
    static const enum cn_trainer_row rows[] = {[CN_ROW_WEIGHTS] = CN_TRAINER_WEIGHTS,
                                               [CN_ROW_OPTIMIZER] = CN_TRAINER_OPTIMIZER,
                                               [CN_ROW_SECOND] = CN_TRAINER_SECOND};
    float *buffer = malloc(PIECE * sizeof(*buffer)), *view;
    cn_err err = buffer ? cn_trainer_show_row(session->trainer, rows[what], &view) : CN_ENOMEM;
    cn_err hidden;

    if (err) {
        free(buffer);
        return err;
    }
    err = gather_view(session, collective, rows[what], view, buffer, put, to);
    hidden = cn_trainer_hide_row(session->trainer, rows[what]);
    free(buffer);
    return err ? err : hidden;
}
