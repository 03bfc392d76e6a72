#include "boards/flash/tool/draft.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "runtime/command/command.h"

#define ENDING ".part"
#define PUBLISHING "publishing" // from then on the output and its companion may have their names
#define MARK "cairn-flash"      // its first file: without it, what is in a folder is not ours
#define TRIES 5                 // while others remove the folder
#define OPEN_FILES 16           // of nftw

void cn_draft_path(const struct cn_draft *draft, const char *name, char path[CN_DRAFT_PATH])
{
    snprintf(path, CN_DRAFT_PATH, "%s/%s", draft->folder, name);
}

static int complain(const char *remedy, const char *path, const char *fault)
{
    cn_console_error(remedy, "%s: %s", path, fault);
    return CN_EXIT_FAILED;
}

static bool is_taken(const char *path)
{
    return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool sync_path(const char *path, int flags)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | flags);
    bool synced = file >= 0 && fsync(file) == 0;

    if (file >= 0)
        close(file);
    return synced;
}

static bool sync_parent(const char *path)
{
    char folder[CN_DRAFT_PATH];
    const char *slash = strrchr(path, '/');

    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path + 1) : 1,
             slash ? path : ".");
    return sync_path(folder, O_DIRECTORY);
}

static bool is_empty(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    bool empty = folder != NULL;

    while (empty && (entry = readdir(folder)))
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (folder)
        closedir(folder);
    return empty;
}

// Marks the locked folder, so that a later program may empty it. An empty one may be that of a
// program which was killed before. Returns 0, or errno.
static int mark(struct cn_draft *draft)
{
    char path[CN_DRAFT_PATH];
    int file;

    cn_draft_path(draft, MARK, path);
    draft->taken_over = is_taken(path);
    if (draft->taken_over)
        return 0;
    if (!is_empty(draft->folder))
        return ENOTEMPTY;
    file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return errno;
    close(file);
    return fsync(draft->lock) == 0 && sync_parent(draft->folder) ? 0 : errno;
}

// Makes or opens the folder and locks it. Returns 0, or errno. ESTALE: it was removed meanwhile.
// Sets *in_the_way if something else has the folder's name.
static int claim(struct cn_draft *draft, bool *in_the_way)
{
    struct stat info;

    *in_the_way = false;
    if (mkdir(draft->folder, 0700) && errno != EEXIST)
        return errno;
    *in_the_way = true;
    draft->lock = open(draft->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (draft->lock < 0)
        return errno == ENOENT ? ESTALE : errno;
    if (!cn_process_lock(draft->lock) || fstat(draft->lock, &info))
        return errno;
    if (info.st_uid != geteuid() || (info.st_mode & 022))
        return EPERM;
    return info.st_nlink ? mark(draft) : ESTALE;
}

static void unlock(struct cn_draft *draft)
{
    if (draft->lock > 0)
        close(draft->lock);
    draft->lock = -1;
}

int cn_draft_open(const char *out, struct cn_draft *draft)
{
    bool in_the_way = false;
    int fault = ESTALE;

    *draft = (struct cn_draft){.out = out, .lock = -1};
    if (strlen(out) > CN_DRAFT_OUT) {
        cn_console_error(NULL, "-o: a path of at most %d bytes is needed", CN_DRAFT_OUT);
        return CN_EXIT_USAGE;
    }
    snprintf(draft->folder, sizeof(draft->folder), "%s" ENDING, out);
    for (int i = 0; i < TRIES && fault == ESTALE; i++) {
        unlock(draft);
        fault = claim(draft, &in_the_way);
    }
    if (fault) {
        complain(fault == EWOULDBLOCK ? "wait for it"
                 : in_the_way         ? "remove it, or choose another -o"
                                      : NULL,
                 draft->folder,
                 fault == EWOULDBLOCK ? "another cairn-flash works in it"
                 : fault == ENOTEMPTY ? "it is no folder of cairn-flash"
                 : fault == EPERM     ? "others own it or can write to it"
                                      : strerror(fault));
        cn_draft_leave(draft);
        return CN_EXIT_FAILED;
    }
    if (!is_taken(out))
        return CN_EXIT_DONE;
    cn_draft_close(draft); // if a killed program left it, the output may have got its name by that
    return complain("remove it, or choose another -o", out, strerror(EEXIST));
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    if (place->level == 0 || (place->level == 1 && strcmp(path + place->base, MARK) == 0))
        return 0;
    if (remove(path))
        cn_console_error("remove it", "%s stays: %s", path, strerror(errno));
    return 0;
}

// Removes what is in the folder, except its mark. The debt is first: without the other files nobody
// could tell that it is none.
static void empty(const struct cn_draft *draft)
{
    cn_draft_settle(draft);
    nftw(draft->folder, remove_entry, OPEN_FILES, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

// Reads the note of a program that gave the output its name: the file's name in the folder, and the
// companion's ending. Returns false if there is no such note. Writes the companion's path; sets
// *published if the file has left the folder.
static bool read_publishing(const struct cn_draft *draft, char companion[CN_DRAFT_PATH],
                            bool *published)
{
    char path[CN_DRAFT_PATH], name[64] = "", ending[64] = "";
    FILE *file;

    cn_draft_path(draft, PUBLISHING, path);
    file = fopen(path, "re");
    if (!file)
        return false;
    // What is read is not believed: it names a file of the folder, and one beside the output.
    if (fscanf(file, "%63[a-z]\n.%63[a-z]", name, ending) != 2)
        name[0] = '\0';
    fclose(file);
    if (!name[0])
        return false;
    snprintf(companion, CN_DRAFT_PATH, "%s.%s", draft->out, ending);
    cn_draft_path(draft, name, path);
    *published = !is_taken(path) && errno == ENOENT;
    return true;
}

bool cn_draft_owes(const struct cn_draft *draft)
{
    char path[CN_DRAFT_PATH], companion[CN_DRAFT_PATH];
    bool published;

    cn_draft_path(draft, CN_DRAFT_DEBT, path);
    return is_taken(path) && !(read_publishing(draft, companion, &published) && published);
}

void cn_draft_settle(const struct cn_draft *draft)
{
    char path[CN_DRAFT_PATH];

    if (!draft->folder[0])
        return;
    cn_draft_path(draft, CN_DRAFT_DEBT, path);
    if (unlink(path) == 0)
        fsync(draft->lock);
}

int cn_draft_clear(struct cn_draft *draft)
{
    char companion[CN_DRAFT_PATH];
    bool published;

    if (!draft->taken_over)
        return CN_EXIT_DONE;
    if (cn_draft_owes(draft)) {
        complain("'cairn-flash image' with the same -o revokes it; or revoke it and remove the "
                 "folder",
                 draft->folder, "a killed cairn-flash may have enrolled a board");
        cn_draft_leave(draft);
        return CN_EXIT_FAILED;
    }
    if (read_publishing(draft, companion, &published) && !published)
        unlink(companion);
    empty(draft);
    draft->taken_over = false;
    cn_console_step("taken-over", "what a killed cairn-flash left in %s is removed", draft->folder);
    return CN_EXIT_DONE;
}

int cn_draft_note(const struct cn_draft *draft, const char *name, const char *text)
{
    char path[CN_DRAFT_PATH];
    FILE *file;
    bool written;

    cn_draft_path(draft, name, path);
    file = fopen(path, "we");
    written = file && fputs(text, file) >= 0;
    if (file)
        written = fclose(file) == 0 && written;
    if (written && sync_path(path, 0) && fsync(draft->lock) == 0)
        return CN_EXIT_DONE;
    return complain(NULL, path, strerror(errno));
}

// Renames, but not over another file. File systems that cannot promise that are asked first.
static bool give_name(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return true;
    if (errno != EINVAL && errno != ENOSYS)
        return false;
    if (is_taken(to)) {
        errno = EEXIST;
        return false;
    }
    return rename(from, to) == 0;
}

static int publish_companion(const struct cn_draft *draft, const char *name, const char *companion)
{
    char from[CN_DRAFT_PATH], both[64], to[CN_DRAFT_PATH];
    int code;

    snprintf(both, sizeof(both), "%s%s", name, companion);
    cn_draft_path(draft, both, from);
    snprintf(to, sizeof(to), "%s%s", draft->out, companion);
    if (is_taken(to))
        return complain("remove it, or choose another -o", to, strerror(EEXIST));
    snprintf(both, sizeof(both), "%s\n%s", name, companion);
    code = cn_draft_note(draft, PUBLISHING, both);
    if (code)
        return code;
    return sync_path(from, 0) && give_name(from, to) ? CN_EXIT_DONE
                                                     : complain(NULL, to, strerror(errno));
}

int cn_draft_publish(const struct cn_draft *draft, const char *name, const char *companion)
{
    char from[CN_DRAFT_PATH], beside[CN_DRAFT_PATH];
    int code = companion ? publish_companion(draft, name, companion) : CN_EXIT_DONE;
    bool named;

    if (code)
        return code;
    cn_draft_path(draft, name, from);
    named = sync_path(from, 0) && give_name(from, draft->out);
    if (named && sync_parent(draft->out))
        return CN_EXIT_DONE;
    code = complain(NULL, draft->out, strerror(errno));
    if (named && rename(draft->out, from)) // it has the name, but not durably
        unlink(draft->out);
    snprintf(beside, sizeof(beside), "%s%s", draft->out, companion ? companion : "");
    if (companion)
        unlink(beside);
    return code;
}

void cn_draft_leave(struct cn_draft *draft)
{
    unlock(draft);
    draft->folder[0] = '\0';
}

void cn_draft_close(struct cn_draft *draft)
{
    char path[CN_DRAFT_PATH];

    if (!draft->folder[0])
        return;
    if (cn_draft_owes(draft)) {
        complain("run the same command again", draft->folder,
                 "it stays, because a board may be enrolled");
    } else {
        empty(draft);
        cn_draft_path(draft, MARK, path);
        unlink(path);
        rmdir(draft->folder);
    }
    cn_draft_leave(draft);
}
