// cairn-aggregator check: says whether "run" could begin, or continue, with a profile.
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/daemon/mend.h"
#include "aggregator/serve/event_hook.h"
#include "aggregator/serve/http_service.h"
#include "aggregator/serve/listening.h"
#include "aggregator/serve/resources.h"
#include "aggregator/serve/status.h"
#include "aggregator/show/invitable.h"
#include "aggregator/store/read_store.h"
#include "aggregator/store/revocations.h"
#include "aggregator/store/state_owner.h"
#include "runtime/port/platform.h"

static const char help[] =
    "Usage: cairn-aggregator check [--profile-only] PROFILE\n"
    "\n"
    "Says whether run could begin, or go on, with this profile: opens the model and\n"
    "the central set, reads the boards and their keys, compares the job with the run\n"
    "that is in the state directory, reads the files of its newest version, and tries\n"
    "to listen at the profile's addresses.\n"
    "Works while the aggregator runs; its addresses are its own then. Changes\n"
    "nothing. Says all that is wrong and exits with 1, or with 3 for mistakes in the\n"
    "profile. The last line is \"ok\" when nothing is wrong.\n"
    "\n"
    "  --profile-only   open nothing: on another machine than the gateway\n";

#define CHECKED_SESSIONS 16 // sessions of a server that is closed at once

// --- model, job, central set ---

// No board can send an update that is larger than the whole spool. Whether one is depends on what
// update.up chooses.
static void check_spool(const struct cn_setup *setup)
{
    uint64_t limit = setup->settings->gateway.spool_limit;
    uint64_t frame = cn_update_size_max(&setup->model.layout);
    if (limit && limit < frame)
        fprintf(stderr,
                "warning: gateway.spool is %" PRIu64 " bytes, and an update of this model may have "
                "%" PRIu64 ": such a one would never be taken\n",
                limit, frame);
}

static int check_model(struct cn_setup *setup, const struct cn_ports *ports)
{
    struct cn_evaluator *evaluator = NULL;
    const char *set = setup->settings->job.central_set;
    int result = cn_setup_load_model(setup);
    if (result)
        return result;
    printf("model: %s, %zu parameters\n", setup->settings->model, setup->model.layout.total);
    result = cn_setup_set_tensor_rules(setup) | cn_setup_check_cut(setup);
    check_spool(setup);
    if (cn_setup_open_evaluator(setup, ports, &evaluator))
        result = CN_EXIT_FAILED;
    else
        printf("central set: %s\n", set[0] ? set : "none");
    cn_evaluator_close(evaluator);
    return result;
}

// --- state directory ---

// Finds the directory at path, or the nearest one above it that exists. Returns false when none can
// be read.
static bool existing(const char *path, char found[CN_PATH_SIZE], struct stat *info)
{
    snprintf(found, CN_PATH_SIZE, "%s", path);
    while (stat(found, info) != 0 && errno == ENOENT) {
        char *slash = strrchr(found, '/');
        if (strcmp(found, ".") == 0) // this process stands in a directory that was removed
            return false;
        if (!slash)
            snprintf(found, CN_PATH_SIZE, ".");
        else if (slash == found)
            found[1] = '\0';
        else
            *slash = '\0';
    }
    return stat(found, info) == 0;
}

static int check_state(const struct cn_settings *settings)
{
    char found[CN_PATH_SIZE];
    struct stat info;
    uint64_t available;
    const char *reason = NULL;
    bool is_there = existing(settings->state, found, &info);
    if (is_there && !S_ISDIR(info.st_mode))
        reason = "is not a directory";
    else if (!is_there || access(found, R_OK | W_OK | X_OK) != 0)
        reason = strerror(errno);
    if (reason) {
        fprintf(stderr, "error: state: %s: %s\n", found, reason);
        return CN_EXIT_FAILED;
    }
    cn_err err = cn_platform_disk_free(found, &available);
    if (err) {
        fprintf(stderr, "error: state: %s: its free space is not known: %s\n", found,
                cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    if (available < settings->reserve) {
        fprintf(stderr,
                "error: state: %s has %" PRIu64 " MiB left and storage.reserve is %" PRIu64
                " MiB: no update would be taken\n",
                found, available >> 20, settings->reserve >> 20);
        return CN_EXIT_FAILED;
    }
    printf("state: %s, %" PRIu64 " MiB left\n", settings->state, available >> 20);
    return CN_EXIT_DONE;
}

// --- boards ---

struct boards {
    uint32_t enrolled, revoked;
};

static cn_err count_board(void *context, const struct cn_ledger_board *board)
{
    struct boards *boards = context;
    *(board->revoked ? &boards->revoked : &boards->enrolled) += 1;
    return CN_OK;
}

static int check_revocations(const char *state)
{
    char path[CN_PATH_SIZE + 32];
    if (cn_revocations_path(state, path, sizeof(path)) || access(path, F_OK) != 0 ||
        access(path, R_OK) == 0)
        return CN_EXIT_DONE;
    fprintf(stderr, "error: %s: the list of revoked keys cannot be read: %s\n", path,
            strerror(errno));
    return CN_EXIT_FAILED;
}

// Reads every board with its key. Fewer groups than the quorum is no mistake yet, because boards
// may be enrolled while the run waits.
static int check_boards(const struct cn_setup *setup)
{
    const char *state = setup->state_name;
    uint32_t quorum = cn_job_updates_needed(&setup->settings->job), groups = 0;
    struct boards boards = {0};
    cn_err err = cn_ledger_boards(setup->ledger, count_board, &boards);
    if (!err)
        err = cn_ledger_group_count(setup->ledger, &groups);
    if (err) {
        fprintf(stderr, "error: %s/%s: %s\n", state, CN_LEDGER_FILE, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    printf("boards: %u in %u group%s, %u revoked; %s %u\n", boards.enrolled, groups,
           groups == 1 ? "" : "s", boards.revoked, cn_job_needed_word(&setup->settings->job),
           quorum);
    char few[CN_INVITABLE_ENROLLED_TEXT];
    cn_invitable_enrolled_text(cn_job_needed_word(&setup->settings->job), quorum, groups, few);
    if (groups < quorum)
        fprintf(stderr, "warning: %s: no round can close before more are\n", few);
    return cn_setup_check_groups(setup, setup->ledger);
}

// Reads the files of the newest version, of which the next one is made.
static int check_files(struct cn_setup *setup)
{
    char path[CN_PATH_SIZE + 8];
    snprintf(path, sizeof(path), "%s/files", setup->settings->state);
    cn_err err = cn_read_store_open(path, &setup->store);
    if (!err)
        err = cn_mend_check(setup);
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

// Checks the ledger, if there is one: its boards, and whether the profile may continue its run.
static int check_ledger(struct cn_setup *setup, bool has_model)
{
    const char *state = setup->settings->state;
    cn_err err = cn_ledger_open_existing(state, &setup->ledger);
    if (err == CN_ENOTFOUND) {
        printf("boards: none; no run was begun in %s\n", setup->state_name);
        return CN_EXIT_DONE;
    }
    if (err) {
        fprintf(stderr, "error: %s/%s: %s\n", setup->state_name, CN_LEDGER_FILE, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    int result = check_boards(setup);
    if (has_model)
        result |= cn_setup_check_job(setup);
    if (has_model && !result)
        result |= cn_setup_check_weights(setup);
    if (has_model && !result)
        result |= check_files(setup);
    return result;
}

// --- addresses ---

static cn_err listen_once(const char *const *addresses, uint32_t count)
{
    struct cn_coap_server *server = NULL;
    const struct cn_coap_server_config config = {
        .listen = addresses,
        .listen_count = count,
        .find_key = cn_resources_find_key,
        .handshakes_max = CHECKED_SESSIONS,
        .sessions_max = CHECKED_SESSIONS,
    };
    cn_err err = cn_coap_server_open(&config, &server);
    cn_coap_server_close(server);
    return err;
}

// Tries the addresses that the aggregator of this state directory does not listen at, if it runs.
// The log names an address at which nobody can listen.
static int check_addresses(const struct cn_settings *settings)
{
    const struct cn_gateway_settings *gateway = &settings->gateway;
    const char *tried[CN_LINK_ADDRESSES];
    uint32_t count = 0;
    struct cn_live_state live;
    bool held[CN_LINK_ADDRESSES] = {false};
    cn_err err = cn_status_read(settings->state, cn_platform_now_ms(), &live);
    bool running = !err && live.running;
    cn_status_deinit(&live);
    for (uint32_t i = 0; i < gateway->listen_count; i++) {
        held[i] = running && cn_listening_has(settings->state, gateway->listen[i]);
        if (!held[i])
            tried[count++] = gateway->listen[i];
    }
    err = count ? listen_once(tried, count) : CN_OK;
    if (err && err != CN_EEXIST)
        fprintf(stderr, "error: gateway.listen: %s\n", cn_err_text(err));
    for (uint32_t i = 0; i < gateway->listen_count && !err; i++)
        printf("listen: %s%s\n", gateway->listen[i],
               held[i] ? ", held by the aggregator that runs here" : "");
    cn_err http = cn_http_service_check(
        settings, running && cn_listening_has(settings->state, settings->http.listen));
    return err || http ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int check_hook(const struct cn_settings *settings)
{
    const char *fault = cn_event_hook_fault(settings);
    if (fault)
        fprintf(stderr, "error: hooks.on_event: %s cannot be run: %s\n", settings->event_hook.path,
                fault);
    return fault ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int check(struct cn_setup *setup, const struct cn_ports *ports)
{
    int model = check_model(setup, ports);
    int result = model;
    int state = check_state(setup->settings);
    result |= state;
    result |= check_revocations(setup->settings->state);
    result |= check_hook(setup->settings);
    if (!state) {
        int taken = cn_setup_take_rights(setup);
        result |= taken ? taken : check_ledger(setup, !model);
        cn_ledger_close(setup->ledger);
        setup->ledger = NULL;
        cn_state_owner_leave(); // addresses may need those of root
    }
    return result | check_addresses(setup->settings);
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {{"profile-only", no_argument, NULL, 'p'}, {0}};
    const char *positional[1];
    bool profile_only = false;
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option != 'p')
            return CN_EXIT_USAGE;
        profile_only = true;
    }
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    struct cn_setup setup = {0};
    int result = cn_setup_load(&setup, positional[0]);
    if (!result && !profile_only)
        result = check(&setup, ports);
    if (!result)
        printf("ok\n");
    cn_setup_deinit(&setup);
    return result;
}

const struct cn_command cn_aggregator_check = {
    .name = "check",
    .summary = "say whether run could begin or go on",
    .help = help,
    .run = run,
};
