#include "aggregator/command/setup.h"

#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/merge/server_optimizer.h"
#include "aggregator/store/read_store.h"
#include "runtime/profile/rules_text.h"
#include "runtime/update/tensor_rules.h"
#include "runtime/update/version.h"

bool cn_aggregator_positional(int argc, char **argv, int count, const char **positional)
{
    if (argc - optind != count) {
        fprintf(stderr, "error: %s wants %s; see --help\n", argv[0],
                count == 1 ? "PROFILE" : "PROFILE and BOARD");
        return false;
    }
    for (int i = 0; i < count; i++)
        positional[i] = argv[optind + i];
    return true;
}

static int open_ledger(struct cn_setup *setup, enum cn_setup_access access)
{
    const char *state = setup->settings->state;
    cn_err err = access == CN_SETUP_LOOK ? cn_ledger_open_existing(state, &setup->ledger)
                                         : cn_ledger_open(state, &setup->ledger);
    if (err == CN_ENOTFOUND)
        fprintf(stderr, "%s/%s: no run was ever started here\n", state, CN_LEDGER_FILE);
    else if (err)
        fprintf(stderr, "%s/%s: %s\n", state, CN_LEDGER_FILE, cn_err_text(err));
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int open_store(struct cn_setup *setup, enum cn_setup_access access)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/files", setup->settings->state);
    cn_err err = access == CN_SETUP_LOOK ? cn_read_store_open(path, &setup->store)
                                         : cn_platform_open_store(path, &setup->store);
    if (err == CN_EEXIST)
        fprintf(stderr, "%s: another cairn-aggregator runs here\n", setup->settings->state);
    else if (err)
        fprintf(stderr, "%s: %s\n", path, cn_err_reason(err));
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

int cn_setup_open(struct cn_setup *setup, const char *profile, enum cn_setup_access access)
{
    int result = CN_EXIT_DONE;
    setup->profile = cn_command_load_profile(profile, CN_PROFILE_GATEWAY);
    if (!setup->profile)
        return CN_EXIT_PROFILE;
    setup->settings = cn_profile_settings(setup->profile);
    if (access == CN_SETUP_RUN) // the lock first: a second one must not touch the ledger
        result = open_store(setup, access);
    if (!result)
        result = open_ledger(setup, access);
    if (!result && access == CN_SETUP_LOOK)
        result = open_store(setup, access);
    return result;
}

// Nothing for the defaults, so that runs of programs without these options go on.
static int describe_options(const struct cn_update_options *options, char *text, size_t size)
{
    int length = 0;
    if (options->densities[0] || options->priorities[0])
        length += snprintf(text, size, " layers %s, %s", options->densities, options->priorities);
    if (options->snapshot_every)
        length +=
            snprintf(text + length, size - (size_t)length, " snapshot %u", options->snapshot_every);
    if (options->residual)
        length +=
            snprintf(text + length, size - (size_t)length, " residual %d", (int)options->residual);
    return length;
}

static int describe_rules(const struct cn_rules *rules, char *to, size_t size)
{
    char text[CN_RULES_TEXT_SIZE];

    cn_rules_text(rules, text);
    return text[0] ? snprintf(to, size, " rules %s", text) : 0;
}

// Only what the optimizer uses counts. Nothing for plain averaging, as in describe_options.
static int describe_server(const struct cn_server *server, char *text, size_t size)
{
    double rate = cn_server_rate(server);
    switch (server->optimizer) {
    case CN_SERVER_FEDAVG:
        return rate < 1 || rate > 1 ? snprintf(text, size, " server fedavg %a", rate) : 0;
    case CN_SERVER_FEDAVGM:
    case CN_SERVER_NESTEROV:
        return snprintf(text, size, " server %d %a %a", (int)server->optimizer, rate,
                        server->momentum);
    case CN_SERVER_FEDADAGRAD:
        return snprintf(text, size, " server %d %a %a", (int)server->optimizer, rate,
                        server->epsilon);
    case CN_SERVER_FEDADAM:
    case CN_SERVER_FEDYOGI:
        return snprintf(text, size, " server %d %a %a %a %a", (int)server->optimizer, rate,
                        server->beta1, server->beta2, server->epsilon);
    }
    return 0;
}

// The text is the format: "%a" prints a double exactly.
// Over the job's values that the models of a run depend on.
static void digest_job(const struct cn_job *job, uint8_t digest[CN_DIGEST_SIZE])
{
    char text[1024 + CN_RULES_TEXT_SIZE];
    int length = snprintf(
        text, sizeof(text),
        "cairn-job-1 %s %" PRIu64 " %d %s %a %a %a %u %u %u %a %a %a %d up %d %a %u down %d %a %u"
        " %a %" PRIu64,
        job->name, job->seed, (int)job->loss, job->data_set, job->scale, job->mean, job->held_out,
        job->batch, cn_job_accumulate(job), job->local_steps, job->learning_rate, job->momentum,
        job->weight_decay, job->keep_optimizer, (int)job->up.mode, job->up.density,
        job->up.value_bits, (int)job->down.mode, job->down.density, job->down.value_bits,
        job->max_norm, job->max_weight);
    length += describe_options(&job->options, text + length, sizeof(text) - (size_t)length);
    if (job->trust_groups)
        length += snprintf(text + length, sizeof(text) - (size_t)length, " trust groups");
    length += describe_server(&job->server, text + length, sizeof(text) - (size_t)length);
    length += describe_rules(&job->rules, text + length, sizeof(text) - (size_t)length);
    cn_crypto_digest(text, (size_t)length, digest);
}

// Whether the file has the weights of version 0, if the run has that already.
static cn_err check_weights(const struct cn_setup *setup)
{
    struct cn_ledger_version first;
    const struct cn_layout *layout = &setup->model.layout;
    struct cn_version_header header = {.count = layout->total};
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err = cn_ledger_find_version(setup->ledger, 0, &first);
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    float *weights = calloc(layout->total + 1, sizeof(*weights));
    if (!weights)
        return CN_ENOMEM;
    memcpy(header.graph, setup->model.digest, CN_DIGEST_SIZE);
    err = cn_onnx_weights(setup->model.onnx, layout, weights);
    if (!err)
        cn_version_digest(&header, weights, digest);
    free(weights);
    if (!err && memcmp(digest, first.digest, CN_DIGEST_SIZE) != 0)
        return CN_EDIGEST;
    return err;
}

static int explain_binding(const struct cn_setup *setup, cn_err err)
{
    const char *state = setup->settings->state;
    if (err == CN_ECONFLICT)
        fprintf(stderr,
                "%s belongs to a run with another model or other job values; restore them, or give"
                " this job a state directory of its own\n",
                state);
    else if (err == CN_EDIGEST)
        fprintf(stderr,
                "%s belongs to a run with another model: %s has other weights than it began with;"
                " restore the file, or give this job a state directory of its own\n",
                state, setup->settings->model);
    else if (err)
        fprintf(stderr, "%s: %s\n", state, cn_err_text(err));
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

int cn_setup_open_model(struct cn_setup *setup)
{
    struct cn_diag diag;
    uint8_t job[CN_DIGEST_SIZE];
    cn_diag_init(&diag);
    setup->has_model = true;
    cn_err err = cn_model_file_init(&setup->model, setup->settings->model, &diag);
    if (err) {
        cn_command_print_about(setup->settings->model, err, &diag);
        return CN_EXIT_FAILED;
    }
    if (cn_tensor_rules_set(&setup->model.layout, &setup->settings->job, &diag) != CN_OK) {
        cn_command_print_diag(&diag);
        return CN_EXIT_FAILED;
    }
    digest_job(&setup->settings->job, job);
    err = cn_ledger_bind(setup->ledger, setup->model.digest, job);
    return explain_binding(setup, err);
}

int cn_setup_check_weights(const struct cn_setup *setup)
{
    return explain_binding(setup, check_weights(setup));
}

void cn_setup_deinit(struct cn_setup *setup)
{
    if (setup->store)
        setup->store->ops->close(setup->store);
    cn_ledger_close(setup->ledger);
    if (setup->has_model)
        cn_model_file_deinit(&setup->model);
    cn_profile_free(setup->profile);
    memset(setup, 0, sizeof(*setup));
}
