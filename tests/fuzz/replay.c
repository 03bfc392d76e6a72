// replay.c - runs a fuzz target over the files of the directories given, without libFuzzer.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *directory, const char *name)
{
    char path[4096];
    FILE *file;
    uint8_t *data;
    long size;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0)
        return 1;
    rewind(file);
    data = malloc((size_t)size + 1); // the exact size would hide nothing, size 0 would be NULL
    if (!data || fread(data, 1, (size_t)size, file) != (size_t)size)
        return 1;
    fclose(file);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    size_t replayed = 0;

    for (int i = 1; i < argc; i++) {
        DIR *directory = opendir(argv[i]);
        struct dirent *entry;

        if (!directory) {
            fprintf(stderr, "%s: no such corpus\n", argv[i]);
            return 1;
        }
        while ((entry = readdir(directory))) {
            if (entry->d_name[0] == '.')
                continue;
            if (replay_file(argv[i], entry->d_name)) {
                fprintf(stderr, "%s/%s: cannot be read\n", argv[i], entry->d_name);
                return 1;
            }
            replayed++;
        }
        closedir(directory);
    }
    printf("%zu inputs replayed\n", replayed);
    return replayed ? 0 : 1;
}
