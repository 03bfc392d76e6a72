#include "boards/flash/image/manifest.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "runtime/command/command.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"

#define FORMAT "cairn-flash-image/2"
#define FORMAT_BEFORE "cairn-flash-image/1" // has no list of unused extents
#define RANGE_MAX ((uint64_t)64 << 20)
// smaller holes count as data: seeking over them costs more than writing
#define HOLE_MIN ((uint64_t)1 << 20)
#define UNUSED_MIN ((uint64_t)1 << 20) // smaller unused extents are written as zeros
#define ZEROS_MAX ((uint64_t)16 << 20)
#define ALIGNMENT 4096u
#define CHUNK ((size_t)1 << 20)
#define MANIFEST_MAX ((size_t)16 << 20)

void cn_manifest_file_deinit(struct cn_manifest_file *manifest)
{
    free(manifest->ranges);
    cn_extents_deinit(&manifest->unused);
    *manifest = (struct cn_manifest_file){0};
}

static bool hash_range(int file, uint64_t offset, uint64_t size, uint8_t digest[CN_DIGEST_SIZE])
{
    uint8_t *chunk = malloc(CHUNK);
    struct cn_sha256 sha;
    bool whole = chunk != NULL;

    cn_sha256_init(&sha);
    for (uint64_t at = 0; whole && at < size;) {
        ssize_t got = pread(file, chunk, size - at < CHUNK ? (size_t)(size - at) : CHUNK,
                            (off_t)(offset + at));

        if (got < 0 && errno == EINTR)
            continue;
        whole = got > 0;
        if (whole) {
            cn_sha256_add(&sha, chunk, (size_t)got);
            at += (uint64_t)got;
        }
    }
    cn_sha256_finish(&sha, digest);
    free(chunk);
    return whole;
}

static bool is_zero(int file, uint64_t offset, uint64_t size, bool *read)
{
    uint8_t *chunk = malloc(CHUNK);
    bool zero = true;

    *read = chunk != NULL;
    for (uint64_t at = 0; *read && zero && at < size;) {
        ssize_t got = pread(file, chunk, size - at < CHUNK ? (size_t)(size - at) : CHUNK,
                            (off_t)(offset + at));

        if (got < 0 && errno == EINTR)
            continue;
        *read = got > 0;
        zero = got > 0 && chunk[0] == 0 && memcmp(chunk, chunk + 1, (size_t)got - 1) == 0;
        at += got > 0 ? (uint64_t)got : 0;
    }
    free(chunk);
    return *read && zero;
}

static bool add_range(struct cn_manifest_file *manifest, uint64_t begin, uint64_t end)
{
    while (begin < end) {
        uint64_t size = end - begin < RANGE_MAX ? end - begin : RANGE_MAX;
        struct cn_manifest_range *grown =
            realloc(manifest->ranges, (manifest->count + 1) * sizeof(*grown));

        if (!grown)
            return false;
        manifest->ranges = grown;
        grown[manifest->count++] = (struct cn_manifest_range){.offset = begin, .size = size};
        begin += size;
    }
    return true;
}

// Lists the parts that hold data, in whole blocks. Small holes count as data.
static bool map_image(int file, struct cn_manifest_file *manifest)
{
    uint64_t begin = 0, end = 0; // the part that is being extended
    off_t at = 0;

    for (;;) {
        off_t data = lseek(file, at, SEEK_DATA);
        off_t hole = data < 0 ? -1 : lseek(file, data, SEEK_HOLE);

        if (data < 0 && errno == ENXIO) // only a hole is left
            return add_range(manifest, begin, end);
        if (hole < 0)
            return false;
        if ((uint64_t)data > end + HOLE_MIN || end == 0) {
            if (!add_range(manifest, begin, end))
                return false;
            begin = (uint64_t)data / ALIGNMENT * ALIGNMENT;
        }
        end = ((uint64_t)hole + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        if (end > manifest->size)
            end = manifest->size;
        at = hole;
    }
}

// Adds the whole blocks of a free extent that lie between data ranges. *at is the index of the
// first range to look at.
static bool keep_unused(struct cn_manifest_file *manifest, const struct cn_extent *extent,
                        size_t *at)
{
    uint64_t begin = extent->offset, end = extent->offset + extent->size;

    while (begin < end) {
        const struct cn_manifest_range *range =
            *at < manifest->count ? &manifest->ranges[*at] : NULL;
        uint64_t hole_end = range && range->offset < end ? range->offset : end, from, to;

        if (range && range->offset + range->size <= begin) {
            ++*at;
            continue;
        }
        from = (begin + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        to = hole_end / ALIGNMENT * ALIGNMENT;
        if (to >= from + UNUSED_MIN && manifest->unused.count < CN_MANIFEST_RANGES &&
            !cn_extents_add(&manifest->unused, from, to))
            return false;
        begin = hole_end < end ? range->offset + range->size : end;
    }
    return true;
}

// Lists the extents that are zero in the image and free in its file system; they need not be
// written.
static bool map_unused(const char *image, struct cn_manifest_file *manifest)
{
    struct cn_extents free_extents;
    bool good = cn_extents_read_free(image, &free_extents);
    size_t at = 0;

    for (size_t i = 0; i < free_extents.count && good; i++)
        good = keep_unused(manifest, &free_extents.list[i], &at);
    cn_extents_deinit(&free_extents);
    return good;
}

static cJSON *describe(const struct cn_manifest_file *manifest, const struct cn_payload *payload)
{
    cJSON *root = cJSON_CreateObject(), *list;
    char digest[2 * CN_DIGEST_SIZE + 1];

    cJSON_AddStringToObject(root, "format", FORMAT);
    cJSON_AddStringToObject(root, "name", manifest->name);
    cJSON_AddStringToObject(root, "board", manifest->board);
    cJSON_AddNumberToObject(root, "size", (double)manifest->size);
    list = cJSON_AddArrayToObject(root, "files");
    for (size_t i = 0; i < payload->count; i++) {
        cJSON *file = cJSON_CreateObject();

        cJSON_AddStringToObject(file, "path", payload->files[i].target);
        cJSON_AddNumberToObject(file, "size", (double)payload->files[i].size);
        cJSON_AddItemToArray(list, file);
    }
    list = cJSON_AddArrayToObject(root, "ranges");
    for (size_t i = 0; i < manifest->count; i++) {
        cJSON *range = cJSON_CreateArray();

        cn_hex(digest, manifest->ranges[i].digest, CN_DIGEST_SIZE);
        cJSON_AddItemToArray(range, cJSON_CreateNumber((double)manifest->ranges[i].offset));
        cJSON_AddItemToArray(range, cJSON_CreateNumber((double)manifest->ranges[i].size));
        cJSON_AddItemToArray(range, cJSON_CreateString(digest));
        cJSON_AddItemToArray(list, range);
    }
    list = cJSON_AddArrayToObject(root, "unused");
    for (size_t i = 0; i < manifest->unused.count; i++) {
        const double pair[] = {(double)manifest->unused.list[i].offset,
                               (double)manifest->unused.list[i].size};

        cJSON_AddItemToArray(list, cJSON_CreateDoubleArray(pair, 2));
    }
    return root;
}

// Writes the manifest to a new file. An existing file or link of that name is an error.
static bool save(const char *image, const struct cn_manifest_file *manifest,
                 const struct cn_payload *payload)
{
    cJSON *root = describe(manifest, payload);
    char *text = cJSON_Print(root), path[1024];
    int made;
    FILE *file;
    bool saved = false;

    snprintf(path, sizeof(path), "%s.json", image);
    made = text ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644) : -1;
    file = made < 0 ? NULL : fdopen(made, "w");
    if (file) {
        saved = fputs(text, file) >= 0 && fputc('\n', file) == '\n';
        saved = fclose(file) == 0 && saved;
    }
    if (made >= 0 && !saved)
        unlink(path);
    cJSON_free(text);
    cJSON_Delete(root);
    return saved;
}

int cn_manifest_file_check_free(const char *image)
{
    char path[1024];

    snprintf(path, sizeof(path), "%s.json", image);
    if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW))
        return CN_EXIT_DONE;
    cn_console_error("remove it, or choose another -o", "%s: %s", path, strerror(EEXIST));
    return CN_EXIT_FAILED;
}

int cn_manifest_file_make(const char *image, const char *name, const struct cn_payload *payload)
{
    struct cn_manifest_file manifest = {0};
    int file = open(image, O_RDONLY | O_CLOEXEC);
    off_t size = file < 0 ? -1 : lseek(file, 0, SEEK_END);
    bool good = size > 0;

    snprintf(manifest.name, sizeof(manifest.name), "%s", name);
    snprintf(manifest.board, sizeof(manifest.board), "%s", payload->board);
    manifest.size = (uint64_t)size;
    good = good && map_image(file, &manifest) && map_unused(image, &manifest);
    for (size_t i = 0; i < manifest.count && good; i++)
        good = hash_range(file, manifest.ranges[i].offset, manifest.ranges[i].size,
                          manifest.ranges[i].digest);
    good = good && save(image, &manifest, payload);
    if (!good)
        cn_console_error(NULL, "%s: its manifest could not be made: %s", image, strerror(errno));
    if (file >= 0)
        close(file);
    cn_manifest_file_deinit(&manifest);
    return good ? CN_EXIT_DONE : CN_EXIT_FAILED;
}

static bool read_size(const cJSON *item, uint64_t *size)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble < 9e15))
        return false;
    *size = (uint64_t)item->valuedouble;
    return true;
}

static bool read_ranges(const cJSON *list, struct cn_manifest_file *manifest)
{
    int count = cJSON_GetArraySize(list);
    uint64_t end = 0;
    const cJSON *item;

    if (!cJSON_IsArray(list) || count < 1 || count > CN_MANIFEST_RANGES)
        return false;
    manifest->ranges = calloc((size_t)count, sizeof(*manifest->ranges));
    if (!manifest->ranges)
        return false;
    cJSON_ArrayForEach(item, list)
    {
        struct cn_manifest_range *range = &manifest->ranges[manifest->count];
        const cJSON *digest = cJSON_GetArrayItem(item, 2);

        if (!read_size(cJSON_GetArrayItem(item, 0), &range->offset) ||
            !read_size(cJSON_GetArrayItem(item, 1), &range->size) || !cJSON_IsString(digest) ||
            cn_hex_parse(digest->valuestring, range->digest, CN_DIGEST_SIZE))
            return false;
        // Ranges must be in ascending order and within the image.
        if (range->size == 0 || range->offset < end || range->offset > manifest->size ||
            range->size > manifest->size - range->offset)
            return false;
        end = range->offset + range->size;
        manifest->count++;
    }
    return true;
}

// Reads the unused extents. They must be in ascending order, within the image and apart from the
// ranges.
static bool read_unused(const cJSON *list, struct cn_manifest_file *manifest)
{
    uint64_t end = 0;
    size_t range = 0;
    const cJSON *item;

    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > CN_MANIFEST_RANGES)
        return false;
    cJSON_ArrayForEach(item, list)
    {
        uint64_t offset, size;

        if (!read_size(cJSON_GetArrayItem(item, 0), &offset) ||
            !read_size(cJSON_GetArrayItem(item, 1), &size) || size == 0 || offset < end ||
            offset > manifest->size || size > manifest->size - offset)
            return false;
        end = offset + size;
        while (range < manifest->count &&
               manifest->ranges[range].offset + manifest->ranges[range].size <= offset)
            range++;
        if ((range < manifest->count && manifest->ranges[range].offset < end) ||
            !cn_extents_add(&manifest->unused, offset, end))
            return false;
    }
    return true;
}

bool cn_manifest_file_parse(const uint8_t *text, size_t size, struct cn_manifest_file *manifest)
{
    cJSON *root = cJSON_ParseWithLength((const char *)text, size);
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(root, "format");
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(root, "name");
    bool before = cJSON_IsString(format) && strcmp(format->valuestring, FORMAT_BEFORE) == 0;
    bool good = (before || (cJSON_IsString(format) && strcmp(format->valuestring, FORMAT) == 0)) &&
                cJSON_IsString(name) && cn_name_valid(name->valuestring) &&
                read_size(cJSON_GetObjectItemCaseSensitive(root, "size"), &manifest->size) &&
                read_ranges(cJSON_GetObjectItemCaseSensitive(root, "ranges"), manifest);

    if (good && !before)
        good = read_unused(cJSON_GetObjectItemCaseSensitive(root, "unused"), manifest);
    if (good)
        snprintf(manifest->name, sizeof(manifest->name), "%s", name->valuestring);
    cJSON_Delete(root);
    return good;
}

int cn_manifest_file_load(const char *image, struct cn_manifest_file *manifest)
{
    struct cn_mapping file;
    char path[1024];
    cn_err err;
    bool good;

    *manifest = (struct cn_manifest_file){0};
    snprintf(path, sizeof(path), "%s.json", image);
    err = cn_platform_map(path, MANIFEST_MAX, &file);
    if (err) {
        cn_console_error("images made by 'cairn-flash image' have one; keep it beside the image",
                         "%s: %s", path, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    good = cn_manifest_file_parse(file.data, file.size, manifest);
    cn_platform_unmap(&file);
    if (good)
        return CN_EXIT_DONE;
    cn_console_error("make the image again", "%s is not a manifest of cairn-flash", path);
    cn_manifest_file_deinit(manifest);
    return CN_EXIT_VERIFY;
}

bool cn_manifest_file_next(const struct cn_manifest_file *manifest, struct cn_manifest_walk *walk,
                           struct cn_manifest_part *part)
{
    while (walk->at < manifest->size) {
        const struct cn_manifest_range *range =
            walk->range < manifest->count ? &manifest->ranges[walk->range] : NULL;
        const struct cn_extent *unused =
            walk->unused < manifest->unused.count ? &manifest->unused.list[walk->unused] : NULL;
        uint64_t end = manifest->size;

        if (unused && unused->offset == walk->at) {
            walk->at += unused->size;
            walk->unused++;
            continue;
        }
        *part = (struct cn_manifest_part){.offset = walk->at};
        if (range && range->offset == walk->at) {
            part->range = range;
            walk->range++;
            end = walk->at + range->size;
        } else {
            if (range)
                end = range->offset;
            if (unused && unused->offset < end)
                end = unused->offset;
            if (end - walk->at > ZEROS_MAX)
                end = walk->at + ZEROS_MAX;
        }
        part->size = end - walk->at;
        walk->at = end;
        return true;
    }
    return false;
}

uint64_t cn_manifest_file_total(const struct cn_manifest_file *manifest)
{
    uint64_t total = manifest->size;

    for (size_t i = 0; i < manifest->unused.count; i++)
        total -= manifest->unused.list[i].size;
    return total;
}

// Compares one part with the bytes in file. Sets *read to false when the part cannot be read.
static bool is_same(int file, const struct cn_manifest_part *part, bool *read)
{
    uint8_t digest[CN_DIGEST_SIZE];

    if (!part->range)
        return is_zero(file, part->offset, part->size, read);
    *read = hash_range(file, part->offset, part->size, digest);
    return *read && memcmp(digest, part->range->digest, CN_DIGEST_SIZE) == 0;
}

int cn_manifest_file_verify(const struct cn_manifest_file *manifest, int file, const char *path,
                            const char *work)
{
    uint64_t total = cn_manifest_file_total(manifest), done = 0, begun_ms = cn_platform_now_ms();
    struct cn_manifest_walk walk = {0};
    struct cn_manifest_part part;

    while (cn_manifest_file_next(manifest, &walk, &part)) {
        bool read, same = is_same(file, &part, &read);

        if (cn_process_interrupted())
            return CN_EXIT_INTERRUPTED;
        if (!same) {
            cn_console_error(NULL, "%s: %" PRIu64 " bytes at %" PRIu64 " %s", path, part.size,
                             part.offset,
                             !read        ? "cannot be read"
                             : part.range ? "are not those of the manifest"
                                          : "are not zero, as those of the manifest");
            return CN_EXIT_VERIFY;
        }
        done += part.size;
        cn_console_progress(work, done, total, begun_ms);
    }
    cn_console_progress_end();
    return CN_EXIT_DONE;
}
