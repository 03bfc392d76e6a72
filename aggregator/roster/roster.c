#include "aggregator/roster/roster.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/steering.h"
#include "aggregator/roster/last_error.h"
#include "aggregator/roster/member_sign.h"
#include "aggregator/roster/resting.h"
#include "runtime/base/log_limit.h"
#include "runtime/port/platform.h"
#include "transport/coap/security.h"

#define REPLAN_MS 1000 // between two times that a board has the jobs of groups decided again

struct board_list {
    struct cn_roster_board *items;
    size_t count, capacity;
};

struct cn_roster {
    struct cn_ledger *ledger; // borrowed
    int64_t generation;
    struct board_list boards;
    struct cn_roster_group *groups; // sorted by name
    size_t group_count;
    uint64_t stored_ms; // clock when errors were stored last; 0: not yet
    uint64_t opened_ms; // clock
    uint64_t read_ms;   // clock when the ledger was last read; 0: not since the roster was opened
    const struct cn_roster *gateway; // of the gateway, if this is the roster of a job; borrowed
};

static void free_boards(struct board_list *boards)
{
    if (boards->items)
        cn_crypto_wipe(boards->items, boards->capacity * sizeof(*boards->items));
    free(boards->items);
    memset(boards, 0, sizeof(*boards));
}

static cn_err append_board(void *context, const struct cn_ledger_board *enrolled)
{
    struct board_list *boards = context;
    if (boards->count == boards->capacity) {
        size_t capacity = boards->capacity ? 2 * boards->capacity : 16;
        struct cn_roster_board *items = calloc(capacity, sizeof(*items));
        if (!items)
            return CN_ENOMEM;
        if (boards->count)
            memcpy(items, boards->items, boards->count * sizeof(*items));
        size_t count = boards->count;
        free_boards(boards);
        *boards = (struct board_list){.items = items, .count = count, .capacity = capacity};
    }
    boards->items[boards->count++] = (struct cn_roster_board){.enrolled = *enrolled};
    return CN_OK;
}

static struct cn_roster_board *find_board(const struct board_list *boards, const char *name)
{
    for (size_t i = 0; i < boards->count; i++)
        if (strcmp(boards->items[i].enrolled.name, name) == 0)
            return &boards->items[i];
    return NULL;
}

static int compare_groups(const void *a, const void *b)
{
    return strcmp(((const struct cn_roster_group *)a)->name,
                  ((const struct cn_roster_group *)b)->name);
}

static struct cn_roster_group *find_group(struct cn_roster_group *groups, size_t count,
                                          const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(groups[i].name, name) == 0)
            return &groups[i];
    return NULL;
}

// The limits of the boards add up. A group with a board without a limit has no limit.
static void add_to_group(struct cn_roster_group *group, const struct cn_roster_board *board)
{
    uint64_t cap = board->enrolled.max_weight;
    if (group->boards == 0)
        group->max_weight = cap;
    else if (cap == 0 || group->max_weight == 0 || group->max_weight > UINT64_MAX - cap)
        group->max_weight = 0;
    else
        group->max_weight += cap;
    group->boards++;
    if (board->heard_ms > group->heard_ms)
        group->heard_ms = board->heard_ms;
}

static cn_err make_groups(struct cn_ledger *ledger, const struct board_list *boards,
                          struct cn_roster_group **groups, size_t *group_count)
{
    cn_err err = CN_OK;
    *group_count = 0;
    *groups = calloc(boards->count + 1, sizeof(**groups));
    if (!*groups)
        return CN_ENOMEM;
    for (size_t i = 0; i < boards->count; i++) {
        const struct cn_roster_board *board = &boards->items[i];
        if (board->enrolled.revoked)
            continue;
        struct cn_roster_group *group = find_group(*groups, *group_count, board->enrolled.group);
        if (!group) {
            group = &(*groups)[(*group_count)++];
            snprintf(group->name, sizeof(group->name), "%s", board->enrolled.group);
        }
        add_to_group(group, board);
    }
    qsort(*groups, *group_count, sizeof(**groups), compare_groups);
    for (size_t i = 0; !err && i < *group_count; i++) {
        struct cn_roster_group *group = &(*groups)[i];
        err = cn_ledger_key_epoch(ledger, group->name, &group->key_epoch);
        if (!err)
            err = cn_steering_is_drained(ledger, group->name, &group->drained);
    }
    return err;
}

// Compares a name with that of a group, for bsearch. Groups are sorted by compare_groups.
static int compare_name(const void *name, const void *group)
{
    return strcmp(name, ((const struct cn_roster_group *)group)->name);
}

static bool must_drop(const struct cn_roster_board *before, const struct cn_roster_board *after)
{
    if (before->enrolled.revoked)
        return false;
    return !after || after->enrolled.revoked ||
           strcmp(before->enrolled.group, after->enrolled.group) != 0 ||
           cn_crypto_compare(before->enrolled.secret, after->enrolled.secret, CN_KEY_SIZE) != 0;
}

// What the members of a group said of each other is forgotten when one of them is dropped, as it
// may have lied. The others tell again.
static void forget_signs(struct board_list *boards, const char *group)
{
    for (size_t i = 0; i < boards->count; i++)
        if (strcmp(boards->items[i].enrolled.group, group) == 0)
            boards->items[i].missing_ms = 0;
}

// Carries over what only memory knows, and ends the sessions of boards for which must_drop holds.
static void hand_over(const struct cn_roster *roster, struct board_list *boards,
                      cn_roster_drop *drop, void *context)
{
    for (size_t i = 0; i < roster->boards.count; i++) {
        const struct cn_roster_board *before = &roster->boards.items[i];
        struct cn_roster_board *after = find_board(boards, before->enrolled.name);
        if (must_drop(before, after)) {
            if (drop)
                drop(context, before->enrolled.name);
        } else if (after) {
            const struct cn_ledger_board enrolled = after->enrolled;
            *after = *before;
            after->enrolled = enrolled;
        }
    }
    for (size_t i = 0; i < roster->boards.count; i++) {
        const struct cn_roster_board *before = &roster->boards.items[i];
        if (must_drop(before, find_board(boards, before->enrolled.name)))
            forget_signs(boards, before->enrolled.group);
    }
}

// A board with an old protocol would keep using pair keys that a revoked board knows. It must
// register again, and then learns why it is refused.
static void forget_old_boards(struct board_list *boards, struct cn_roster_group *groups,
                              size_t group_count)
{
    for (size_t i = 0; i < boards->count; i++) {
        struct cn_roster_board *board = &boards->items[i];
        const struct cn_roster_group *group =
            find_group(groups, group_count, board->enrolled.group);
        if (group && group->key_epoch && board->facts.protocol < CN_PROTOCOL_KEY_EPOCHS)
            board->facts = (struct cn_roster_facts){0};
    }
}

// Reads boards and key epochs at one moment. Otherwise a board that is revoked between the two
// reads would be served the keys that were made because of its revocation.
static cn_err read_ledger(struct cn_roster *roster, struct board_list *boards,
                          struct cn_roster_group **groups, size_t *group_count,
                          cn_roster_drop *drop, void *context)
{
    cn_err err = cn_ledger_begin_read(roster->ledger);
    if (err)
        return err;
    err = cn_ledger_boards(roster->ledger, append_board, boards);
    if (!err) {
        hand_over(roster, boards, drop, context);
        err = make_groups(roster->ledger, boards, groups, group_count);
    }
    cn_ledger_end_read(roster->ledger);
    return err;
}

static cn_err reload(struct cn_roster *roster, cn_roster_drop *drop, void *context)
{
    struct board_list boards = {0};
    struct cn_roster_group *groups = NULL;
    size_t group_count = 0;
    cn_err err = read_ledger(roster, &boards, &groups, &group_count, drop, context);
    if (err) {
        free_boards(&boards);
        free(groups);
        return err;
    }
    forget_old_boards(&boards, groups, group_count);
    for (size_t i = 0; i < group_count; i++) {
        const struct cn_roster_group *before =
            find_group(roster->groups, roster->group_count, groups[i].name);
        groups[i].served = before ? before->served : 0;
        groups[i].begun = before ? before->begun : 0;
        groups[i].recorded = before ? before->recorded : 0;
        groups[i].away = before && before->away;
        groups[i].rests = before && before->rests;
        groups[i].unfit = before && before->unfit;
    }
    free_boards(&roster->boards);
    free(roster->groups);
    roster->boards = boards;
    roster->groups = groups;
    roster->group_count = group_count;
    return CN_OK;
}

cn_err cn_roster_open(struct cn_ledger *ledger, struct cn_roster **roster)
{
    *roster = NULL;
    struct cn_roster *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return CN_ENOMEM;
    opened->ledger = ledger;
    opened->opened_ms = cn_platform_now_ms();
    cn_err err = cn_ledger_generation(ledger, &opened->generation);
    if (!err)
        err = reload(opened, NULL, NULL);
    if (err) {
        cn_roster_close(opened);
        return err;
    }
    *roster = opened;
    return CN_OK;
}

void cn_roster_join(struct cn_roster *roster, const struct cn_roster *gateway)
{
    roster->gateway = gateway;
}

void cn_roster_close(struct cn_roster *roster)
{
    if (!roster)
        return;
    free_boards(&roster->boards);
    free(roster->groups);
    free(roster);
}

cn_err cn_roster_refresh(struct cn_roster *roster, cn_roster_drop *drop, void *context)
{
    int64_t generation = 0;
    uint64_t begun_ms = cn_platform_now_ms();
    cn_err err = cn_ledger_generation(roster->ledger, &generation);
    if (!err && generation != roster->generation)
        err = reload(roster, drop, context);
    if (err)
        return err;
    roster->generation = generation;
    roster->read_ms = begun_ms;
    return CN_OK;
}

void cn_roster_expire(struct cn_roster *roster)
{
    roster->generation = -1; // no generation of a ledger is negative
}

void cn_roster_lend(struct cn_roster *roster, const char *group, bool away, uint64_t heard_ms)
{
    const struct cn_roster_group *place = cn_roster_find_group(roster, group);
    if (!place)
        return;
    struct cn_roster_group *found = &roster->groups[place - roster->groups];
    found->away = away;
    if (!away && found->heard_ms < heard_ms)
        found->heard_ms = heard_ms;
}

uint64_t cn_roster_opened_ms(const struct cn_roster *roster)
{
    return roster->opened_ms;
}

uint64_t cn_roster_read_ms(const struct cn_roster *roster)
{
    return roster->read_ms;
}

cn_err cn_roster_find_key(const struct cn_roster *roster, const char *board,
                          uint8_t key[CN_KEY_SIZE])
{
    const struct cn_roster_board *found = cn_roster_find(roster, board);
    if (!found)
        return CN_EAUTH;
    struct cn_board_key secret = {0};
    snprintf(secret.board, sizeof(secret.board), "%s", board);
    memcpy(secret.secret, found->enrolled.secret, sizeof(secret.secret));
    cn_err err = cn_security_dtls_key(&secret, key);
    cn_crypto_wipe(&secret, sizeof(secret));
    return err;
}

const struct cn_roster_board *cn_roster_find(const struct cn_roster *roster, const char *board)
{
    const struct cn_roster_board *found = find_board(&roster->boards, board);
    return found && !found->enrolled.revoked ? found : NULL;
}

const struct cn_roster_group *cn_roster_find_group(const struct cn_roster *roster,
                                                   const char *group)
{
    return roster->group_count ? bsearch(group, roster->groups, roster->group_count,
                                         sizeof(*roster->groups), compare_name)
                               : NULL;
}

void cn_roster_hear(struct cn_roster *roster, const char *board, uint64_t now_ms)
{
    struct cn_roster_board *found = find_board(&roster->boards, board);
    if (!found || found->enrolled.revoked)
        return;
    found->heard_ms = now_ms;
    struct cn_roster_group *group =
        find_group(roster->groups, roster->group_count, found->enrolled.group);
    assert(group);
    group->heard_ms = now_ms;
}

void cn_roster_note(struct cn_roster *roster, const char *board,
                    const struct cn_roster_facts *facts)
{
    struct cn_roster_board *found = find_board(&roster->boards, board);
    if (!found)
        return;
    found->facts = *facts;
    found->registered_ms = found->heard_ms; // this request's
}

void cn_roster_blame(struct cn_roster *roster, const char *board, const char *fault, uint64_t code,
                     uint64_t now_ms)
{
    struct cn_roster_board *found = find_board(&roster->boards, board);
    if (!found || !cn_fault_note(&found->fault, fault, now_ms))
        return;
    found->error_due = true;
    found->error_code = code;
    if (roster->gateway)
        return;
    cn_log_within(&found->fault_lines, now_ms, CN_LOG_ERROR, "roster", "%s of group %s reports: %s",
                  board, found->enrolled.group, found->fault.text);
}

void cn_roster_fail(struct cn_roster *roster, const char *board, uint64_t now_ms)
{
    struct cn_roster_board *found = find_board(&roster->boards, board);
    if (found)
        found->failed_ms = now_ms;
}

bool cn_roster_may_replan(const struct cn_roster *roster, const char *board, uint64_t now_ms)
{
    const struct cn_roster_board *found = cn_roster_find(roster, board);
    return found && (!found->replan_ms || now_ms - found->replan_ms >= REPLAN_MS);
}

void cn_roster_note_replan(struct cn_roster *roster, const char *board, uint64_t now_ms)
{
    struct cn_roster_board *found = find_board(&roster->boards, board);
    if (found)
        found->replan_ms = now_ms;
}

// Decides whether the group of a board rests.
static void judge_rest(struct cn_roster *roster, const char *group, uint64_t now_ms)
{
    struct cn_roster_group *found = find_group(roster->groups, roster->group_count, group);
    const char *why;
    bool rests = cn_resting_judge(roster->boards.items, roster->boards.count, group, now_ms, &why);
    if (!found || found->rests == rests)
        return;
    found->rests = rests;
    if (!roster->gateway)
        cn_log(CN_LOG_INFO, "roster", "group %s %s%s%s", group, rests ? "rests" : "may train",
               why[0] ? ": " : "", why);
}

bool cn_roster_report(struct cn_roster *roster, const char *board, const struct cn_health *health,
                      uint64_t now_ms)
{
    struct cn_roster_board *found = find_board(&roster->boards, board);
    uint64_t before = found ? found->health.said.flags : 0;
    uint64_t run = cn_ledger_identity(roster->ledger)->run;
    if (!found || found->enrolled.revoked ||
        !cn_board_health_note(&found->health, health, run, now_ms))
        return false;
    const struct cn_health *said = &found->health.said;
    if ((before | said->flags) & CN_HEALTH_OUT) // else nothing about its group changed
        judge_rest(roster, found->enrolled.group, now_ms);
    if (said->error[0] && !cn_fault_begins(&found->fault, said->error))
        cn_roster_blame(roster, board, said->error, said->error_code, now_ms);
    if (said->error[0])
        found->error_code = said->error_code;
    else if (said->state >= CN_HEALTH_IDLE && said->state <= CN_HEALTH_DELIVERING)
        cn_roster_work(roster, board, now_ms);
    return true;
}

void cn_roster_mark_unfit(struct cn_roster *roster, const struct cn_rule *rule,
                          const char *data_set, uint64_t now_ms)
{
    for (size_t i = 0; i < roster->group_count; i++)
        roster->groups[i].unfit = false;
    for (size_t i = 0; rule && i < roster->boards.count; i++) {
        const struct cn_roster_board *board = &roster->boards.items[i];
        if (!cn_roster_is_registered(board) || cn_roster_meets(board, rule, data_set, now_ms))
            continue;
        find_group(roster->groups, roster->group_count, board->enrolled.group)->unfit = true;
    }
}

// Returns whether less than ms have passed since stored_ms.
static bool is_soon(uint64_t stored_ms, uint64_t ms, uint64_t now_ms)
{
    return stored_ms && now_ms - stored_ms < ms;
}

cn_err cn_roster_store_errors(struct cn_roster *roster, uint64_t now_ms)
{
    struct cn_last_error_note notes[64]; // more boards wait for the next time
    size_t count = 0;
    if (is_soon(roster->stored_ms, CN_ROSTER_STORE_MS, now_ms))
        return CN_OK;
    for (size_t i = 0; i < roster->boards.count && count < sizeof(notes) / sizeof(notes[0]); i++) {
        const struct cn_roster_board *board = &roster->boards.items[i];
        if (board->error_due && !is_soon(board->stored_ms, CN_ROSTER_BOARD_STORE_MS, now_ms))
            notes[count++] = (struct cn_last_error_note){board->enrolled.name, board->fault.text,
                                                         board->error_code};
    }
    if (!count)
        return CN_OK;
    roster->stored_ms = now_ms;
    cn_err err = cn_last_error_store(roster->ledger, notes, count);
    for (size_t i = 0; !err && i < count; i++) {
        struct cn_roster_board *board = find_board(&roster->boards, notes[i].board);
        board->error_due = false;
        board->stored_ms = now_ms;
    }
    return err;
}

void cn_roster_meet(struct cn_roster *roster, const char *board, uint64_t instance,
                    const char *from, uint64_t now_ms)
{
    struct cn_roster_board *found = find_board(&roster->boards, board);
    if (found && cn_instances_note(&found->instances, instance, from, now_ms))
        cn_log(CN_LOG_ERROR, "roster",
               "%s runs twice: two programs use its key, %s; enroll the second board under a name "
               "of its own",
               board, found->instances.twice);
}

void cn_roster_work(struct cn_roster *roster, const char *board, uint64_t now_ms)
{
    struct cn_roster_board *found = find_board(&roster->boards, board);
    if (found)
        found->failed_ms = 0;
    if (found && cn_fault_end(&found->fault) && !roster->gateway)
        cn_log_within(&found->fault_lines, now_ms, CN_LOG_INFO, "roster",
                      "%s of group %s reports no error any more", board, found->enrolled.group);
}

static void tell(struct cn_roster *roster, const char *member, const char *group,
                 const struct cn_member_sign *members, uint32_t count, bool present,
                 uint64_t now_ms)
{
    struct cn_roster_board *teller = find_board(&roster->boards, member);
    struct cn_log_quota *quota = teller && !roster->gateway ? &teller->told_lines : NULL;
    for (size_t i = 0; i < roster->boards.count && teller; i++) {
        struct cn_roster_board *board = &roster->boards.items[i];
        const struct cn_member_sign *sign = cn_sign_of(board, group, members, count);
        if (sign && (present || cn_sign_counts(board, sign, now_ms)))
            cn_sign_take(board, sign, member, present, quota, now_ms);
    }
}

void cn_roster_tell(struct cn_roster *roster, const char *member, const char *group,
                    const struct cn_member_sign *members, uint32_t count, uint64_t now_ms)
{
    tell(roster, member, group, members, count, true, now_ms);
}

void cn_roster_miss(struct cn_roster *roster, const char *member, const char *group,
                    const struct cn_member_sign *members, uint32_t count, uint64_t now_ms)
{
    tell(roster, member, group, members, count, false, now_ms);
}

uint32_t cn_roster_count(const struct cn_roster *roster, const char *group,
                         const struct cn_member_sign *members, uint32_t count)
{
    uint32_t present = 0;
    for (size_t i = 0; i < roster->boards.count; i++) {
        const struct cn_member_sign *sign =
            cn_sign_of(&roster->boards.items[i], group, members, count);
        present += sign && sign->missing_s == 0;
    }
    return present ? present : 1;
}

void cn_roster_serve(struct cn_roster *roster, const char *group, uint32_t version)
{
    struct cn_roster_group *found = find_group(roster->groups, roster->group_count, group);
    if (found && found->served < version)
        found->served = version;
    if (found && found->begun <= version)
        found->begun = version + 1;
}

void cn_roster_begun_recorded(struct cn_roster *roster)
{
    for (size_t i = 0; i < roster->group_count; i++)
        roster->groups[i].recorded = roster->groups[i].begun;
}

const struct cn_roster_board *cn_roster_boards(const struct cn_roster *roster, size_t *count)
{
    *count = roster->boards.count;
    return roster->boards.items;
}

const struct cn_roster_group *cn_roster_groups(const struct cn_roster *roster, size_t *count)
{
    *count = roster->group_count;
    return roster->groups;
}

// Returns the gateway's record of boards[place] of a job's roster; NULL: there is none, or this is
// the gateway's roster.
static const struct cn_roster_board *find_other(const struct cn_roster *roster, size_t place)
{
    const char *name = roster->boards.items[place].enrolled.name;
    if (!roster->gateway)
        return NULL;
    const struct board_list *others = &roster->gateway->boards;
    if (place < others->count && strcmp(others->items[place].enrolled.name, name) == 0)
        return &others->items[place];
    return find_board(others, name);
}

const struct cn_roster_board *cn_roster_newest(const struct cn_roster *roster, size_t place)
{
    const struct cn_roster_board *own = &roster->boards.items[place];
    const struct cn_roster_board *other = find_other(roster, place);
    return other && cn_roster_sign_ms(other) > cn_roster_sign_ms(own) ? other : own;
}

const struct cn_roster_board *cn_roster_failed(const struct cn_roster *roster, size_t place)
{
    const struct cn_roster_board *own = &roster->boards.items[place];
    const struct cn_roster_board *other = find_other(roster, place);
    if (own->fault.told_ms)
        return own;
    return other && other->fault.told_ms ? other : NULL;
}
