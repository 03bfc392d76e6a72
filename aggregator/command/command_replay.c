// cairn-aggregator replay: makes every version again from the stored updates and compares the
// digests.
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/setup.h"
#include "aggregator/merge/merge.h"
#include "aggregator/store/job_settings.h"
#include "runtime/update/tensor_rules.h"

static const char help[] =
    "Usage: cairn-aggregator replay PROFILE\n"
    "\n"
    "Makes every version again from the initial model and the accepted updates, and\n"
    "compares digests. Prints a line for each version; fails when one differs.\n"
    "Versions whose updates are no longer kept are taken from disk. The job's values\n"
    "are those that the ledger has for each round; of the profile, state and model\n"
    "count. Works while the aggregator runs.\n";

struct replay {
    struct cn_setup *setup;
    struct cn_job job; // job that held in the round of the next version
    // The parent of the next version; bytes is NULL when it is not known.
    struct cn_model current;
    unsigned differing, skipped;
};

static void print_line(uint32_t number, const uint8_t *digest, const char *verdict)
{
    char hex[2 * CN_DIGEST_SIZE + 1];
    cn_hex(hex, digest, CN_DIGEST_SIZE);
    printf("version %" PRIu32 " %.16s %s\n", number, hex, verdict);
}

// Loads the settings that held in a round. They decide its version, whatever the profile says now.
static cn_err take_settings(struct replay *replay, uint32_t round)
{
    struct cn_setup *setup = replay->setup;
    struct cn_diag diag;
    cn_diag_init(&diag);
    cn_err err = cn_job_settings_load(setup->ledger, round, &setup->settings->job, &replay->job);
    if (!err)
        err = cn_tensor_rules_set(&setup->model.layout, &replay->job, &diag);
    if (diag.count)
        cn_command_print_diag(&diag);
    // To the caller CN_ENOTFOUND means a file that is no longer kept.
    return err == CN_ENOTFOUND ? CN_EFORMAT : err;
}

static cn_err remake(struct replay *replay, uint32_t number, struct cn_model *next)
{
    const struct cn_setup *setup = replay->setup;
    if (!replay->current.bytes)
        return CN_ENOTFOUND;
    cn_err err = take_settings(replay, number);
    if (err)
        return err;
    const struct cn_merge_config config = {
        .store = setup->store,
        .ledger = setup->ledger,
        .layout = &setup->model.layout,
        .job = &replay->job,
        .graph = setup->model.digest,
    };
    return cn_merge_round(&config, &replay->current, next);
}

// Compares all digests. A ledger of an older program has no digest of the state.
static bool agrees(const struct replay *replay, const struct cn_model *made,
                   const struct cn_ledger_version *recorded)
{
    static const uint8_t none[CN_DIGEST_SIZE];
    uint8_t state[CN_DIGEST_SIZE];
    cn_model_state_digest(made, &replay->setup->model.layout, state);
    return (memcmp(recorded->state_digest, none, CN_DIGEST_SIZE) == 0 ||
            memcmp(state, recorded->state_digest, CN_DIGEST_SIZE) == 0) &&
           memcmp(made->digest, recorded->digest, CN_DIGEST_SIZE) == 0 &&
           memcmp(made->parent, recorded->parent, CN_DIGEST_SIZE) == 0 &&
           memcmp(made->delta_digest, recorded->delta_digest, CN_DIGEST_SIZE) == 0;
}

// Continues from the stored version, if its files are still kept.
static cn_err step_over(struct replay *replay, const struct cn_ledger_version *recorded)
{
    struct cn_model stored;
    const struct cn_setup *setup = replay->setup;
    cn_err err = take_settings(replay, recorded->number ? recorded->number : 1);
    if (err)
        return err;
    err = cn_model_load(setup->store, setup->ledger, &setup->model.layout,
                        cn_merge_state_rows(&replay->job), recorded->number, &stored);
    cn_model_deinit(&replay->current);
    if (err == CN_OK)
        replay->current = stored;
    return err == CN_ENOTFOUND ? CN_OK : err;
}

static cn_err replay_version(struct replay *replay, const struct cn_ledger_version *recorded)
{
    struct cn_model next = {0};
    cn_err err = recorded->number == 0 ? CN_ENOTFOUND : remake(replay, recorded->number, &next);
    if (err == CN_ENOTFOUND) {
        bool has_parent = replay->current.bytes != NULL;
        cn_model_deinit(&next);
        err = step_over(replay, recorded);
        if (err == CN_EDIGEST) {
            replay->differing++;
            print_line(recorded->number, recorded->digest, "is damaged on disk");
            return CN_OK;
        }
        if (!err && recorded->number) {
            replay->skipped++;
            print_line(recorded->number, recorded->digest,
                       has_parent
                           ? "not checked: its updates are no longer kept (gateway.keep_rounds)"
                           : "not checked: the version before it is no longer kept "
                             "(gateway.keep_versions)");
        } else if (!err) {
            print_line(0, recorded->digest, "the initial model");
        }
        return err;
    }
    if (!err && agrees(replay, &next, recorded)) {
        print_line(recorded->number, next.digest, "ok");
    } else if (!err) {
        replay->differing++;
        print_line(recorded->number, next.digest, "DIFFERS from the ledger");
    } else {
        cn_model_deinit(&next);
        return err;
    }
    cn_model_deinit(&replay->current);
    replay->current = next;
    return CN_OK;
}

static int replay_all(struct replay *replay)
{
    struct cn_ledger_version recorded;
    cn_err err = CN_OK;
    uint32_t number = 0;
    for (; !err; number++) {
        err = cn_ledger_find_version(replay->setup->ledger, number, &recorded);
        if (!err)
            err = replay_version(replay, &recorded);
        else if (err == CN_ENOTFOUND)
            break;
    }
    cn_model_deinit(&replay->current);
    if (err != CN_ENOTFOUND) {
        fprintf(stderr, "error: version %" PRIu32 ": %s\n", number - 1, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    printf("%" PRIu32 " versions, %u differ, %u not checked\n", number, replay->differing,
           replay->skipped);
    return replay->differing ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {{0}};
    const char *positional[1];
    (void)ports;
    if (getopt_long(argc, argv, "", known, NULL) != -1)
        return CN_EXIT_USAGE;
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    struct cn_setup setup = {0};
    struct replay replay = {.setup = &setup};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_LOOK);
    if (!result)
        result = cn_setup_open_model(&setup);
    if (!result)
        result = replay_all(&replay);
    cn_setup_deinit(&setup);
    return result;
}

const struct cn_command cn_aggregator_replay = {
    .name = "replay",
    .summary = "make every version again and compare digests",
    .help = help,
    .run = run,
};
