#include "runtime/command/bench_link.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/command/bench_probe.h"
#include "runtime/command/command.h"
#include "runtime/command/train_speed.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/port/store.h"
#include "runtime/profile/gpus.h"
#include "runtime/profile/notation/quantity.h"
#include "runtime/update/rate.h"
#include "runtime/update/tensor_rules.h"

#define STEP_LIMIT_US 3000000
#define HEADERS 0.9 // share of a link's rate that headers, from chunks to IP, leave for payload

// The facts about model, job and link from which the table is computed.
struct ground {
    struct cn_layout layout;
    struct cn_rate_spectrum spectrum;
    struct cn_rate_situation situation;
    bool given; // the link was given on the command line
};

// --- the link as a user writes it ---

static bool parse_link(const struct cn_bench_link *wanted, struct cn_link_path_stats *link)
{
    uint64_t rate = 0, rtt_ms = 0;
    double loss = 0;
    bool good = true;

    if (wanted->rate && (cn_quantity_parse(wanted->rate, cn_units_rate, &rate) || !rate)) {
        fprintf(stderr, "error: --rate '%s'; expected a rate, such as \"1 Mbit/s\"\n",
                wanted->rate);
        good = false;
    }
    if (wanted->rtt && cn_quantity_parse(wanted->rtt, cn_units_time, &rtt_ms)) {
        fprintf(stderr, "error: --rtt '%s'; expected a time, such as \"200 ms\"\n", wanted->rtt);
        good = false;
    }
    if (wanted->loss && (cn_share_parse(wanted->loss, &loss) || loss < 0 || loss >= 1)) {
        fprintf(stderr, "error: --loss '%s'; expected a share below 100 %%, such as \"5 %%\"\n",
                wanted->loss);
        good = false;
    }
    *link = (struct cn_link_path_stats){
        .up_bps = (double)rate * HEADERS * (1 - loss),
        .rtt_us = rtt_ms * 1000,
        .loss = loss,
    };
    return good;
}

// --- model and job ---

static cn_err take_model(const struct cn_ports *ports, const struct cn_settings *settings,
                         const struct cn_job *job, const struct cn_onnx_file *model,
                         struct cn_diag *diag, struct ground *ground)
{
    struct cn_trainer_config config = {
        .compute = cn_command_compute(ports, settings, NULL),
        .device = cn_gpus_first(settings),
        .threads = settings->threads ? settings->threads : cn_platform_cpu_count(),
        .batch = job->batch,
        .loss = job->loss,
        .rules = &job->rules,
        .steps = cn_job_schedule_steps(job),
        .learning_rate = 1e-6f,
        .memory_limit = settings->memory_limit,
    };
    struct cn_train_speed speed = {0};
    struct cn_onnx *onnx = NULL;
    cn_err err;

    if (!config.compute)
        return CN_ENOTSUP;
    err = cn_onnx_open(model->data, model->size, diag, &onnx);
    if (!err)
        err = cn_onnx_layout(onnx, diag, &ground->layout);
    cn_onnx_close(onnx);
    if (!err)
        err = cn_tensor_rules_set(&ground->layout, job, diag);
    if (!err)
        err = cn_train_speed(&config, model, STEP_LIMIT_US, diag, &speed);
    if (err)
        return err;
    cn_rate_guess(&ground->layout, &ground->spectrum);
    ground->situation.remaining_s = (double)job->deadline_ms / 1000;
    ground->situation.step_s = speed.median_ms / 1000 * cn_job_accumulate(job);
    ground->situation.steps = job->local_steps;
    ground->situation.steps_most = cn_job_most_steps(job);
    ground->situation.bytes_most = settings->round_bytes ? settings->round_bytes : UINT64_MAX;
    ground->situation.factor = 1;
    return CN_OK;
}

static cn_err take_profile(const struct cn_ports *ports, const struct cn_settings *settings,
                           struct cn_diag *diag, struct ground *ground)
{
    struct cn_onnx_file model;
    cn_err err = cn_onnx_file_open(settings->model, diag, &model);

    if (err)
        return err;
    err = take_model(ports, settings, &settings->job, &model, diag, ground);
    cn_onnx_file_close(&model);
    return err;
}

// Measures under the lock of the store, so that the measurement cannot end the session of a running
// node.
static cn_err take_measured(const struct cn_ports *ports, const struct cn_settings *settings,
                            struct cn_diag *diag, struct ground *ground)
{
    static struct cn_probe probe; // large
    uint8_t key[CN_KEY_SIZE];
    struct cn_store *store;
    cn_err err = cn_platform_open_store(settings->state, &store);

    if (err) {
        cn_diag_add(diag, "%s: %s", settings->state,
                    err == CN_EEXIST ? "cairn-node runs here; its log says what it measures and "
                                       "chooses"
                                     : cn_err_text(err));
        return err;
    }
    err = ports->load_link_key(settings, diag, key);
    if (!err) {
        struct cn_onnx_file model;

        err = cn_probe_run(ports, settings, key, diag, &probe);
        cn_crypto_wipe(key, sizeof(key));
        ground->situation.link = probe.measure;
        model = (struct cn_onnx_file){.data = probe.onnx.data, .size = probe.onnx.size};
        if (!err)
            err = take_model(ports, settings, &probe.job, &model, diag, ground);
        cn_probe_deinit(&probe);
    }
    store->ops->close(store);
    return err;
}

// --- the table ---

// Returns the seconds to send an update of `bytes` bytes, with a round trip to declare it and one
// to commit it.
static double transfer_s(const struct ground *ground, uint64_t bytes)
{
    const struct cn_link_path_stats *link = &ground->situation.link;

    return 8 * (double)bytes / cn_rate_goodput(link) + 2e-6 * (double)link->rtt_us;
}

static void print_rule(const struct ground *ground, const struct cn_update_rule *rule, bool json)
{
    uint64_t budget = cn_rate_budget(&ground->situation);
    const char *mode = cn_update_mode_name(rule->mode);
    struct cn_rate_choice judged;
    char what[48];

    cn_rate_judge(&ground->spectrum, rule, &judged);
    if (json) {
        printf("{\"mode\":\"%s\",\"density\":%g,\"value_bits\":%u,\"bytes\":%" PRIu64
               ",\"seconds\":%.4g,"
               "\"energy\":%.4f,\"fits\":%s}\n",
               mode, rule->density, rule->value_bits, judged.bytes,
               transfer_s(ground, judged.bytes), judged.quality,
               judged.bytes <= budget ? "true" : "false");
        return;
    }
    if (rule->mode == CN_UPDATE_TOPK)
        snprintf(what, sizeof(what), "%s %g %%, %u bits", mode, 100 * rule->density,
                 rule->value_bits);
    else
        snprintf(what, sizeof(what), "%s", mode);
    printf("%-22s %12" PRIu64 " %10.3g %9.1f %%   %s\n", what, judged.bytes,
           transfer_s(ground, judged.bytes), 100 * judged.quality,
           judged.bytes <= budget ? "yes" : "no");
}

static void print_rules(const struct ground *ground, bool json)
{
    static const enum cn_update_mode dense[] = {CN_UPDATE_RAW32, CN_UPDATE_BF16, CN_UPDATE_Q8,
                                                CN_UPDATE_Q4, CN_UPDATE_SIGN};
    static const double densities[] = {0.25, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001};
    static const uint32_t value_bits[] = {3, 2, 0};

    if (!json)
        printf("%-22s %12s %10s %11s   %s\n", "rule", "bytes", "seconds", "energy", "fits");
    for (size_t i = 0; i < sizeof(dense) / sizeof(dense[0]); i++)
        print_rule(ground, &(struct cn_update_rule){.mode = dense[i]}, json);
    for (size_t i = 0; i < sizeof(densities) / sizeof(densities[0]); i++)
        for (size_t j = 0; j < sizeof(value_bits) / sizeof(value_bits[0]); j++)
            print_rule(ground,
                       &(struct cn_update_rule){CN_UPDATE_TOPK, densities[i], value_bits[j]}, json);
}

static void print_link(const struct ground *ground)
{
    const struct cn_rate_situation *situation = &ground->situation;
    const struct cn_link_path_stats *link = &situation->link;

    printf("link       %s: up %.0f kbit/s", ground->given ? "as given" : "measured",
           link->up_bps / 1000);
    if (!(link->up_bps > 0))
        printf(" (not measured: a quarter of down, or 64)");
    printf(" +- %.0f, down %.0f kbit/s, round trip %.1f ms, loss %.1f %%\n",
           link->up_deviation_bps / 1000, link->down_bps / 1000, (double)link->rtt_us / 1000,
           100 * link->loss);
    printf("counted on %.0f kbit/s up\n", cn_rate_goodput(link) / 1000);
    printf("round      %.0f s, %u steps of %.2f ms, up to %u\n", situation->remaining_s,
           situation->steps, 1000 * situation->step_s, situation->steps_most);
    printf("model      %zu values; the energy is that of a Laplace distribution\n\n",
           ground->layout.total);
}

static void print_choice(const struct ground *ground, bool json)
{
    uint64_t budget = cn_rate_budget(&ground->situation);
    struct cn_rate_choice choice;

    cn_rate_plan(&ground->spectrum, &ground->situation, &choice);
    if (json) {
        printf("{\"chosen\":\"%s\",\"density\":%g,\"value_bits\":%u,\"bytes\":%" PRIu64
               ",\"budget\":%" PRIu64 ","
               "\"seconds\":%.4g,\"energy\":%.4f,\"steps\":%u,\"goodput_bps\":%.0f,\"rtt_ms\":%.3f,"
               "\"loss\":%.4f}\n",
               cn_update_mode_name(choice.rule.mode), choice.rule.density, choice.rule.value_bits,
               choice.bytes, budget, transfer_s(ground, choice.bytes), choice.quality, choice.steps,
               cn_rate_goodput(&ground->situation.link),
               (double)ground->situation.link.rtt_us / 1000, ground->situation.link.loss);
        return;
    }
    printf("\nmode auto would choose %s", cn_update_mode_name(choice.rule.mode));
    if (choice.rule.mode == CN_UPDATE_TOPK)
        printf(", density %.2f %%, %u bits", 100 * choice.rule.density, choice.rule.value_bits);
    if (choice.rule.mode == CN_UPDATE_SKIP)
        printf(": within %" PRIu64 " bytes no rule keeps 5 %% of the energy; all waits", budget);
    else
        printf(": of what fits into %" PRIu64
               " bytes it keeps the most energy, %.1f %%, in %" PRIu64 " bytes "
               "and %.3g s",
               budget, 100 * choice.quality, choice.bytes, transfer_s(ground, choice.bytes));
    printf("\nand %u steps a round: training should take three times as long as sending\n",
           choice.steps);
}

int cn_bench_link(const struct cn_ports *ports, const struct cn_bench_link *wanted)
{
    bool given = wanted->rate || wanted->rtt || wanted->loss;
    static struct ground ground; // large
    static struct cn_diag diag;
    struct cn_profile *profile;
    cn_err err;

    ground.given = given;
    if (!parse_link(wanted, &ground.situation.link))
        return CN_EXIT_USAGE;
    profile = cn_command_load_profile(wanted->profile, given ? CN_PROFILE_TRAIN : CN_PROFILE_NODE);
    if (!profile)
        return CN_EXIT_PROFILE;
    cn_diag_init(&diag);
    err =
        (given ? take_profile : take_measured)(ports, cn_profile_settings(profile), &diag, &ground);
    cn_command_print_diag(&diag);
    if (err && diag.count == 0)
        fprintf(stderr, "error: %s\n", cn_err_text(err));
    if (!err) {
        if (!wanted->json)
            print_link(&ground);
        print_rules(&ground, wanted->json);
        print_choice(&ground, wanted->json);
    }
    cn_layout_deinit(&ground.layout);
    cn_profile_free(profile);
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}
