// node_run.c - "cairn-node run": takes part in a run.
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/log_recent.h"
#include "runtime/command/check_memory.h"
#include "runtime/command/command.h"
#include "runtime/command/node_gpus.h"
#include "runtime/command/terminal/run_line.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/profile/gpus.h"
#include "runtime/profile/notation/quantity.h"
#include "runtime/round/node/node.h"

#define FAULT_WAIT_MS 60000 // time that a service waits before it ends because it cannot train
#define GAVE_UP 4           // exit code of a GPU's process for its parent; cairn-node exits with 1

static const char help[] =
    "Usage: cairn-node run [OPTIONS] PROFILE\n"
    "\n"
    "Registers at the aggregator, trains in rounds with the other boards of the\n"
    "group and keeps the newest model in STATE/model.current.onnx. Goes on where it\n"
    "stopped, however it was stopped. With several GPUs in the profile (gpus) it\n"
    "runs a process for each, and starts one again that ends.\n"
    "On a terminal a line under the log says the round, the step and the time left.\n"
    "When it cannot train (labels that do not fit, no memory) it says why, also to\n"
    "the aggregator, and ends with 1: at once, or after a minute when a service\n"
    "manager started it.\n"
    "\n"
    "  --until-end        exit when the run has ended, unless the gateway has another\n"
    "                     job for this board, instead of waiting for the next run\n"
    "  --give-up SECONDS  exit with 1 when the aggregator was away, or refused this\n"
    "                     board, for so long (default: never)\n"
    "  --key FILE         this board's key, instead of the profile's aggregator.key\n"
    "  --sysroot DIR      read sys/, proc/ and etc/ of the board below DIR: in a\n"
    "                     container, or a record\n"
    "  --timeline FILE    what each member of the group did in each step, for\n"
    "                     chrome://tracing\n"
    "  --log-level LEVEL  error, warn, info or debug\n"
    "  --log-format F     text, or json: one object a line\n";

struct options {
    const char *profile;
    const char *key;      // NULL: the profile's
    const char *sysroot;  // NULL: the root of this machine
    const char *timeline; // NULL: none
    bool until_end;
    bool line;    // show the progress line, if standard error is a terminal
    bool service; // a service manager started this process, or its parent with several GPUs
    uint64_t give_up_ms;
};

static bool take_seconds(const char *text, uint64_t *ms)
{
    uint64_t seconds;

    if (cn_quantity_parse(text, cn_units_none, &seconds) || !seconds || seconds > UINT32_MAX) {
        fprintf(stderr, "error: --give-up '%s' is not a number of seconds\n", text);
        return false;
    }
    *ms = seconds * 1000;
    return true;
}

static int parse(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"until-end", no_argument, NULL, 'u'},      {"give-up", required_argument, NULL, 'g'},
        {"key", required_argument, NULL, 'k'},      {"sysroot", required_argument, NULL, 'r'},
        {"timeline", required_argument, NULL, 't'}, {0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'u')
            options->until_end = true;
        else if (option == 'k')
            options->key = optarg;
        else if (option == 'r' && cn_command_is_sysroot(optarg))
            options->sysroot = optarg;
        else if (option == 't')
            options->timeline = optarg;
        else if (option != 'g' || !take_seconds(optarg, &options->give_up_ms))
            return -1;
    }
    if (optind + 1 != argc) {
        fputs(help, stderr);
        return -1;
    }
    if (options->key && strlen(options->key) >= CN_PATH_SIZE) {
        fprintf(stderr, "error: --key: the path is too long\n");
        return -1;
    }
    options->profile = argv[optind];
    return 0;
}

static int explain(cn_err err)
{
    switch (err) {
    case CN_OK:
        return CN_EXIT_DONE;
    case CN_ECANCELED:
        return CN_EXIT_INTERRUPTED;
    case CN_EAUTH:
        cn_log(CN_LOG_ERROR, "node", "the aggregator refuses this board; giving up");
        return CN_EXIT_FAILED;
    case CN_EINVAL: // the node said why
        return CN_EXIT_FAILED;
    case CN_ETIMEOUT:
        cn_log(CN_LOG_ERROR, "node", "the aggregator was not there; giving up");
        return GAVE_UP;
    default:
        cn_log(CN_LOG_ERROR, "node", "%s", cn_err_text(err));
        return CN_EXIT_FAILED;
    }
}

static int run_node(const struct cn_ports *ports, const struct options *options,
                    const struct cn_settings *settings, struct cn_node_config *config)
{
    struct cn_run_line line = {0};
    cn_err err;
    int code;

    config->settings = settings;
    config->sysroot = options->sysroot ? options->sysroot : "";
    config->ports = ports;
    config->until_end = options->until_end;
    config->give_up_ms = options->give_up_ms;
    config->fault_wait_ms = options->service ? FAULT_WAIT_MS : 0;
    config->compute = cn_command_compute(ports, settings, &config->capability);
    if (!config->compute)
        return CN_EXIT_FAILED;
    code = cn_command_open_store(settings, &config->store);
    if (code)
        return code;
    config->stop = cn_command_catch_signals();
    if (settings->remote >= CN_REMOTE_LOG && cn_log_recent_open(CN_ORDER_ANSWER_MAX))
        cn_log(CN_LOG_WARN, "node", "no memory to keep the newest lines of the log");
    err = cn_command_open_timeline(options->timeline, &config->timeline);
    if (options->line)
        cn_run_line_open(&line);
    config->look = cn_run_line_draw;
    config->look_context = &line;
    if (!err)
        err = cn_node_run(config);
    config->look = NULL;
    config->look_context = NULL;
    cn_run_line_close(&line);
    if (cn_platform_fault()) // threads that cannot be joined still use the rest
        return explain(err);
    cn_command_close_timeline(options->timeline, config->timeline);
    config->store->ops->close(config->store);
    cn_log_recent_close();
    return explain(err);
}

static int run_member(const struct cn_ports *ports, const struct options *options,
                      const struct cn_settings *settings)
{
    struct cn_node_config config = {0};
    static struct cn_diag diag;
    int code;

    cn_diag_init(&diag);
    if (ports->load_link_key(settings, &diag, config.link_key)) {
        cn_command_print_diag(&diag);
        code = CN_EXIT_FAILED;
    } else {
        code = run_node(ports, options, settings, &config);
    }
    cn_crypto_wipe(config.link_key, sizeof(config.link_key));
    return code;
}

// --- a board with several GPUs ---

struct gpus {
    const struct cn_ports *ports;
    const struct options *options;
    const struct cn_settings *settings;
};

static int run_gpu(void *context, uint32_t place)
{
    const struct gpus *gpus = context;
    static struct cn_settings settings; // large
    cn_err err;

    settings = *gpus->settings;
    err = cn_gpus_narrow(&settings, place);
    if (err) {
        fprintf(stderr, "error: gpus: a name or path becomes too long: %s\n", cn_err_text(err));
        return CN_EXIT_PROFILE;
    }
    return run_member(gpus->ports, gpus->options, &settings);
}

static void name_gpu(void *context, uint32_t place, char *text, uint32_t size)
{
    const struct gpus *gpus = context;
    uint32_t numbers[CN_GROUP_MAX];
    char name[2 * CN_NAME_SIZE];

    (void)cn_gpus_list(gpus->settings, numbers);
    cn_gpus_name(gpus->settings, numbers[place], name);
    snprintf(text, size, "%s", name);
}

static int run_gpus(struct gpus *gpus, uint32_t count)
{
    if (gpus->options->key || gpus->options->timeline) {
        fprintf(stderr, "error: %s is of one member, the profile's gpus make %u\n",
                gpus->options->key ? "--key" : "--timeline", count);
        return CN_EXIT_USAGE;
    }
    return cn_command_run_each(count, run_gpu, name_gpu, gpus);
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    struct options options = {0};
    struct cn_profile *profile;
    static struct cn_settings settings; // large
    struct gpus gpus = {ports, &options, &settings};
    uint32_t numbers[CN_GROUP_MAX], count;
    int code;

    if (parse(argc, argv, &options))
        return CN_EXIT_USAGE;
    // Asked before members are started: for a member, its parent is the service manager.
    options.service = cn_platform_is_service();
    profile = cn_command_load_node(options.profile, options.key);
    if (!profile)
        return CN_EXIT_PROFILE;
    settings = *cn_profile_settings(profile);
    if (!cn_check_memory(options.profile, &settings, "")) {
        cn_profile_free(profile);
        return CN_EXIT_PROFILE;
    }
    count = cn_gpus_list(&settings, numbers);
    options.line = count <= 1; // several members would draw over each other's line
    code = count > 1 ? run_gpus(&gpus, count) : run_member(ports, &options, &settings);
    cn_profile_free(profile);
    return code == GAVE_UP ? CN_EXIT_FAILED : code;
}

const struct cn_command cn_command_run = {
    .name = "run",
    .summary = "take part in a run with other boards",
    .help = help,
    .exits = "7 state of another version",
    .run = run,
};
