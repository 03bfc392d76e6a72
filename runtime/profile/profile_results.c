// Prints those values of a job that affect the result of training.
#include <string.h>

#include "runtime/profile/profile_private.h"
#include "runtime/profile/profile_value.h"

// The model's path is left out, because only its content affects the result.
static bool is_of_results(const char *path, const struct cn_settings *settings)
{
    static const char *const parts[] = {"job.name",  "job.seed",   "job.loss.",
                                        "job.data.", "job.train.", NULL};

    for (const char *const *part = parts; *part; part++)
        if (strncmp(path, *part, strlen(*part)) == 0)
            return true;
    return strcmp(path, "job.rounds.count") == 0 &&
           settings->job.rules.schedule == CN_SCHEDULE_COSINE;
}

void cn_profile_print_results(const struct cn_settings *settings, FILE *stream)
{
    for (size_t i = 0; i < cn_schema_count; i++) {
        const struct cn_schema_row *row = &cn_schema[i];

        if (row->type == CN_VALUE_LINK || !is_of_results(row->path, settings) ||
            cn_schema_idle(row, settings))
            continue;
        fprintf(stream, "%s: ", row->path + strlen("job."));
        cn_value_print(row, settings, stream);
        fputc('\n', stream);
    }
}
