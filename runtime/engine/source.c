#include "runtime/engine/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/engine/source_csv.h"

#define PATH_SIZE 1024
#define SIZE_LIMIT ((size_t)1 << 40)

static cn_err refuse(struct cn_diag *diag, const char *path, const char *why)
{
    cn_diag_add(diag, "%s: %s", path, why);
    return CN_EFORMAT;
}

// --- NumPy archives: a ZIP file (PKWARE APPNOTE 4.3) of .npy files ---

#define ZIP_END_SIZE 22
#define ZIP_ENTRY_SIZE 46
#define ZIP_LOCAL_SIZE 30

static const uint8_t *find_end(const uint8_t *data, size_t size)
{
    for (size_t i = ZIP_END_SIZE; i <= size && i <= ZIP_END_SIZE + 65535; i++)
        if (memcmp(data + size - i, "PK\x05\x06", 4) == 0)
            return data + size - i;
    return NULL;
}

// The bytes of the entry at this place of the directory.
static cn_err open_entry(const uint8_t *entry, const uint8_t *data, size_t size, const char *path,
                         struct cn_diag *diag, struct cn_npy *array)
{
    size_t at = cn_get_u32(entry + 42), length = cn_get_u32(entry + 20);

    if (cn_get_u16(entry + 10) != 0)
        return refuse(diag, path, "the array is compressed; wanted an archive of numpy.savez");
    if (size < ZIP_LOCAL_SIZE || at > size - ZIP_LOCAL_SIZE ||
        memcmp(data + at, "PK\x03\x04", 4) != 0)
        return refuse(diag, path, "not a whole NumPy archive");
    at += (size_t)ZIP_LOCAL_SIZE + cn_get_u16(data + at + 26) + cn_get_u16(data + at + 28);
    if (at > size || length > size - at)
        return refuse(diag, path, "not a whole NumPy archive, or one of 4 GiB or more");
    return cn_npy_parse(data + at, length, path, diag, array);
}

static cn_err read_npz(const uint8_t *data, size_t size, const char *path, const char *member,
                       struct cn_diag *diag, struct cn_npy *array)
{
    const uint8_t *end = find_end(data, size);
    size_t at, count;

    if (!end)
        return refuse(diag, path, "not a NumPy archive");
    count = cn_get_u16(end + 10);
    at = cn_get_u32(end + 16);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *entry = data + at;
        size_t length;

        if (at > size || size - at < ZIP_ENTRY_SIZE || memcmp(entry, "PK\x01\x02", 4) != 0)
            return refuse(diag, path, "not a whole NumPy archive");
        length = cn_get_u16(entry + 28);
        if (size - at - ZIP_ENTRY_SIZE < length)
            return refuse(diag, path, "not a whole NumPy archive");
        if ((!member[0] && count == 1) ||
            (length == strlen(member) + 4 &&
             memcmp(entry + ZIP_ENTRY_SIZE, member, strlen(member)) == 0))
            return open_entry(entry, data, size, path, diag, array);
        at += ZIP_ENTRY_SIZE + length + cn_get_u16(entry + 30) + cn_get_u16(entry + 32);
    }
    return refuse(diag, path,
                  member[0] ? "the archive has no such array"
                            : "which of its arrays? Wanted FILE.npz:NAME");
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

// Signed numbers become int32, floats keep their bits; doubles are refused before.
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
        return refuse(diag, path, "of a text there is only FILE.txt and FILE.txt:next");
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

// Cuts "FILE.npz:NAME" in two; NAME is "" when there is none.
static const char *cut_member(char *path)
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
        return read_npz(data, size, path, member, diag, &source->array);
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
    member = cut_member(file);
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
    (void)cut_member(file);
    err = cn_platform_map(file, SIZE_LIMIT, &mapping);
    if (err) {
        cn_diag_add(diag, "%s: cannot be read: %s", file, cn_err_text(err));
        return err;
    }
    err = cn_source_read(path, integers, mapping.data, mapping.size, diag, source);
    if (err || source->converted)
        cn_platform_unmap(&mapping);
    else
        source->file = mapping;
    return err;
}

void cn_source_deinit(struct cn_source *source)
{
    if (!source)
        return;
    cn_platform_unmap(&source->file);
    free(source->converted);
    *source = (struct cn_source){0};
}
