// The answer about versions: how good each is, what it cost, and the verdict about each group.
#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/rulings.h"
#include "aggregator/ledger/steering.h"
#include "aggregator/ledger/tally.h"
#include "aggregator/run/score.h"
#include "aggregator/show/show_parts.h"

struct versions_answer {
    const struct cn_show_source *source;
    struct cn_board_list list;
    struct cn_json_text json;
    char *signs; // owned; one for each group, with a terminating 0
    struct cn_show_encodings encodings;
};

// Sums over the groups that were invited to a round.
struct round_sum {
    struct versions_answer *answer;
    enum cn_ledger_state state;
    uint32_t accepted;
    uint64_t bytes, weight;     // sums over the accepted updates
    uint64_t first_ms, last_ms; // dates of the first and the last accepted update; 0: not known
    char last[CN_NAME_SIZE];    // group whose update came last
};

static cn_err take_entry(void *context, const struct cn_history_entry *entry)
{
    struct round_sum *sum = context;
    struct versions_answer *answer = sum->answer;
    size_t place = cn_board_list_group(&answer->list, entry->group);
    if (place < answer->list.group_count)
        answer->signs[place] = cn_show_sign(entry, sum->state);
    if (!entry->accepted)
        return CN_OK;
    sum->accepted++;
    sum->bytes += entry->size;
    sum->weight += entry->weight;
    if (!entry->accepted_ms)
        return CN_OK;
    if (!sum->first_ms || entry->accepted_ms < sum->first_ms)
        sum->first_ms = entry->accepted_ms;
    if (entry->accepted_ms >= sum->last_ms) {
        sum->last_ms = entry->accepted_ms;
        memcpy(sum->last, entry->group, sizeof(sum->last));
    }
    return CN_OK;
}

static void write_date(struct cn_json_text *json, const char *key, uint64_t date_ms)
{
    if (date_ms)
        cn_json_count(json, key, date_ms);
}

static cn_err write_round(struct versions_answer *answer, uint32_t number,
                          const struct cn_history_dates *dates)
{
    struct cn_ledger *ledger = answer->source->ledger;
    struct cn_json_text *json = &answer->json;
    struct round_sum sum = {.answer = answer, .state = dates->state};
    uint32_t boards = 0;
    memset(answer->signs, 'n', answer->list.group_count);
    cn_err err = cn_history_round(ledger, number, take_entry, &sum);
    if (!err)
        err = cn_tally_boards(ledger, number, &boards);
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    cn_json_string(json, "signs", answer->signs);
    cn_json_count(json, "updates", sum.accepted);
    cn_json_count(json, "boards", boards);
    cn_json_count(json, "weight", sum.weight);
    cn_json_count(json, "update_bytes", sum.bytes);
    write_date(json, "opened_ms", dates->opened_ms);
    write_date(json, "first_ms", sum.first_ms);
    write_date(json, "last_ms", sum.last_ms);
    write_date(json, "closed_ms", dates->closed_ms);
    if (sum.last[0])
        cn_json_string(json, "last", sum.last);
    return CN_OK;
}

// Writes what the gate or a person decided about a version, else how it went down: one that was
// decided about has no step of its own.
static cn_err write_making(struct versions_answer *answer, uint32_t number)
{
    struct cn_json_text *json = &answer->json;
    struct cn_ruling ruling;
    cn_err err = cn_ruling_find(answer->source->ledger, number, &ruling);
    if (err == CN_ENOTFOUND)
        return cn_show_encoding(answer->source, number, &answer->encodings, json);
    if (err)
        return err;
    cn_json_open(json, "ruling", '{');
    cn_json_string(json, "kind", ruling.kind == CN_RULING_REFUSED ? "refused" : "rollback");
    cn_json_count(json, "source", ruling.source);
    cn_json_foreign(json, "reason", ruling.reason);
    cn_json_close(json, '}');
    return CN_OK;
}

// Writes what people did to the round that made a version.
static cn_err write_steered(struct versions_answer *answer, uint32_t number)
{
    struct cn_steered_round steered;
    cn_err err = cn_steering_of_round(answer->source->ledger, number, &steered);
    if (!err && steered.extended_ms)
        cn_json_count(&answer->json, "extended_ms", steered.extended_ms);
    if (!err && steered.closed_with)
        cn_json_count(&answer->json, "closed_with", steered.closed_with);
    return err;
}

static cn_err write_version(struct versions_answer *answer, const struct cn_ledger_version *version)
{
    struct cn_json_text *json = &answer->json;
    struct cn_history_dates dates;
    struct cn_score score;
    cn_err err = cn_history_dates(answer->source->ledger, version->number, &dates);
    bool known = !err; // else the ledger has no such round
    if (err && err != CN_ENOTFOUND)
        return err;
    cn_score_of(version, &score);
    cn_json_open(json, NULL, '{');
    cn_json_count(json, "version", version->number);
    cn_json_hex(json, "digest", version->digest, CN_DIGEST_SIZE);
    cn_show_score(answer->source, &score, json);
    if (version->central.count && version->boards.count) { // the boards measured it, too
        const struct cn_ledger_version by_boards = {.boards = version->boards};
        cn_score_of(&by_boards, &score);
        if (answer->source->job->loss == CN_LOSS_CROSS_ENTROPY)
            cn_json_real(json, "boards_accuracy", score.accuracy);
        cn_json_real(json, "boards_loss", score.loss);
    }
    cn_json_count(json, "bytes_in", version->bytes_in);
    cn_json_count(json, "bytes_out", version->bytes_out);
    cn_json_count(json, "delta_size", version->delta_size);
    write_date(json, "made_ms", dates.made_ms);
    err = write_making(answer, version->number);
    if (!err)
        err = write_steered(answer, version->number);
    if (!err && known && version->number)
        err = write_round(answer, version->number, &dates);
    cn_json_close(json, '}');
    return err;
}

static cn_err write_versions(struct versions_answer *answer, uint32_t from)
{
    struct cn_ledger *ledger = answer->source->ledger;
    struct cn_json_text *json = &answer->json;
    struct cn_ledger_version version = {0};
    uint32_t newest, number = from;
    cn_err err = cn_ledger_newest_version(ledger, &version);
    bool none = err == CN_ENOTFOUND;
    if (err && !none)
        return err;
    newest = version.number;
    cn_show_begin(answer->source, json);
    cn_json_open(json, "groups", '[');
    for (size_t i = 0; i < answer->list.group_count; i++)
        cn_json_string(json, NULL, answer->list.groups[i]);
    cn_json_close(json, ']');
    cn_json_open(json, "versions", '[');
    while (!none && number <= newest && number - from < CN_SHOW_VERSIONS && !json->err) {
        err = cn_ledger_find_version(ledger, number++, &version);
        if (!err)
            err = write_version(answer, &version);
        if (err)
            return err;
    }
    cn_json_close(json, ']');
    cn_json_count(json, "next", number);
    cn_json_bool(json, "more", !none && number <= newest);
    cn_json_close(json, '}');
    return json->err;
}

static cn_err load_and_write(struct versions_answer *answer, uint32_t from)
{
    cn_err err = cn_board_list_load(answer->source->ledger, NULL, &answer->list);
    if (err)
        return err;
    answer->signs = calloc(answer->list.group_count + 1, 1);
    return answer->signs ? write_versions(answer, from) : CN_ENOMEM;
}

cn_err cn_show_versions(const struct cn_show_source *source, uint32_t from, struct cn_buffer *out)
{
    struct versions_answer answer = {.source = source};
    cn_json_text_init(&answer.json, out);
    cn_err err = cn_ledger_begin_read(source->ledger);
    if (err)
        return err;
    err = load_and_write(&answer, from);
    cn_ledger_end_read(source->ledger);
    cn_board_list_deinit(&answer.list);
    free(answer.signs);
    return err;
}
