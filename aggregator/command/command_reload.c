// cairn-aggregator reload: the run goes on with the values that the profile has now.
#include <getopt.h>
#include <stdio.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/audited.h"
#include "aggregator/command/steer.h"
#include "aggregator/daemon/job_place.h"
#include "aggregator/daemon/reload.h"
#include "aggregator/daemon/setup.h"
#include "aggregator/show/invitable.h"

static const char help[] =
    "Usage: cairn-aggregator reload PROFILE [--job JOB] [--socket PATH] [--id ID]\n"
    "\n"
    "Takes the job's values from the profile into the run, from its next round on.\n"
    "The quorum, the deadline and what ends the run hold for the open round, too,\n"
    "and so does `parallel` while the round has no update.\n"
    "Boards take the values by themselves. Works beside a running aggregator, and\n"
    "without one for the round after its next start. A run that is over goes on only\n"
    "when the aggregator is started again, also with --stay.\n"
    "\n"
    "All values are taken or none: a value that may not change in a run is named,\n"
    "and so is each mistake in the profile. A running aggregator does the same when\n"
    "it gets SIGHUP, and says in its log what it took. With --socket or --job, or\n"
    "where this user may not write to the state, the running aggregator reads the\n"
    "profile: its own, or that of the submitted job that --job or PROFILE "
    "names.\n\n" CN_STEER_JOB_HELP CN_STEER_HELP;

static void print(const struct cn_setup *setup, const struct cn_job_reload *reload)
{
    struct cn_job_place place;
    const struct cn_job *job = &setup->settings->job;
    char text[CN_RELOAD_LINE], few[CN_INVITABLE_ENROLLED_TEXT];
    if (cn_job_place_find(setup->state_name, &place))
        printf("job %s of the gateway with the state %s:\n", place.job, place.gateway);
    uint32_t groups;
    for (size_t i = 0; i < reload->changed.count && i < CN_DIAG_LINES; i++) {
        cn_reload_describe(reload, i, text);
        printf("%s\n", text);
    }
    if (reload->changed.count > CN_DIAG_LINES)
        printf("and %zu more\n", reload->changed.count - CN_DIAG_LINES);
    if (reload->new_optimizer)
        printf("The state of the server's optimizer starts from zero in that round.\n");
    for (size_t i = 0; i < reload->warned.count && i < CN_DIAG_LINES; i++)
        fprintf(stderr, "warning: %s\n", reload->warned.lines[i]);
    if (reload->changed.count == 0)
        printf(
            "the job has the values of the run: nothing changes. The gateway's own values, such as "
            "gateway.listen, hold after a restart.\n");
    cn_reload_describe_end(setup, setup->settings, text);
    if (text[0])
        fprintf(stderr, "warning: %s\n", text);
    if (cn_ledger_group_count(setup->ledger, &groups) == CN_OK &&
        groups < cn_job_updates_needed(job)) {
        cn_invitable_enrolled_text(cn_job_needed_word(job), cn_job_updates_needed(job), groups,
                                   few);
        fprintf(stderr, "warning: %s: no round can close before more are\n", few);
    }
}

static int reload_run(const struct cn_setup *setup)
{
    static struct cn_job_reload reload;
    cn_err err = cn_reload_write(setup, setup->settings, &reload);
    if (err) {
        cn_command_print_errors(&reload.refused);
        fprintf(stderr, "nothing is changed: %s\n",
                reload.refused.count ? "the profile is refused" : cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    print(setup, &reload);
    return CN_EXIT_DONE;
}

static int reload_audited(const struct cn_setup *setup)
{
    struct cn_audited audited;
    int result = cn_audited_begin(&audited, setup, "reload", NULL, NULL);
    return result ? result : cn_audited_end(&audited, reload_run(setup));
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {CN_STEER_JOB_OPTION, CN_STEER_OPTIONS, {0}};
    struct cn_steer steer = {.of_run = true};
    int option;
    const char *positional[1];
    (void)ports;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (!cn_steer_read_option(&steer, option, optarg))
            return CN_EXIT_USAGE;
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    if (steer.request.members & CN_CONTROL_JOB ||
        cn_steer_is_needed(&steer, positional[0], CN_STEER_WRITE))
        return cn_steer_send(&steer, positional[0], "reload");
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_LOOK);
    if (!result)
        result = cn_setup_open_model(&setup);
    if (!result)
        result = reload_audited(&setup);
    cn_setup_deinit(&setup);
    return result;
}

const struct cn_command cn_aggregator_reload = {
    .name = "reload",
    .summary = "go on with the job's values of the profile",
    .help = help,
    .run = run,
};
