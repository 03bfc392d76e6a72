#include "aggregator/daemon/job_place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/ledger/jobs.h"
#include "aggregator/store/state_owner.h"

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

// Returns whether the path ends with a name: files beside a state directory are named after it.
static bool is_named(const char *path)
{
    const char *last = strrchr(path, '/');
    last = last ? last + 1 : path;
    return last[0] && strcmp(last, ".") != 0 && strcmp(last, "..") != 0;
}

static bool read_path(const char *state, struct cn_job_place *place)
{
    int length = snprintf(place->gateway, sizeof(place->gateway), "%s", state);
    bool fits = length > 0 && (size_t)length < sizeof(place->gateway);
    if (fits && split(place) && is_named(place->gateway))
        return true;
    return realpath(state, place->gateway) && split(place);
}

cn_err cn_job_place_look(const char *gateway, const char *job)
{
    struct cn_ledger *ledger;
    struct cn_queued_job row;
    cn_err err = cn_ledger_open_existing(gateway, &ledger);
    if (err)
        return err;
    err = cn_jobs_find(ledger, job, &row);
    cn_ledger_close(ledger);
    return err;
}

// Returns whether the gateway's ledger has the job. If the ledger cannot be read, the path alone
// decides. A command of root reads it as its owner, who may have put a link in its place.
static bool has_job(const struct cn_job_place *place)
{
    char path[CN_PATH_SIZE], file[sizeof(place->gateway) + sizeof(CN_LEDGER_FILE) + 1];
    bool root = geteuid() == 0;
    snprintf(file, sizeof(file), "%s/" CN_LEDGER_FILE, place->gateway);
    if (access(file, F_OK) != 0 && errno == ENOENT)
        return false; // else the owner of that directory would have lent its rights for nothing
    if (cn_state_owner_take(place->gateway, path))
        return true;
    cn_err err = cn_job_place_look(path, place->job);
    if (root && geteuid() != 0)
        cn_state_owner_leave();
    return err != CN_ENOTFOUND;
}

cn_err cn_job_place_reach(const struct cn_job_place *place, char gateway[CN_PATH_SIZE])
{
    bool lent = geteuid() != 0; // else this program may still be root
    cn_state_owner_leave();
    cn_err err = cn_state_owner_take(place->gateway, gateway);
    if (!err && lent && geteuid() == 0)
        err = CN_ECONFLICT; // the job's state belongs to another user than the gateway's
    if (err)
        cn_state_owner_return();
    return err;
}

bool cn_job_place_find(const char *state, struct cn_job_place *place)
{
    return read_path(state, place) && has_job(place);
}
