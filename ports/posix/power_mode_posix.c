// power_mode_posix.c - power modes of Jetson Linux: nvpmodel's file and program.
//
// Source: NVIDIA Jetson Linux Developer Guide, "Platform Power and Performance". /etc/nvpmodel.conf
// has a line "< POWER_MODEL ID=n NAME=x >" for each mode. "nvpmodel -m n" sets a mode, which lasts
// over restarts. /var/lib/nvpmodel/status holds "pmode:0002"; old releases add a suffix such as
// "_fan".
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/port/platform.h"
#include "runtime/port/power_mode.h"

#define PATH_SIZE 1024
#define SET_MS 30000
#define LOOK_MS 50

// Parses "< POWER_MODEL ID=0 NAME=15W >". The words ID= and NAME= may come in any order.
static bool parse_mode(char *line, struct cn_power_mode *mode)
{
    bool has_id = false;
    char *state = NULL, *end;
    char *word = strtok_r(line, " \t\n", &state);

    *mode = (struct cn_power_mode){0};
    if (!word || strcmp(word, "<") != 0 || !(word = strtok_r(NULL, " \t\n", &state)) ||
        strcmp(word, "POWER_MODEL") != 0)
        return false;
    while ((word = strtok_r(NULL, " \t\n", &state)) && strcmp(word, ">") != 0) {
        if (strncmp(word, "ID=", 3) == 0) {
            long id = strtol(word + 3, &end, 10);

            has_id = end != word + 3 && *end == '\0' && id >= 0 && id <= 9999;
            mode->id = has_id ? (int)id : 0;
        } else if (strncmp(word, "NAME=", 5) == 0 && strlen(word + 5) < sizeof(mode->name)) {
            snprintf(mode->name, sizeof(mode->name), "%s", word + 5);
        }
    }
    return has_id && mode->name[0];
}

// Returns the number of the current mode from the status file, or -1.
static int read_current(const char *root)
{
    char path[PATH_SIZE], line[64] = "";
    int id = -1;
    FILE *file;

    snprintf(path, sizeof(path), "%s/var/lib/nvpmodel/status", root);
    file = fopen(path, "re");
    if (!file || !fgets(line, sizeof(line), file) || sscanf(line, "pmode:%d", &id) != 1)
        id = -1;
    if (file)
        fclose(file);
    return id;
}

cn_err cn_power_modes_read(const char *root, struct cn_power_modes *modes)
{
    char path[PATH_SIZE], line[512];
    int current = read_current(root);
    FILE *file;

    *modes = (struct cn_power_modes){0};
    snprintf(path, sizeof(path), "%s/etc/nvpmodel.conf", root);
    file = fopen(path, "re");
    if (!file)
        return cn_err_from_errno(errno);
    while (modes->count < CN_POWER_MODES && fgets(line, sizeof(line), file))
        modes->count += parse_mode(line, &modes->modes[modes->count]);
    fclose(file);
    for (size_t i = 0; i < modes->count; i++)
        if (modes->modes[i].id == current)
            modes->current = &modes->modes[i];
    return modes->count ? CN_OK : CN_EFORMAT;
}

// Returns the name without "MODE_": NVIDIA's documents say 30W where the file of some boards says
// MODE_30W.
static const char *short_name(const char *name)
{
    return strncmp(name, "MODE_", 5) == 0 ? name + 5 : name;
}

const struct cn_power_mode *cn_power_modes_find(const struct cn_power_modes *modes,
                                                const char *name)
{
    for (size_t i = 0; i < modes->count; i++)
        if (strcmp(short_name(modes->modes[i].name), short_name(name)) == 0)
            return &modes->modes[i];
    return NULL;
}

// Runs "nvpmodel -m id" and waits up to SET_MS. For some modes nvpmodel asks whether to restart the
// board; its input is /dev/null, so it reads end of file instead of an answer.
static cn_err run_program(const char *path, int id)
{
    char number[16];
    char *arguments[] = {(char *)(uintptr_t)path, "-m", number, NULL};
    char *environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    posix_spawn_file_actions_t actions;
    int failed, status = 0;
    pid_t child;

    snprintf(number, sizeof(number), "%d", id);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    failed = posix_spawn(&child, path, &actions, NULL, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return cn_err_from_errno(failed);
    for (unsigned spent_ms = 0; spent_ms < SET_MS; spent_ms += LOOK_MS) {
        if (waitpid(child, &status, WNOHANG) != 0)
            return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? CN_OK : CN_EIO;
        cn_platform_sleep_ms(LOOK_MS);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return CN_ETIMEOUT;
}

cn_err cn_power_mode_set(const char *root, const struct cn_power_mode *mode)
{
    char path[PATH_SIZE];
    cn_err err;

    snprintf(path, sizeof(path), "%s/usr/sbin/nvpmodel", root);
    if (access(path, X_OK))
        return CN_ENOTFOUND;
    if (geteuid() != 0)
        return CN_EAUTH;
    err = run_program(path, mode->id);
    if (!err && read_current(root) != mode->id)
        err = CN_EIO;
    return err;
}
