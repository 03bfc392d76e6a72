#include "runtime/engine/data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "runtime/base/bytes.h"
#include "runtime/engine/data/source_csv.h"
#include "runtime/engine/data/source_npz.h"

#define PATH_SIZE 1024
#define SIZE_LIMIT ((size_t)1 << 40)

static cn_err refuse(struct cn_diag *diag, const char *path, const char *why)
{
    cn_diag_add(diag, "%s: %s", path, why);
    return CN_EFORMAT;
}

// --- IDX ---

static bool is_idx(const uint8_t *data, size_t size)
{
    return size >= 4 && !data[0] && !data[1] && data[2] >= 8 && data[2] <= 14 && data[2] != 10 &&
           data[3] && data[3] <= CN_NPY_RANK_MAX;
}

static uint32_t big_endian(const uint8_t *from, size_t size)
{
    uint32_t value = 0;

    for (size_t i = 0; i < size; i++)
        value = value << 8 | from[i];
    return value;
}

// Converts elements: signed numbers become int32, floats keep their bits. Doubles were refused
// before.
static void convert_idx(const uint8_t *from, uint8_t type, size_t width, size_t count, uint32_t *to)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t value = big_endian(from + i * width, width);

        if (type == 0x09)
            value = (uint32_t)(int32_t)(int8_t)value;
        if (type == 0x0b)
            value = (uint32_t)(int32_t)(int16_t)value;
        to[i] = value;
    }
}

static cn_err read_idx(const uint8_t *data, size_t size, const char *path, struct cn_diag *diag,
                       struct cn_source *source)
{
    static const size_t widths[] = {[0x08] = 1, [0x09] = 1, [0x0b] = 2, [0x0c] = 4, [0x0d] = 4};
    struct cn_npy *array = &source->array;
    uint8_t type = data[2];
    size_t at = 4 + (size_t)4 * data[3], width, bytes;

    if (type == 0x0e)
        return refuse(diag, path, "an IDX file of doubles; wanted bytes, integers or floats");
    width = widths[type];
    *array = (struct cn_npy){.kind = type == 0x08   ? CN_NPY_UINT
                                     : type == 0x0d ? CN_NPY_FLOAT
                                                    : CN_NPY_INT,
                             .element_size = type == 0x08 ? 1 : 4,
                             .rank = data[3],
                             .count = 1};
    if (size < at)
        return refuse(diag, path, "the IDX file is cut off");
    for (uint32_t d = 0; d < array->rank; d++) {
        array->dims[d] = big_endian(data + 4 + (size_t)4 * d, 4);
        if (cn_size_multiply(array->count, array->dims[d], &array->count))
            return refuse(diag, path, "the IDX file is too large");
    }
    if (cn_size_multiply(array->count, width, &bytes) || bytes != size - at)
        return refuse(diag, path, "the IDX file has another size than its header says");
    array->data = data + at;
    if (type == 0x08 || !array->count)
        return CN_OK;
    source->converted = malloc(array->count * sizeof(uint32_t));
    if (!source->converted)
        return CN_ENOMEM;
    convert_idx(data + at, type, width, array->count, source->converted);
    array->data = source->converted;
    return CN_OK;
}

// --- texts ---

static cn_err read_text(const uint8_t *data, size_t size, const char *path, const char *member,
                        struct cn_diag *diag, struct cn_npy *array)
{
    bool next = strcmp(member, "next") == 0;

    if (member[0] && !next)
        return refuse(diag, path, "a text is read as FILE.txt or as FILE.txt:next");
    if (size < 2)
        return refuse(diag, path, "the text is too short");
    *array = (struct cn_npy){
        .kind = CN_NPY_UINT, .element_size = 1, .rank = 1, .dims = {size - 1}, .count = size - 1};
    array->data = data + next;
    return CN_OK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), wanted = strlen(end);

    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

const char *cn_source_cut_member(char *path)
{
    static const char *const formats[] = {".npz:", ".csv:", ".txt:"};

    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        char *found = strstr(path, formats[i]);

        if (!found)
            continue;
        found[4] = '\0';
        return found + 5;
    }
    return "";
}

static cn_err read_format(const char *path, const char *file, const char *member, bool integers,
                          const uint8_t *data, size_t size, struct cn_diag *diag,
                          struct cn_source *source)
{
    if (ends_with(file, ".npz"))
        return cn_source_npz(path, member, data, size, diag, &source->array, &source->converted);
    if (ends_with(file, ".csv"))
        return cn_source_csv(path, member, integers, data, size, diag, &source->array,
                             &source->converted);
    if (ends_with(file, ".txt"))
        return read_text(data, size, path, member, diag, &source->array);
    if (is_idx(data, size))
        return read_idx(data, size, path, diag, source);
    return cn_npy_parse(data, size, path, diag, &source->array);
}

cn_err cn_source_read(const char *path, bool integers, const uint8_t *data, size_t size,
                      struct cn_diag *diag, struct cn_source *source)
{
    char file[PATH_SIZE];
    const char *member;
    cn_err err;

    *source = (struct cn_source){0};
    snprintf(file, sizeof(file), "%s", path);
    member = cn_source_cut_member(file);
    err = read_format(path, file, member, integers, data, size, diag, source);
    if (err)
        cn_source_deinit(source);
    return err;
}

cn_err cn_source_open(const char *path, bool integers, struct cn_diag *diag,
                      struct cn_source *source)
{
    struct cn_mapping mapping;
    char file[PATH_SIZE];
    cn_err err;

    *source = (struct cn_source){0};
    snprintf(file, sizeof(file), "%s", path);
    (void)cn_source_cut_member(file);
    err = cn_platform_map(file, SIZE_LIMIT, &mapping);
    if (err) {
        cn_diag_add(diag, "%s: cannot be read: %s", file, cn_err_reason(err));
        return err;
    }
    err = cn_source_read(path, integers, mapping.data, mapping.size, diag, source);
    if (err || source->converted)
        cn_platform_unmap(&mapping);
    else
        source->file = mapping;
    return err;
}

cn_err cn_source_sum(const char *path, uint64_t *bytes, uint32_t *checksum)
{
    struct cn_mapping mapping;
    char file[PATH_SIZE];
    cn_err err;

    snprintf(file, sizeof(file), "%s", path);
    (void)cn_source_cut_member(file);
    err = cn_platform_map(file, SIZE_LIMIT, &mapping);
    if (err)
        return err;
    *bytes += mapping.size;
    *checksum = (uint32_t)crc32_z(*checksum, mapping.data, mapping.size);
    cn_platform_unmap(&mapping);
    return CN_OK;
}

void cn_source_deinit(struct cn_source *source)
{
    if (!source)
        return;
    cn_platform_unmap(&source->file);
    free(source->converted);
    *source = (struct cn_source){0};
}
