#include "aggregator/command/job_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/jobs.h"

// Cuts the last part off a path. Returns that part, or NULL when there is none.
static char *cut_last(char *path)
{
    char *last = strrchr(path, '/');
    if (!last)
        return NULL;
    *last = '\0';
    return last + 1;
}

// Takes the path in place->gateway apart.
static bool split(struct cn_job_place *place)
{
    size_t length = strlen(place->gateway);
    if (length > 2 && strcmp(place->gateway + length - 2, "/.") == 0) // as the job's profile has it
        place->gateway[length - 2] = '\0';
    const char *name = cut_last(place->gateway);
    const char *folder = name ? cut_last(place->gateway) : NULL;
    if (!folder || strcmp(folder, CN_JOBS_FOLDER) != 0 || !cn_name_valid(name))
        return false;
    snprintf(place->job, sizeof(place->job), "%s", name);
    return true;
}

static bool read_path(const char *state, struct cn_job_place *place)
{
    int length = snprintf(place->gateway, sizeof(place->gateway), "%s", state);
    if (length > 0 && (size_t)length < sizeof(place->gateway) && split(place))
        return true;
    return realpath(state, place->gateway) && split(place);
}

// Returns whether the gateway's ledger has the job. If the ledger cannot be read, the path alone
// decides.
static bool has_job(const struct cn_job_place *place)
{
    struct cn_ledger *ledger;
    struct cn_queued_job row;
    cn_err err = cn_ledger_open_existing(place->gateway, &ledger);
    if (err)
        return err != CN_ENOTFOUND;
    err = cn_jobs_find(ledger, place->job, &row);
    cn_ledger_close(ledger);
    return err != CN_ENOTFOUND;
}

bool cn_job_place_find(const char *state, struct cn_job_place *place)
{
    return read_path(state, place) && has_job(place);
}
