#include "aggregator/command/rollback_request.h"

#include <getopt.h>
#include <stdio.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/audited.h"
#include "aggregator/ledger/rulings.h"
#include "aggregator/run/score.h"
#include "aggregator/store/model_store.h"

int cn_rollback_request_run(const struct cn_rollback_request_command *command, int argc,
                            char **argv)
{
    static const struct option known[] = {
        {"yes", no_argument, NULL, 'y'}, {"reason", required_argument, NULL, 'r'}, {0}};
    struct cn_rollback_request_options options = {0};
    const char *positional[2];
    int option;
    while ((option = getopt_long(argc, argv, "", known + !command->asks, NULL)) != -1) {
        if (option == 'r')
            options.reason = optarg;
        else if (option == 'y')
            options.yes = true;
        else
            return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_arguments(argc, argv, 2, command->wants, positional))
        return CN_EXIT_USAGE;
    options.name = positional[1];
    struct cn_setup setup = {0};
    struct cn_audited audited;
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_LOOK);
    if (!result)
        result = cn_setup_open_model(&setup);
    if (!result)
        result = cn_audited_begin(&audited, &setup, command->name, "name", positional[1]);
    options.gateway = audited.state;
    if (!result)
        result = cn_audited_end(&audited, command->act(&setup, &options));
    cn_setup_deinit(&setup);
    return result;
}

int cn_rollback_request_check(const struct cn_setup *setup, const char *reason)
{
    const char *state = setup->state_name, *end = NULL;
    struct cn_ruling waiting;
    if (!reason) {
        fprintf(stderr, "error: --reason TEXT is missing; see --help\n");
        return CN_EXIT_USAGE;
    }
    if (!cn_ruling_reason_valid(reason)) {
        fprintf(stderr, "error: --reason: expected 1 to %d printable characters on one line\n",
                CN_RULING_TEXT - 1);
        return CN_EXIT_USAGE;
    }
    cn_err err = cn_score_find_end(setup->ledger, &setup->job, &end);
    if (err) {
        fprintf(stderr, "error: %s: %s\n", state,
                err == CN_ENOTFOUND ? "the run has no version yet" : cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    if (end) {
        fprintf(stderr,
                "error: %s: the run is over: %s; export --version gives an earlier version\n",
                state, end);
        return CN_EXIT_FAILED;
    }
    err = cn_rulings_waiting_rollback(setup->ledger, &waiting);
    if (err == CN_ENOTFOUND)
        return CN_EXIT_DONE;
    if (err)
        fprintf(stderr, "error: %s: %s\n", state, cn_err_text(err));
    else
        fprintf(stderr, "error: %s: a rollback to version %u waits already: %s\n", state,
                waiting.source, waiting.reason);
    return CN_EXIT_FAILED;
}

cn_err cn_rollback_request_is_kept(const struct cn_setup *setup, uint32_t number)
{
    struct cn_model model;
    cn_err err =
        cn_model_load_weights(setup->store, setup->ledger, &setup->model.layout, number, &model);
    cn_model_deinit(&model);
    return err;
}

int cn_rollback_request_write(const struct cn_setup *setup, uint32_t number, const char *reason)
{
    cn_err err = cn_rulings_ask_rollback(setup->ledger, number, reason);
    if (err) {
        fprintf(stderr, "error: %s: %s\n", setup->state_name,
                err == CN_EEXIST ? "another rollback waits already" : cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    printf("The next version will have the weights of version %u. An open round ends: its "
           "updates\ndo not count.\n",
           number);
    return CN_EXIT_DONE;
}

cn_err cn_rollback_request_tell_origin(const struct cn_setup *setup, const char *group)
{
    struct cn_ledger_origin origin;
    cn_err err = cn_ledger_find_origin(setup->ledger, &origin);
    if (!err)
        printf("Version 0 is version %u of an earlier run (init --after): what group %s had "
               "trained into it there\nis in all versions of this run.\n",
               origin.version, group);
    return err == CN_ENOTFOUND ? CN_OK : err;
}
