// Checks between keys: values that contradict each other, and keys that a program requires.
#include <stdlib.h>
#include <string.h>

#include "runtime/base/words.h"
#include "runtime/profile/gpus.h"
#include "runtime/profile/layer_entry.h"
#include "runtime/profile/profile_private.h"
#include "runtime/profile/profile_value.h"

struct cn_mark cn_profile_place(const struct cn_profile *profile, const char *path,
                                struct cn_diagnostics *report)
{
    const struct cn_origin *origin = cn_profile_origin(profile, path);

    if (origin->source) {
        report->file = origin->source->path;
        return origin->mark;
    }
    return (struct cn_mark){1, 1};
}

bool cn_profile_is_set(const struct cn_profile *profile, const char *key)
{
    return cn_profile_origin(profile, key)->source != NULL;
}

// Checks that members on the same host have different ports.
static void check_ports(const struct cn_profile *profile, struct cn_mark mark,
                        struct cn_diagnostics *report)
{
    const struct cn_group_settings *group = &profile->settings.group;

    for (uint32_t i = 0; i < group->member_count; i++)
        for (uint32_t j = i + 1; j < group->member_count; j++) {
            const struct cn_member *a = &group->members[i], *b = &group->members[j];
            size_t a_length, b_length;
            unsigned a_port = (unsigned)cn_value_port(a->address, &a_length),
                     b_port = (unsigned)cn_value_port(b->address, &b_length);

            if (a_port != b_port || a_length != b_length ||
                strncmp(a->address, b->address, a_length) != 0)
                continue;
            cn_diagnostics_error(
                report, mark,
                "group.members: '%s' (%s) and '%s' (%s) share a port; expected one of "
                "its own for each member",
                a->name, a->address, b->name, b->address);
        }
}

// Checks that group.listen matches this member's entry in group.members, where the others look for
// it. With several GPUs each member listens at its own entry.
static void check_listen(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_settings *settings = &profile->settings;
    const struct cn_group_settings *group = &settings->group;
    uint32_t gpus[CN_GROUP_MAX];
    size_t length;
    struct cn_mark mark;

    if (group->mapped && cn_gpus_list(settings, gpus) > 1) {
        mark = cn_profile_place(profile, "group.mapped", report);
        cn_diagnostics_error(
            report, mark,
            "group.mapped: true, but each of several GPUs listens at its own port in "
            "group.members; expected false");
    }
    if (!group->listen[0] || group->mapped || cn_gpus_list(settings, gpus) > 1)
        return;
    for (uint32_t i = 0; i < group->member_count; i++) {
        const struct cn_member *member = &group->members[i];

        if (strcmp(member->name, settings->name) != 0 ||
            cn_value_port(member->address, &length) == cn_value_port(group->listen, &length))
            continue;
        mark = cn_profile_place(profile, "group.listen", report);
        cn_diagnostics_error(
            report, mark,
            "group.listen: '%s' has another port than group.members says of '%s', "
            "%s; expected the same, or group.mapped: true where a router or container "
            "maps it",
            group->listen, member->name, member->address);
    }
}

static void check_min_members(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_group_settings *group = &profile->settings.group;
    struct cn_mark mark;

    if (group->min_members <= group->member_count)
        return;
    mark = cn_profile_place(profile, "group.min_members", report);
    cn_diagnostics_error(report, mark, "group.min_members: %u of %u; expected no more than members",
                         group->min_members, group->member_count);
}

static void check_group(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_settings *settings = &profile->settings;
    struct cn_mark mark = cn_profile_place(profile, "group.members", report);
    uint32_t gpus[CN_GROUP_MAX];
    bool found = false;

    if (!cn_profile_is_set(profile, "group.members"))
        return;
    if (cn_gpus_list(settings, gpus) > 1) // the others look for each of its GPUs
        found = true;
    for (uint32_t i = 0; i < settings->group.member_count; i++)
        found |= strcmp(settings->group.members[i].name, settings->name) == 0;
    if (settings->name[0] && !found)
        cn_diagnostics_error(report, mark,
                             "group.members: this board, '%s', is missing; expected all members",
                             settings->name);
    if (!settings->group.listen[0])
        cn_diagnostics_error(report, mark,
                             "group.listen: not set, but group.members is; expected host:port");
    if (settings->precision == CN_PRECISION_FLOAT16)
        cn_diagnostics_error(
            report, cn_profile_place(profile, "compute.precision", report),
            "compute.precision: a step that overflows float16 is dropped, which members "
            "of a group cannot do alone; expected bfloat16 or float32");
    check_ports(profile, mark, report);
    check_listen(profile, report);
    check_min_members(profile, report);
}

static bool is_member(const struct cn_settings *settings, const char *name)
{
    for (uint32_t i = 0; i < settings->group.member_count; i++)
        if (strcmp(settings->group.members[i].name, name) == 0)
            return true;
    return false;
}

// Checks that the list holds whole numbers, none of them twice. Only the driver knows whether GPUs
// with these numbers exist.
static bool check_gpu_numbers(const struct cn_settings *settings, struct cn_mark mark,
                              struct cn_diagnostics *report)
{
    const char *rest = settings->gpus;
    char word[CN_WORDS_SIZE];
    uint64_t seen = 0;

    while (cn_words_next(&rest, word, sizeof(word))) {
        bool number = strspn(word, "0123456789") == strlen(word) && strtoul(word, NULL, 10) < 64;
        uint64_t bit = number ? 1ull << strtoul(word, NULL, 10) : 0;

        if (!number || seen & bit) {
            cn_diagnostics_error(report, mark,
                                 "gpus: '%s' %s; expected numbers from 0 to 63, each once", word,
                                 number ? "is there twice" : "is no number of a GPU");
            return false;
        }
        seen |= bit;
    }
    return true;
}

static void check_gpus(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_settings *settings = &profile->settings;
    struct cn_mark mark = cn_profile_place(profile, "gpus", report);
    uint32_t gpus[CN_GROUP_MAX], count;
    char name[2 * CN_NAME_SIZE];

    if (!settings->gpus[0] || !check_gpu_numbers(settings, mark, report))
        return;
    count = cn_gpus_list(settings, gpus);
    if (cn_words_count(settings->gpus) > CN_GROUP_MAX)
        cn_diagnostics_error(report, mark, "gpus: more than %d; a group has no more members",
                             CN_GROUP_MAX);
    if (settings->device == CN_DEVICE_CPU)
        cn_diagnostics_error(report, mark, "gpus: device is cpu; expected auto or cuda");
    for (uint32_t i = 0; count > 1 && settings->name[0] && i < count; i++) {
        cn_gpus_name(settings, gpus[i], name);
        if (!is_member(settings, name))
            cn_diagnostics_error(
                report, mark,
                "gpus: '%s' is missing in group.members; expected each GPU there, with "
                "an address of its own",
                name);
    }
}

static void check_hardware(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_settings *settings = &profile->settings;

    if (settings->cpu_cores && settings->threads > settings->cpu_cores) {
        struct cn_mark mark = cn_profile_place(profile, "threads", report);

        cn_diagnostics_error(report, mark,
                             "threads: '%u' is more than the board has; expected at most "
                             "cpu.cores, %u",
                             settings->threads, settings->cpu_cores);
    }
    if (settings->memory_size && settings->memory_limit > settings->memory_size) {
        struct cn_mark mark = cn_profile_place(profile, "memory.train_max", report);

        cn_diagnostics_error(
            report, mark,
            "memory.train_max: more than the board has; expected at most memory.size");
    }
}

// Reports pause rules that contradict each other or lack what they need.
static void check_care(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_settings *settings = &profile->settings;
    const struct cn_upkeep_settings *care = &settings->care;

    if (care->pause_above_mc && care->resume_below_mc >= care->pause_above_mc) {
        struct cn_mark mark = cn_profile_place(profile, "thermal.resume_below", report);

        cn_diagnostics_error(report, mark,
                             "thermal.resume_below: not below thermal.pause_above, %.1f C",
                             (double)care->pause_above_mc / 1000);
    }
    if (care->enforce_power && (!settings->power_mw || !care->power_sensors[0])) {
        struct cn_mark mark = cn_profile_place(profile, "power.enforce", report);

        cn_diagnostics_error(report, mark, "power.enforce: nothing to hold; expected power.%s, too",
                             settings->power_mw ? "sensor" : "budget");
    }
}

// Most characters of all lists of a job together: they must fit one message.
#define LISTS_MAX 200

// Names the longest list, which is where most can be saved.
static void check_lists(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;
    const struct {
        const char *key, *text;
    } lists[] = {
        {"job.loss.output", job->rules.output},
        {"job.loss.weights", job->rules.weights},
        {"job.loss.ignore", job->rules.ignore},
        {"job.train.freeze", job->rules.freeze},
        {"job.train.no_decay", job->rules.no_decay},
        {"job.parallel.sets", job->parallel.sets},
        {"job.parallel.phases", job->parallel.phases},
        {"job.parallel.train", job->parallel.train},
        {"job.parallel.measure", job->parallel.measure},
        {"job.parallel.cut", job->pipeline.cut},
        {"job.update.densities", job->options.densities},
        {"job.update.priorities", job->options.priorities},
        {"job.update.local", job->options.local},
    };
    size_t size = 0, longest = 0;

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        size += strlen(lists[i].text);
        if (strlen(lists[i].text) > strlen(lists[longest].text))
            longest = i;
    }
    if (size > LISTS_MAX)
        cn_diagnostics_error(report, cn_profile_place(profile, lists[longest].key, report),
                             "%s: the longest of the job's lists, which have %zu characters; "
                             "expected at most %d together, as they must fit a message",
                             lists[longest].key + 4, size, LISTS_MAX);
}

static void check_rules(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;
    const struct cn_rules *rules = &job->rules;
    struct cn_mark mark;

    check_lists(profile, report);
    if (job->loss == CN_LOSS_OUTPUT && !rules->output[0]) {
        mark = cn_profile_place(profile, "job.loss.kind", report);
        cn_diagnostics_error(report, mark,
                             "loss: which output is not said; expected {output: NAME}");
    }
    if (rules->schedule == CN_SCHEDULE_STEP && !rules->every) {
        mark = cn_profile_place(profile, "job.train.schedule.kind", report);
        cn_diagnostics_error(report, mark, "train.schedule: step without every; expected a count");
    }
    if (rules->nesterov && !(job->momentum > 0)) {
        mark = cn_profile_place(profile, "job.train.nesterov", report);
        cn_diagnostics_error(report, mark,
                             "train.nesterov: without momentum; expected train.momentum");
    }
}

static void refuse_entry(const struct cn_profile *profile, const char *key, const char *entry,
                         const char *wanted, struct cn_diagnostics *report)
{
    struct cn_mark mark = cn_profile_place(profile, key, report);

    cn_diagnostics_error(report, mark, "%s: '%s'; expected %s", key + 4, entry, wanted);
}

// Local statistics exist only in the residual, so they need one that keeps them exactly.
static void check_residual(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;

    if (job->options.residual != CN_RESIDUAL_BF16 || job->statistics != CN_STATISTICS_LOCAL)
        return;
    cn_diagnostics_error(report, cn_profile_place(profile, "job.update.residual", report),
                         "update.residual: bf16 would round local statistics; expected fp32, or "
                         "statistics: shared");
}

static void check_layers(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_update_options *options = &profile->settings.job.options;
    const char *densities = options->densities, *priorities = options->priorities;
    char entry[CN_WORDS_SIZE], name[CN_WORDS_SIZE];
    double density;
    int priority;

    while (cn_words_next(&densities, entry, sizeof(entry)))
        if (!cn_layer_entry_density(entry, name, &density))
            refuse_entry(profile, "job.update.densities", entry, "NAME=SHARE, such as head.*=20%",
                         report);
    while (cn_words_next(&priorities, entry, sizeof(entry)))
        if (!cn_layer_entry_priority(entry, name, &priority))
            refuse_entry(profile, "job.update.priorities", entry,
                         "NAME=FACTOR, a power of two from 0.015625 to 64", report);
}

// Refuses keys that "parallel: auto" would choose, and a stage where nothing is divided.
static void check_parallel(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_parallel *parallel = &profile->settings.job.parallel;
    static const char *const chosen[] = {"job.parallel.replicate", "job.parallel.shard",
                                         "job.parallel.stage", "job.parallel.accumulate"};

    for (size_t i = 0; i < sizeof(chosen) / sizeof(chosen[0]); i++)
        if (parallel->kind == CN_PARALLEL_AUTO && cn_profile_is_set(profile, chosen[i]))
            cn_diagnostics_error(report, cn_profile_place(profile, chosen[i], report),
                                 "%s: parallel.kind auto chooses it; expected one of the two",
                                 chosen[i] + 4);
    if (parallel->kind == CN_PARALLEL_GIVEN && parallel->stage != CN_SHARING_OPTIMIZER &&
        parallel->shard <= 1)
        cn_diagnostics_error(report, cn_profile_place(profile, "job.parallel.stage", report),
                             "parallel.stage: nothing is shared out; expected parallel.shard, too");
}

// Refuses keys of topk in another mode, unless a file other than theirs sets that mode.
static void check_idle(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    for (size_t i = 0; i < cn_schema_count; i++) {
        const struct cn_origin *origin = &profile->origins[i];
        const char *path = cn_schema[i].path;
        bool up = strncmp(path, "job.update.up.", 14) == 0;

        if (!origin->source || !cn_schema_idle(&cn_schema[i], &profile->settings))
            continue;
        if (cn_profile_origin(profile, up ? "job.update.up.mode" : "job.update.down.mode")
                    ->source != origin->source &&
            cn_profile_is_set(profile, up ? "job.update.up.mode" : "job.update.down.mode"))
            continue;
        report->file = origin->source->path;
        cn_diagnostics_error(report, origin->mark,
                             "%s: has a meaning with topk only; expected mode: topk", path + 4);
    }
}

// Refuses the server's momentum with signs. What the downlink leaves out for later rounds contains
// momentum, too. Signs leave out so much that both together grow without end.
static void check_server(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;

    if (job->server.optimizer != CN_SERVER_FEDAVGM && job->server.optimizer != CN_SERVER_NESTEROV)
        return;
    if (job->up.mode == CN_UPDATE_SIGN || job->down.mode == CN_UPDATE_SIGN)
        cn_diagnostics_error(report, cn_profile_place(profile, "job.server.optimizer", report),
                             "server.optimizer: momentum diverges with signs only; expected %s "
                             "other than sign",
                             job->up.mode == CN_UPDATE_SIGN ? "update.up.mode"
                                                            : "update.down.mode");
    else if (job->up.mode == CN_UPDATE_AUTO)
        cn_diagnostics_warning(report, cn_profile_place(profile, "job.update.up.mode", report),
                               "update.up.mode: auto may choose signs on a slow link, with which "
                               "the server's momentum diverges; another mode suits it");
    else if (job->down.mode == CN_UPDATE_AUTO)
        cn_diagnostics_warning(report, cn_profile_place(profile, "job.update.down.mode", report),
                               "update.down.mode: auto may choose topk below 10 %% on slow links, "
                               "and most of each step with momentum then waits for later rounds");
    else if (job->down.mode == CN_UPDATE_TOPK && job->down.density < 0.1)
        cn_diagnostics_warning(report, cn_profile_place(profile, "job.update.down.density", report),
                               "update.down.density: most of each step with momentum waits for "
                               "later rounds; 10 %% or more suits it");
}

static void check_freeze(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const char *rest = profile->settings.job.rules.freeze;
    char word[CN_WORDS_SIZE];

    while (cn_words_next(&rest, word, sizeof(word)))
        if (strcmp(word, "*") == 0)
            cn_diagnostics_warning(
                report, cn_profile_place(profile, "job.train.freeze", report),
                "train.freeze: '*' is every tensor: nothing but running statistics "
                "changes");
}

void cn_profile_check(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    check_group(profile, report);
    check_gpus(profile, report);
    check_hardware(profile, report);
    cn_profile_check_http(profile, report);
    cn_profile_check_events(profile, report);
    check_care(profile, report);
    if (profile->settings.has_job) {
        cn_profile_check_stop(profile, report);
        check_rules(profile, report);
        check_layers(profile, report);
        check_residual(profile, report);
        check_parallel(profile, report);
        cn_profile_check_pipeline(profile, report);
        check_idle(profile, report);
        cn_profile_check_companions(profile, report);
        check_freeze(profile, report);
        check_server(profile, report);
        cn_profile_check_robust(profile, report);
        cn_profile_check_async(profile, report);
        cn_profile_check_local(profile, report);
        cn_profile_check_normalize(profile, report);
        cn_profile_check_correction(profile, report);
        cn_profile_check_rate(profile, report);
    }
}

// Checks that the data set that the job names at path is one of this machine's. "" passes.
static void require_set(const struct cn_profile *profile, const char *path, const char *set,
                        struct cn_diagnostics *report)
{
    if (!set[0] || cn_profile_data(&profile->settings, set))
        return;
    cn_diagnostics_error(report, cn_profile_place(profile, path, report),
                         "%s: '%s' is not among the data sets here; expected it below data",
                         path + 4, set);
}

// Refuses limits of boards in a job: they are not sent to the boards.
static void refuse_wishes(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    for (size_t i = 0; i < cn_schema_count; i++) {
        const struct cn_origin *origin = &profile->origins[i];

        if (strncmp(cn_schema[i].path, "job.", 4) == 0 ||
            !(cn_schema[i].layers & (1u << CN_LAYER_JOB)) || !origin->in_job)
            continue;
        report->file = origin->source->path;
        cn_diagnostics_error(report, origin->mark,
                             "%s: is not sent to the boards; expected it in their own profiles",
                             cn_schema[i].path);
    }
}

// Refuses a file of a lower layer, which lacks all that only a site says.
static bool refuse_layer(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_profile_file *top = profile->sources[profile->site_count - 1];

    if (top->layer == CN_LAYER_SITE)
        return false;
    cn_diagnostics_error(report, (struct cn_mark){1, 1},
                         "schema: this file is a %s; expected the profile of a site, which names "
                         "it: '%s: FILE'",
                         cn_layer_name(top->layer), top->layer == CN_LAYER_JOB ? "job" : "extends");
    return true;
}

cn_err cn_profile_require(const struct cn_profile *profile, enum cn_profile_use use,
                          struct cn_diag *diag)
{
    const struct cn_settings *settings = &profile->settings;
    const struct cn_profile_file *top = profile->sources[profile->site_count - 1];
    struct cn_diagnostics report = {diag, top->path, 0};

    if (refuse_layer(profile, &report))
        return CN_EINVAL;
    if (use == CN_PROFILE_TRAIN && cn_profile_names_no_job(profile, &report))
        return CN_EINVAL;
    for (size_t i = 0; i < cn_schema_count; i++) {
        const struct cn_schema_row *row = &cn_schema[i];
        char wanted[CN_WANTED_SIZE];

        report.file = top->path;
        if ((row->required & (1u << use)) && !profile->origins[i].source)
            cn_diagnostics_error(&report, (struct cn_mark){1, 1}, "%s: not set; expected %s",
                                 row->path, cn_value_wanted(wanted, row));
    }
    report.file = top->path;
    if (use == CN_PROFILE_TRAIN)
        require_set(profile, "job.data.set", settings->job.data_set, &report);
    if (use == CN_PROFILE_GATEWAY) {
        require_set(profile, "job.central.set", settings->job.central_set, &report);
        cn_profile_check_gate(profile, &report);
        cn_profile_check_inputs(profile, &report);
        cn_profile_check_trust(profile, &report);
        refuse_wishes(profile, &report);
    }
    return report.errors ? CN_EINVAL : CN_OK;
}
