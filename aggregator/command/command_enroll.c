// cairn-aggregator enroll: makes a key for a board and binds the board to its group.
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/setup.h"
#include "aggregator/serve/status.h"
#include "runtime/port/platform.h"
#include "transport/coap/security.h"

#define AWAIT_MS 5000 // longest wait until a running aggregator knows the board

static const char help[] =
    "Usage: cairn-aggregator enroll PROFILE BOARD [--group G] [--max-weight N]\n"
    "                               [-o KEYFILE]\n"
    "\n"
    "Lets a board take part. Writes its key, one line, to KEYFILE: copy it to the\n"
    "board and delete it here. Works while the aggregator runs. A board that was\n"
    "revoked may be enrolled again.\n"
    "\n"
    "  --group G        the group it trains in; default: a group of its own, with\n"
    "                   its name\n"
    "  --max-weight N   samples of a round that count, at most; default: only the\n"
    "                   job's limit\n"
    "  -o KEYFILE       default: BOARD.key\n";

static bool parse_weight(const char *text, uint64_t *weight)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || errno || *end || value == 0 || value > INT64_MAX)
        return false;
    *weight = value;
    return true;
}

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
    if (max_weight && !parse_weight(max_weight, &board->max_weight)) {
        fprintf(stderr, "error: --max-weight %s: expected a number of samples, at least 1\n",
                max_weight);
        return false;
    }
    snprintf(board->name, sizeof(board->name), "%s", name);
    snprintf(board->group, sizeof(board->group), "%s", group ? group : name);
    return true;
}

static bool is_free(struct cn_ledger *ledger, const char *name)
{
    struct cn_ledger_board found;
    cn_err err = cn_ledger_find_board(ledger, name, &found);
    if (err == CN_ENOTFOUND || (!err && found.revoked))
        return true;
    if (err)
        fprintf(stderr, "%s: %s\n", name, cn_err_text(err));
    else
        fprintf(stderr,
                "%s is enrolled already, in group %s; revoke it first to give it a new"
                " key\n",
                name, found.group);
    cn_crypto_wipe(&found, sizeof(found));
    return false;
}

// A running aggregator looks for new boards at intervals. Waits until it has looked, so that the
// board may be started at once.
static void await_aggregator(const char *state)
{
    uint64_t enrolled_ms = cn_platform_now_ms();
    bool known = false;

    while (!known && cn_platform_now_ms() - enrolled_ms < AWAIT_MS) {
        struct cn_status_live live;
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

static int enroll(struct cn_ledger *ledger, struct cn_ledger_board *board, const char *path)
{
    struct cn_diag diag;
    struct cn_board_key key;
    cn_diag_init(&diag);
    if (!is_free(ledger, board->name))
        return CN_EXIT_FAILED;
    cn_err err = cn_security_make_key(path, board->name, &diag, &key);
    if (err) {
        fprintf(stderr, "%s\n", diag.count ? cn_diag_first(&diag) : cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    memcpy(board->secret, key.secret, sizeof(board->secret));
    err = cn_ledger_enroll(ledger, board);
    cn_crypto_wipe(&key, sizeof(key));
    cn_crypto_wipe(board->secret, sizeof(board->secret));
    if (err) {
        unlink(path);
        fprintf(stderr, "%s: %s\n", board->name, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    printf("enrolled %s in group %s; its key is %s\n", board->name, board->group, path);
    return CN_EXIT_DONE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"group", required_argument, NULL, 'g'},
        {"max-weight", required_argument, NULL, 'w'},
        {"output", required_argument, NULL, 'o'},
        {0},
    };
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
        else
            return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_positional(argc, argv, 2, positional))
        return CN_EXIT_USAGE;
    struct cn_ledger_board board = {0};
    if (!describe(positional[1], group, max_weight, &board))
        return CN_EXIT_USAGE;
    char path[CN_NAME_SIZE + 8];
    snprintf(path, sizeof(path), "%s.key", board.name);
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_ENROLL);
    if (!result)
        result = enroll(setup.ledger, &board, out ? out : path);
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
