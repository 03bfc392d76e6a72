// cairn-aggregator enroll: makes a key for a board and binds the board to its group.
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/steer.h"
#include "aggregator/control/control.h"
#include "aggregator/daemon/setup.h"
#include "aggregator/serve/status.h"
#include "aggregator/store/state_owner.h"
#include "runtime/base/whole_number.h"
#include "runtime/port/platform.h"
#include "transport/coap/security.h"

#define AWAIT_MS 5000 // longest wait until a running aggregator knows the board

static const char help[] =
    "Usage: cairn-aggregator enroll PROFILE BOARD [--group G] [--max-weight N]\n"
    "                               [-o KEYFILE] [--socket PATH] [--id ID]\n"
    "\n"
    "Lets a board take part. Writes its key, one line, to KEYFILE: copy it to the\n"
    "board and delete it here. Works while the aggregator runs. A board that was\n"
    "revoked may be enrolled again. If no answer comes, KEYFILE stays: the same\n"
    "command with the --id that it prints takes the key in KEYFILE.\n"
    "\n"
    "  --group G        the group it trains in; default: a group of its own, with\n"
    "                   its name\n"
    "  --max-weight N   samples of a round that count, at most; default: only the\n"
    "                   job's limit\n"
    "  -o KEYFILE       default: BOARD.key\n" CN_STEER_HELP;

// Fills the board's entry, except its key. Otherwise prints what is wrong and returns false.
static bool describe(const char *name, const char *group, const char *max_weight,
                     struct cn_ledger_board *board)
{
    if (!cn_name_valid(name) || (group && !cn_name_valid(group))) {
        fprintf(stderr,
                "%s: a name has 1 to 63 of a-z 0-9 . _ - and starts with a letter or"
                " digit\n",
                cn_name_valid(name) ? group : name);
        return false;
    }
    if (max_weight && !cn_whole_number_read(max_weight, 1, INT64_MAX, &board->max_weight)) {
        fprintf(stderr, "error: --max-weight %s: expected a number of samples, at least 1\n",
                max_weight);
        return false;
    }
    snprintf(board->name, sizeof(board->name), "%s", name);
    snprintf(board->group, sizeof(board->group), "%s", group ? group : name);
    return true;
}

// Returns whether no board of this name is enrolled; prints that one is, before a key is made.
static bool is_free(struct cn_ledger *ledger, const char *name)
{
    struct cn_ledger_board found;
    bool taken = cn_ledger_find_board(ledger, name, &found) == CN_OK && !found.revoked;
    if (taken)
        fprintf(stderr, "error: " CN_CONTROL_ENROLLED "\n", found.name, found.group);
    cn_crypto_wipe(&found, sizeof(found));
    return !taken;
}

// A running aggregator looks for new boards at intervals. Waits until it has looked, so that the
// board may be started at once.
static void await_aggregator(const char *state)
{
    uint64_t enrolled_ms = cn_platform_now_ms();
    bool known = false;

    while (!known && cn_platform_now_ms() - enrolled_ms < AWAIT_MS) {
        struct cn_live_state live;
        cn_err err = cn_status_read(state, cn_platform_now_ms(), &live);

        known = err || !live.running || !live.roster_ms || live.roster_ms >= enrolled_ms;
        cn_status_deinit(&live);
        if (!known)
            cn_platform_sleep_ms(20);
    }
    if (!known)
        fprintf(stderr,
                "the aggregator does not know the board yet; the board asks until it does\n");
}

// Makes the key of the board in a new file. With --id, takes the key of a file that is there, which
// the same command made before.
static bool find_key(const struct cn_steer *steer, const char *path, const char *board,
                     struct cn_board_key *key, bool *made)
{
    struct cn_diag diag;
    cn_diag_init(&diag);
    *made = !steer->id || access(path, F_OK) != 0;
    cn_err err = *made ? cn_security_make_key(path, board, &diag, key)
                       : cn_security_load_key(path, &diag, key);
    if (err) {
        fprintf(stderr, "%s\n", diag.count ? cn_diag_first(&diag) : cn_err_text(err));
        return false;
    }
    if (strcmp(key->board, board) != 0) {
        fprintf(stderr, "error: %s is the key of %s, not of %s\n", path, key->board, board);
        cn_crypto_wipe(key, sizeof(*key));
        return false;
    }
    return true;
}

static void remove_key(const char *path)
{
    cn_state_owner_leave();
    unlink(path);
    cn_state_owner_return();
}

// Enrols the board with a key of its own: over a socket, or in the state that setup opened. Removes
// the key file when the request was refused. It stays when no answer came, because the board may be
// enrolled.
static int enroll(struct cn_steer *steer, const char *profile, const struct cn_setup *setup,
                  const struct cn_ledger_board *board, const char *path)
{
    struct cn_board_key key;
    struct cn_control_request *request = &steer->request;
    bool made;
    cn_state_owner_leave();
    bool found = find_key(steer, path, board->name, &key, &made);
    cn_state_owner_return();
    if (!found)
        return CN_EXIT_FAILED;
    memcpy(request->board, board->name, sizeof(request->board));
    memcpy(request->group, board->group, sizeof(request->group));
    memcpy(request->key, key.secret, sizeof(request->key));
    request->max_weight = board->max_weight;
    request->members = CN_CONTROL_BOARD | CN_CONTROL_GROUP | CN_CONTROL_KEY |
                       (board->max_weight ? CN_CONTROL_MAX_WEIGHT : 0);
    int result =
        setup ? cn_steer_write(steer, setup, "enroll") : cn_steer_send(steer, profile, "enroll");
    cn_crypto_wipe(&key, sizeof(key));
    cn_crypto_wipe(request->key, sizeof(request->key));
    if (!result)
        printf("its key is %s\n", path);
    else if (steer->unanswered)
        fprintf(stderr, "%s stays: it is the key of %s, if that is enrolled now\n", path,
                board->name);
    else if (made)
        remove_key(path);
    return result;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"group", required_argument, NULL, 'g'},
        {"max-weight", required_argument, NULL, 'w'},
        {"output", required_argument, NULL, 'o'},
        CN_STEER_OPTIONS,
        {0},
    };
    struct cn_steer steer = {0};
    const char *positional[2], *group = NULL, *max_weight = NULL, *out = NULL;
    (void)ports;
    int option;
    while ((option = getopt_long(argc, argv, "g:o:", known, NULL)) != -1) {
        if (option == 'g')
            group = optarg;
        else if (option == 'w')
            max_weight = optarg;
        else if (option == 'o')
            out = optarg;
        else if (!cn_steer_read_option(&steer, option, optarg))
            return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_positional(argc, argv, 2, positional))
        return CN_EXIT_USAGE;
    struct cn_ledger_board board = {0};
    if (!describe(positional[1], group, max_weight, &board))
        return CN_EXIT_USAGE;
    char path[CN_NAME_SIZE + 8];
    snprintf(path, sizeof(path), "%s.key", board.name);
    if (cn_steer_is_needed(&steer, positional[0], CN_STEER_WRITE))
        return enroll(&steer, positional[0], NULL, &board, out ? out : path);
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_ENROLL);
    if (!result && !steer.id && !is_free(setup.ledger, board.name))
        result = CN_EXIT_FAILED;
    if (!result)
        result = enroll(&steer, positional[0], &setup, &board, out ? out : path);
    if (!result)
        await_aggregator(setup.settings->state);
    cn_setup_deinit(&setup);
    return result;
}

const struct cn_command cn_aggregator_enroll = {
    .name = "enroll",
    .summary = "let a board take part and make its key",
    .help = help,
    .run = run,
};
