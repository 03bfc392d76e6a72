// cairn-aggregator replay: makes every version again from the stored updates and compares the
// digests.
#include <getopt.h>
#include <stdio.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/replay_without.h"
#include "aggregator/daemon/remake.h"
#include "runtime/base/whole_number.h"

static const char help[] =
    "Usage: cairn-aggregator replay PROFILE [--without GROUP [--from ROUND]]\n"
    "\n"
    "Makes every version again from the initial model and the accepted updates, and\n"
    "compares digests. Prints a line for each version; fails when one differs.\n"
    "Versions whose updates are no longer kept are taken from disk. The job's values\n"
    "are those that the ledger has for each round; of the profile, state and model\n"
    "count. What the gate or a rollback decided is taken as decided. Works while the\n"
    "aggregator runs.\n"
    "\n"
    "  --without GROUP  shows what the versions would be without the updates of the\n"
    "                   group, and which of them are exact. Stores nothing: `remove`\n"
    "                   takes the group out of the run\n"
    "  --from ROUND     leaves the group's updates of earlier rounds in\n";

struct replay {
    struct cn_setup *setup;
    // The parent of the next version; bytes is NULL when it is not known.
    struct cn_model current;
    unsigned differing, skipped;
};

static void print_line(uint32_t number, const uint8_t *digest, const char *verdict)
{
    char hex[2 * CN_DIGEST_SIZE + 1];
    cn_hex(hex, digest, CN_DIGEST_SIZE);
    printf("version %u %.16s %s\n", number, hex, verdict);
}

static cn_err remake(const struct replay *replay, struct cn_model *next)
{
    if (!replay->current.bytes)
        return CN_ENOTFOUND;
    return cn_remake_version(replay->setup, &replay->current, next);
}

// Continues from the stored version, if its files are still kept.
static cn_err step_over(struct replay *replay, const struct cn_ledger_version *recorded)
{
    struct cn_model stored;
    struct cn_job job;
    const struct cn_setup *setup = replay->setup;
    cn_err err =
        cn_remake_load_settings(replay->setup, recorded->number ? recorded->number : 1, &job);
    if (err)
        return err;
    err = cn_model_load(setup->store, setup->ledger, &setup->model.layout,
                        cn_merge_state_rows(&job), recorded->number, &stored);
    cn_model_deinit(&replay->current);
    if (err == CN_OK)
        replay->current = stored;
    return err == CN_ENOTFOUND ? CN_OK : err;
}

static cn_err replay_version(struct replay *replay, const struct cn_ledger_version *recorded)
{
    struct cn_model next = {0};
    cn_err err = recorded->number == 0 ? CN_ENOTFOUND : remake(replay, &next);
    if (err == CN_ENOTFOUND || err == CN_ESTALE) {
        const char *why = err == CN_ESTALE
                              ? "not checked: the version that it goes back to is no longer kept "
                                "(gateway.keep_versions)"
                          : replay->current.bytes
                              ? "not checked: its updates are no longer kept (gateway.keep_rounds)"
                              : "not checked: the version before it is no longer kept "
                                "(gateway.keep_versions)";
        cn_model_deinit(&next);
        err = step_over(replay, recorded);
        if (err == CN_EDIGEST) {
            replay->differing++;
            print_line(recorded->number, recorded->digest, "is damaged on disk");
            return CN_OK;
        }
        if (!err && recorded->number) {
            replay->skipped++;
            print_line(recorded->number, recorded->digest, why);
        } else if (!err) {
            print_line(0, recorded->digest, "the initial model");
        }
        return err;
    }
    if (!err && cn_remake_agrees(replay->setup, &next, recorded)) {
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
        fprintf(stderr, "error: version %u: %s\n", number - 1, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    printf("%u versions, %u differ, %u not checked\n", number, replay->differing, replay->skipped);
    return replay->differing ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"without", required_argument, NULL, 'w'}, {"from", required_argument, NULL, 'f'}, {0}};
    const char *positional[1], *group = NULL, *from_text = NULL;
    uint64_t from = 0;
    int option;
    (void)ports;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'w')
            group = optarg;
        else if (option == 'f')
            from_text = optarg;
        else
            return CN_EXIT_USAGE;
    }
    if (from_text && (!group || !cn_whole_number_read(from_text, 1, UINT32_MAX, &from))) {
        fprintf(stderr, "error: --from %s: expected --without GROUP and the number of a round\n",
                from_text);
        return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    struct cn_setup setup = {0};
    struct replay replay = {.setup = &setup};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_LOOK);
    if (!result)
        result = cn_setup_open_model(&setup);
    if (!result)
        result = group ? cn_replay_without(&setup, group, (uint32_t)from) : replay_all(&replay);
    cn_setup_deinit(&setup);
    return result;
}

const struct cn_command cn_aggregator_replay = {
    .name = "replay",
    .summary = "make every version again and compare digests",
    .help = help,
    .run = run,
};
