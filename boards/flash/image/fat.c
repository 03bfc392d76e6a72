#include "boards/flash/image/fat.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "runtime/command/command.h"
#include "runtime/port/crypto.h"

#define SPEC_SIZE 640
#define PLACE_SIZE (CN_PAYLOAD_TARGET + 2)

// Writes the name that mtools gives the partition (mtools(5), "@@").
static void name_partition(const char *image, const struct cn_partition *partition, char *spec)
{
    snprintf(spec, SPEC_SIZE, "%.600s@@%" PRIu64, image, partition->offset);
}

static bool is_there(const char *spec, const char *place, const struct cn_payload_file *file)
{
    const char *const argv[] = {"mtype", "-i", spec, place, NULL};
    struct cn_process_result result;
    uint8_t digest[CN_DIGEST_SIZE];
    bool same = cn_process_run(argv, -1, &result) == CN_OK && result.code == 0 &&
                result.out.size == file->size;

    if (same) {
        cn_crypto_digest(file->size ? (const void *)result.out.data : "", file->size, digest);
        same = memcmp(digest, file->digest, CN_DIGEST_SIZE) == 0;
    }
    cn_process_deinit(&result);
    return same;
}

// Makes the folders above path and skips those that exist (-D s). If a folder could not be made,
// copying the file fails.
static void make_folders(const char *spec, const char *path)
{
    for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        char folder[PLACE_SIZE];
        const char *const argv[] = {"mmd", "-D", "s", "-i", spec, folder, NULL};
        struct cn_process_result result;

        snprintf(folder, sizeof(folder), "::%.*s", (int)(at - path), path);
        if (cn_process_run(argv, -1, &result))
            result.code = -1;
        cn_process_deinit(&result);
    }
}

int cn_fat_put(const char *image, const struct cn_partition *partition,
               const struct cn_payload_file *file, const char *path)
{
    char spec[SPEC_SIZE], place[PLACE_SIZE];
    const char *const argv[] = {"mcopy", "-o", "-i", spec, file->source, place, NULL};
    struct cn_process_result result;
    int code = CN_EXIT_DONE;

    name_partition(image, partition, spec);
    snprintf(place, sizeof(place), "::%s", path);
    make_folders(spec, path);
    if (cn_process_run(argv, -1, &result) || result.code != 0) {
        cn_console_error(result.code == 127 ? "install mtools" : "is the FAT partition full?",
                         "%s: %s cannot be written: %s", image, file->target,
                         result.code == 127 ? "there is no mcopy" : cn_process_complaint(&result));
        code = CN_EXIT_FAILED;
    } else if (!is_there(spec, place, file)) {
        cn_console_error("check the image's FAT partition with fsck.fat",
                         "%s: %s is not what was written", image, file->target);
        code = CN_EXIT_VERIFY;
    }
    cn_process_deinit(&result);
    return code;
}
