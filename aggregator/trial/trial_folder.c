#include "aggregator/trial/trial_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/port/platform.h"

#define WALK_FILES 16 // descriptors that removing a folder may use

static cn_err refuse(struct cn_diag *diag, const char *path, const char *why)
{
    cn_diag_add(diag, "%s: %s", path, why);
    return CN_EEXIST;
}

static cn_err count_name(void *context, const char *name)
{
    if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
        ++*(size_t *)context;
    return CN_OK;
}

static cn_err take_lock(struct cn_trial_folder *folder, int flags, struct cn_diag *diag)
{
    char path[PATH_MAX + sizeof(CN_TRIAL_FILE)];
    snprintf(path, sizeof(path), "%s/%s", folder->path, CN_TRIAL_FILE);
    folder->lock = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0644);
    if (folder->lock < 0)
        return refuse(diag, path, strerror(errno));
    if (flock(folder->lock, LOCK_EX | LOCK_NB) == 0)
        return CN_OK;
    close(folder->lock);
    folder->lock = -1;
    return refuse(diag, folder->path, "another cairn-aggregator try runs there");
}

cn_err cn_trial_folder_check(const char *path, const char *file, const char *what, bool *exists,
                             struct cn_diag *diag)
{
    char inside[PATH_MAX], text[160];
    struct stat found;
    size_t names = 0;
    *exists = false;
    if (stat(path, &found) != 0)
        return errno == ENOENT ? CN_OK : refuse(diag, path, strerror(errno));
    if (!S_ISDIR(found.st_mode))
        return refuse(diag, path, "is a file; expected a folder, or a name that is free");
    // Its profiles are run, and may name programs.
    if (found.st_uid != geteuid() || (found.st_mode & S_IWOTH))
        return refuse(diag, path,
                      "belongs to another user, or everybody may write there; expected a folder "
                      "of your own");
    if (snprintf(inside, sizeof(inside), "%s/%s", path, file) >= (int)sizeof(inside))
        return refuse(diag, path, strerror(ENAMETOOLONG));
    *exists = access(inside, F_OK) == 0;
    if (*exists || (!cn_platform_list(path, count_name, &names) && !names))
        return CN_OK;
    snprintf(text, sizeof(text),
             "holds something else; expected an empty folder, a name that is free or the folder of "
             "an earlier %s",
             what);
    return refuse(diag, path, text);
}

cn_err cn_trial_folder_open(struct cn_trial_folder *folder, const char *path, bool *exists,
                            struct cn_diag *diag)
{
    *folder = (struct cn_trial_folder){.lock = -1};
    cn_err err = cn_trial_folder_check(path, CN_TRIAL_FILE, "try", exists, diag);
    if (err || !*exists)
        return err;
    if (!realpath(path, folder->path))
        return refuse(diag, path, strerror(errno));
    return take_lock(folder, 0, diag);
}

// Sets final to an absolute path of a folder that may not exist yet.
static bool resolve(const char *path, char final[PATH_MAX])
{
    char parent[PATH_MAX], real[PATH_MAX];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    size_t name = length;
    while (name && path[name - 1] != '/')
        name--;
    int written = snprintf(parent, sizeof(parent), "%.*s", (int)name, path);
    if (written < 0 || (size_t)written >= sizeof(parent) || !realpath(name ? parent : ".", real))
        return false;
    written = snprintf(final, PATH_MAX, "%s/%.*s", strcmp(real, "/") == 0 ? "" : real,
                       (int)(length - name), path + name);
    return written > 0 && written < PATH_MAX;
}

cn_err cn_trial_folder_make(struct cn_trial_folder *folder, const char *final, struct cn_diag *diag)
{
    const char *temporary = getenv("TMPDIR");
    *folder = (struct cn_trial_folder){.lock = -1};
    if (final && !resolve(final, folder->final))
        return refuse(diag, final, strerror(errno));
    int length = snprintf(folder->path, sizeof(folder->path), "%s%s-XXXXXX",
                          final                     ? folder->final
                          : temporary && *temporary ? temporary
                                                    : "/tmp",
                          final ? ".part" : "/cairn-try");
    if (length > 0 && (size_t)length < sizeof(folder->path) && mkdtemp(folder->path))
        return CN_OK;
    cn_diag_add(diag, "%s: %s", folder->path, strerror(errno));
    folder->path[0] = '\0';
    return CN_EIO;
}

cn_err cn_trial_folder_finish(struct cn_trial_folder *folder, const char *settings,
                              struct cn_diag *diag)
{
    size_t size = strlen(settings);
    cn_err err = take_lock(folder, O_CREAT | O_EXCL, diag);
    if (err)
        return err;
    if (write(folder->lock, settings, size) != (ssize_t)size) {
        cn_diag_add(diag, "%s: %s", folder->path, strerror(errno));
        return CN_EIO;
    }
    if (!folder->final[0])
        return CN_OK;
    if (rename(folder->path, folder->final) != 0)
        return refuse(diag, folder->final, strerror(errno));
    snprintf(folder->path, sizeof(folder->path), "%s", folder->final);
    return CN_OK;
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

cn_err cn_trial_folder_compare(const struct cn_trial_folder *folder, const char *settings,
                               struct cn_diag *diag)
{
    char text[CN_TRIAL_TEXT_SIZE];
    ssize_t size = pread(folder->lock, text, sizeof(text) - 1, 0);
    text[size < 0 ? 0 : size] = '\0';
    const char *has = text;
    while (*has || *settings) {
        size_t found = strcspn(has, "\n"), wanted = strcspn(settings, "\n");
        if (found != wanted || memcmp(has, settings, found) != 0) {
            bool is_rounds = starts_with(has, "rounds ") || starts_with(settings, "rounds ");
            cn_diag_add(diag, "%s has a trial with '%.*s', not '%.*s'; name another folder%s%s%s",
                        folder->path, (int)found, has, (int)wanted, settings,
                        is_rounds ? ", or edit rounds.count in " : "",
                        is_rounds ? folder->path : "",
                        is_rounds ? "/job.yaml and run: cairn-aggregator try --keep DIR" : "");
            return CN_EINVAL;
        }
        has += found + (has[found] == '\n');
        settings += wanted + (settings[wanted] == '\n');
    }
    return CN_OK;
}

FILE *cn_trial_file_create(const char *folder, const char *name, struct cn_diag *diag)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "wxe");
    if (!file)
        cn_diag_add(diag, "%s: %s", path, strerror(errno));
    return file;
}

cn_err cn_trial_file_close(FILE *file, const char *name, struct cn_diag *diag)
{
    bool failed = ferror(file);
    if (fclose(file) == 0 && !failed)
        return CN_OK;
    cn_diag_add(diag, "%s: %s", name, strerror(errno));
    return CN_EIO;
}

static int remove_entry(const char *path, const struct stat *found, int kind, struct FTW *place)
{
    (void)found;
    (void)kind;
    (void)place;
    return remove(path);
}

void cn_trial_folder_close(struct cn_trial_folder *folder, bool remove)
{
    if (remove && folder->path[0])
        nftw(folder->path, remove_entry, WALK_FILES, FTW_DEPTH | FTW_PHYS);
    if (folder->lock > 0)
        close(folder->lock);
    folder->lock = -1;
}
