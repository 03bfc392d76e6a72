#include "aggregator/store/state_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUPS_MOST 256
#define REACHED_MOST 4

// The rights of a process are its own, not those of an object in it.
static struct {
    bool taken, stays;
    unsigned left; // calls of leave without their return
    uid_t uid, caller;
    gid_t gid;
    gid_t groups[GROUPS_MOST]; // root's
    int group_count;
} owner;

// Directories that are reached by a descriptor.
static struct {
    char path[32], name[CN_PATH_SIZE];
} reached[REACHED_MOST];
static size_t reached_count;

// With a part of the wanted rights the program must not go on.
static void demand(bool done)
{
    if (!done)
        abort();
}

static bool become_owner(void)
{
    return setgroups(1, &owner.gid) == 0 && setegid(owner.gid) == 0 && seteuid(owner.uid) == 0;
}

static void become_root(void)
{
    demand(seteuid(0) == 0 && setegid(0) == 0 &&
           setgroups((size_t)owner.group_count, owner.groups) == 0);
}

static cn_err take_rights(const struct stat *info)
{
    owner.caller = getuid();
    owner.group_count = getgroups(GROUPS_MOST, owner.groups);
    owner.uid = info->st_uid;
    owner.gid = info->st_gid;
    if (owner.group_count < 0)
        return CN_EAUTH;
    if (!become_owner()) {
        become_root();
        return CN_EAUTH;
    }
    owner.taken = true;
    return CN_OK;
}

static bool is_reachable(const char *state, const struct stat *info)
{
    struct stat found;
    return stat(state, &found) == 0 && found.st_ino == info->st_ino && found.st_dev == info->st_dev;
}

// Keeps the descriptor for as long as the program runs.
static cn_err reach(int directory, const char *state, char path[CN_PATH_SIZE])
{
    if (reached_count == REACHED_MOST)
        return CN_ERANGE;
    snprintf(reached[reached_count].path, sizeof(reached[0].path), "/proc/self/fd/%d", directory);
    snprintf(reached[reached_count].name, sizeof(reached[0].name), "%s", state);
    snprintf(path, CN_PATH_SIZE, "%s", reached[reached_count++].path);
    return CN_OK;
}

static cn_err take(const struct stat *info)
{
    if (owner.taken && owner.uid != info->st_uid)
        return CN_ECONFLICT;
    if (!owner.taken)
        return take_rights(info);
    cn_state_owner_return();
    return CN_OK;
}

cn_err cn_state_owner_take(const char *state, char path[CN_PATH_SIZE])
{
    struct stat info;
    if (snprintf(path, CN_PATH_SIZE, "%s", state) >= CN_PATH_SIZE)
        return CN_ERANGE;
    if (geteuid() != 0)
        return CN_OK;
    int directory = open(state, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return errno == ENOENT || errno == ENOTDIR ? CN_OK : cn_err_from_errno(errno);
    cn_err err = CN_OK;
    if (fstat(directory, &info) != 0)
        err = cn_err_from_errno(errno);
    else if (info.st_uid != 0)
        err = take(&info);
    if (!err && info.st_uid != 0 && !is_reachable(state, &info)) {
        err = reach(directory, state, path);
        if (!err)
            return CN_OK;
    }
    close(directory);
    return err;
}

void cn_state_owner_stay(void)
{
    if (!owner.taken || owner.stays)
        return;
    become_root();
    demand(setgroups(1, &owner.gid) == 0 && setresgid(owner.gid, owner.gid, owner.gid) == 0 &&
           setresuid(owner.uid, owner.uid, owner.uid) == 0 && setuid(0) != 0);
    owner.stays = true;
}

void cn_state_owner_leave(void)
{
    if (owner.taken && !owner.stays && !owner.left++)
        become_root();
}

void cn_state_owner_return(void)
{
    if (owner.taken && !owner.stays && owner.left && !--owner.left)
        demand(become_owner());
}

void cn_state_owner_name(const char *path, char name[CN_PATH_SIZE])
{
    for (size_t i = 0; i < reached_count; i++) {
        size_t length = strlen(reached[i].path);
        if (strncmp(path, reached[i].path, length) == 0 && (!path[length] || path[length] == '/')) {
            snprintf(name, CN_PATH_SIZE, "%s%s", reached[i].name, path + length);
            return;
        }
    }
    snprintf(name, CN_PATH_SIZE, "%s", path);
}

uid_t cn_state_owner_caller(void)
{
    return owner.taken ? owner.caller : getuid();
}
