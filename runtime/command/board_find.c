#include "runtime/command/board_find.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define PATH_SIZE 1024

static size_t read_file(const char *root, const char *name, char *text, size_t size)
{
    char path[PATH_SIZE];
    size_t got = 0;
    FILE *file;

    snprintf(path, sizeof(path), "%s%s", root, name);
    file = fopen(path, "re");
    if (file) {
        got = fread(text, 1, size - 1, file);
        fclose(file);
    }
    text[got] = '\0';
    return got;
}

static void add(struct cn_board_identity *identity, const char *prefix, const char *name)
{
    if (identity->count < CN_BOARD_NAMES && *name)
        snprintf(identity->names[identity->count++], CN_BOARD_NAME_SIZE, "%s%.100s", prefix, name);
}

// Reads the machine's architecture, such as "x86_64": that of the kernel of root since Linux 6.1,
// else that of the running kernel.
static void read_machine(const char *root, char *machine, size_t size)
{
    struct utsname system;

    if (!read_file(root, "/proc/sys/kernel/arch", machine, size) && uname(&system) == 0)
        snprintf(machine, size, "%s", system.machine);
    machine[strcspn(machine, "\n")] = '\0';
}

void cn_board_find_identity(const char *root, struct cn_board_identity *identity)
{
    char text[2048], vendor[64], product[64], both[160];
    size_t size = read_file(root, "/sys/firmware/devicetree/base/compatible", text, sizeof(text));

    identity->count = 0;
    for (size_t at = 0; at < size; at += strlen(text + at) + 1) { // each name ends with a 0
        text[at + strcspn(text + at, "\n")] = '\0';
        add(identity, "", text + at);
    }
    read_file(root, "/sys/class/dmi/id/sys_vendor", vendor, sizeof(vendor));
    read_file(root, "/sys/class/dmi/id/product_name", product, sizeof(product));
    if (!product[0])
        return;
    snprintf(both, sizeof(both), "%.*s %.*s", (int)strcspn(vendor, "\n"), vendor,
             (int)strcspn(product, "\n"), product);
    add(identity, "dmi:", both);
    read_machine(root, both, sizeof(both));
    add(identity, "dmi:", both);
}

// Returns the index of the first of the identity's names that the file "compatible" of a board
// contains; the number of names when it contains none.
static size_t rank_of(const char *directory, const char *board,
                      const struct cn_board_identity *identity)
{
    char path[PATH_SIZE], line[CN_BOARD_NAME_SIZE + 2];
    size_t best = identity->count;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s/compatible", directory, board);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        for (size_t i = 0; i < best; i++)
            if (strcmp(identity->names[i], line) == 0)
                best = i;
    }
    if (file)
        fclose(file);
    return best;
}

bool cn_board_find(const char *directory, const struct cn_board_identity *identity,
                   char board[CN_NAME_SIZE])
{
    size_t best = identity->count;
    const struct dirent *entry;
    DIR *list = opendir(directory);

    while (list && (entry = readdir(list))) {
        size_t rank = cn_name_valid(entry->d_name) ? rank_of(directory, entry->d_name, identity)
                                                   : identity->count;

        if (rank < best) {
            best = rank;
            snprintf(board, CN_NAME_SIZE, "%.63s", entry->d_name);
        }
    }
    if (list)
        closedir(list);
    return best < identity->count;
}

static bool is_directory(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool cn_board_find_directory(const char *given, char *directory, size_t size)
{
    char *here = given ? NULL : getcwd(NULL, 0);
    bool found;

    snprintf(directory, size, "%s", given ? given : CAIRN_DATA_DIR "/boards");
    found = is_directory(directory);
    for (char *end = here ? here + strlen(here) : NULL; !found && end; end = strrchr(here, '/')) {
        *end = '\0';
        snprintf(directory, size, "%s/boards", here);
        found = is_directory(directory);
    }
    free(here);
    return found;
}
