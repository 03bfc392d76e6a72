#include "tests/support/board_tree.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void write_file(const char *root, const char *path, const char *bytes, size_t size)
{
    char full[1024];
    FILE *file;

    snprintf(full, sizeof(full), "%s/%s", root, path);
    for (char *at = strchr(full + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(full, 0700);
        *at = '/';
    }
    file = fopen(full, "w");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file))
        abort();
}

void cn_board_tree_make(char root[64])
{
    snprintf(root, 64, "/tmp/cairn-board-XXXXXX");
    if (!mkdtemp(root))
        abort();
}

void cn_board_tree_remove(const char *root)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    if (system(command))
        abort();
}

void cn_board_tree_put(const char *root, const char *path, const char *text)
{
    write_file(root, path, text, strlen(text));
}

// "\0" of a record is a byte of zero.
static size_t unescape(char *text)
{
    size_t size = 0;

    for (size_t i = 0; text[i]; i++) {
        bool zero = text[i] == '\\' && text[i + 1] == '0';

        text[size++] = (char)(zero ? 0 : text[i]);
        i += zero;
    }
    return size;
}

static void lay_modes(const char *root, const char *data, const char *board)
{
    char path[512], text[4096];
    size_t size;
    FILE *file;

    snprintf(path, sizeof(path), "%s/sysfs/%s.nvpmodel.conf", data, board);
    file = fopen(path, "r");
    if (!file)
        return;
    size = fread(text, 1, sizeof(text), file);
    fclose(file);
    write_file(root, "etc/nvpmodel.conf", text, size);
}

void cn_board_tree_lay(const char *root, const char *data, const char *board)
{
    char path[512], line[1024];
    FILE *file;

    snprintf(path, sizeof(path), "%s/sysfs/%s.txt", data, board);
    file = fopen(path, "r");
    if (!file)
        abort();
    while (fgets(line, sizeof(line), file)) {
        char *tab = strchr(line, '\t');

        if (line[0] == '#' || !tab)
            continue;
        *tab = '\0';
        write_file(root, line, tab + 1, unescape(tab + 1));
    }
    fclose(file);
    lay_modes(root, data, board);
}
