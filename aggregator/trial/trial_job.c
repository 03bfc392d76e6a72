#include "aggregator/trial/trial_job.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/name.h"

#define ROUNDS 20 // of a run whose options and job file say none
#define KEY_SIZE 64

// A value of the trial's job.
struct value {
    const char *section, *key;
    char text[32];
    bool chosen;        // by an option: it replaces what the job file says
    const char *unless; // a key with which the job file makes this value needless; NULL: none
};

static bool is_given(const struct cn_trial_options *options, const char *key)
{
    return options->given && cn_profile_is_set(options->given, key);
}

static bool is_wanted(const struct cn_trial_options *options, const struct value *value)
{
    char key[KEY_SIZE];
    snprintf(key, sizeof(key), "job.%s.%s", value->section, value->key);
    return value->chosen ||
           (!is_given(options, key) && !(value->unless && is_given(options, value->unless)));
}

// Writes the values of a section that are wanted: "train: {batch: 32, momentum: 0.9}".
static void write_section(const struct cn_trial_options *options, const char *section,
                          const struct value *values, size_t count, FILE *file)
{
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(values[i].section, section) != 0 || !is_wanted(options, &values[i]))
            continue;
        if (any)
            fprintf(file, ", ");
        else
            fprintf(file, "%s: {", section);
        fprintf(file, "%s: %s", values[i].key, values[i].text);
        any = true;
    }
    if (any)
        fprintf(file, "}\n");
}

static void write_values(const struct cn_trial_options *options, FILE *file)
{
    struct value values[] = {
        {"data", "set", "try", .chosen = true},
        {"data", "scale", "", .chosen = options->scale != 1},
        {"data", "held_out", "0 %", .unless = NULL},
        {"train", "batch", "32", .unless = NULL},
        {"train", "local_steps", "20", .unless = NULL},
        {"train", "learning_rate", "0.05", .unless = "job.train.optimizer"},
        {"train", "momentum", "0.9", .unless = "job.train.optimizer"},
        {"rounds", "count", "", .chosen = options->rounds != 0},
        {"rounds", "quorum", "", .unless = NULL},
        {"rounds", "deadline", "60 s", .unless = NULL},
    };
    static const char *const sections[] = {"data", "train", "rounds"};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        if (strcmp(values[i].key, "scale") == 0)
            snprintf(values[i].text, sizeof(values[i].text), "%.9g", options->scale);
        else if (strcmp(values[i].key, "count") == 0)
            snprintf(values[i].text, sizeof(values[i].text), "%u",
                     options->rounds ? options->rounds : ROUNDS);
        else if (strcmp(values[i].key, "quorum") == 0)
            snprintf(values[i].text, sizeof(values[i].text), "%u", options->split.groups);
    }
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
        write_section(options, sections[i], values, sizeof(values) / sizeof(values[0]), file);
}

// Makes the job trust its groups, unless the job file sets limits.trust_groups or a robust rule,
// which says that groups may lie. An honest group with labels of its own looks like one that lies,
// and without trust the model would forget labels that only this group has.
static void write_trust(const struct cn_trial_options *options, FILE *file)
{
    if (is_given(options, "job.limits.trust_groups") || is_given(options, "job.robust.rule"))
        return;
    fprintf(file, "# All boards here are yours: no update is taken for a lie because it is larger "
                  "than the others.\n"
                  "# At a site with boards that may be stolen, leave this out.\n"
                  "limits: {trust_groups: true}\n");
}

// Makes the job's name of the model's file name: letters, digits and the like, in lower case.
static void name_job(const char *model, char name[CN_NAME_SIZE])
{
    const char *slash = strrchr(model, '/');
    const char *from = slash ? slash + 1 : model;
    size_t length = strlen(from), at = 0;
    if (length > 5 && strcmp(from + length - 5, ".onnx") == 0)
        length -= 5;
    for (size_t i = 0; i < length && at + 1 < CN_NAME_SIZE; i++) {
        char c = (char)tolower((unsigned char)from[i]);
        bool is_start = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (is_start || (at && strchr("._-", c)))
            name[at++] = c;
    }
    name[at] = '\0';
    if (!cn_name_valid(name))
        snprintf(name, CN_NAME_SIZE, "try");
}

cn_err cn_trial_job_write(const struct cn_trial_options *options, bool regression,
                          const char *folder, struct cn_diag *diag)
{
    char name[CN_NAME_SIZE];
    FILE *file = cn_trial_file_create(folder, "job.yaml", diag);
    if (!file)
        return CN_EIO;
    name_job(options->model, name);
    fprintf(file, "# What to train and by which rules. Boards get it from the aggregator.\n"
                  "schema: cairn/job/v1\n");
    if (options->job)
        fprintf(file, "extends: \"%s\"\n", options->job);
    if (!is_given(options, "job.name"))
        fprintf(file, "name: %s\n", name);
    fprintf(file, "model: model.onnx\n");
    if (options->split.seed != 1 || !is_given(options, "job.seed"))
        fprintf(file, "seed: %" PRIu64 "\n", options->split.seed);
    if (regression && !is_given(options, "job.loss.kind") && !is_given(options, "job.loss.output"))
        fprintf(file, "loss: mse # the labels are not whole numbers\n");
    write_values(options, file);
    write_trust(options, file);
    fprintf(file, "central: {set: try-test}     # the aggregator measures each version on it\n");
    return cn_trial_file_close(file, "job.yaml", diag);
}
