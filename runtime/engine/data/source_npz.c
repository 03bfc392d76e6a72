// source_npz.c - a NumPy archive is a ZIP file (PKWARE APPNOTE 4.3) of .npy files.
#include "runtime/engine/data/source_npz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ZLIB_CONST // input bytes are const
#include <zlib.h>

#include "runtime/base/bytes.h"

#define END_SIZE 22
#define ENTRY_SIZE 46
#define LOCAL_SIZE 30
#define STORED 0
#define DEFLATED 8
#define RATIO_MAX 1032 // most bytes that one byte of deflate unpacks to

static cn_err refuse(struct cn_diag *diag, const char *path, const char *why)
{
    cn_diag_add(diag, "%s: %s", path, why);
    return CN_EFORMAT;
}

static const uint8_t *find_end(const uint8_t *data, size_t size)
{
    for (size_t i = END_SIZE; i <= size && i <= END_SIZE + 65535; i++)
        if (memcmp(data + size - i, "PK\x05\x06", 4) == 0)
            return data + size - i;
    return NULL;
}

// Both sizes are below 4 GiB: they come from 32-bit fields.
static bool unpack(const uint8_t *packed, size_t packed_size, uint8_t *to, size_t size)
{
    z_stream stream = {
        .next_in = packed, .avail_in = (uInt)packed_size, .next_out = to, .avail_out = (uInt)size};
    bool whole;

    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) // negative: deflate without zlib's header
        return false;
    whole = inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.total_out == size;
    inflateEnd(&stream);
    return whole;
}

static cn_err open_packed(const uint8_t *entry, const uint8_t *packed, size_t packed_size,
                          const char *path, struct cn_diag *diag, struct cn_npy *array,
                          void **unpacked)
{
    size_t size = cn_get_u32(entry + 24);
    uint8_t *bytes;

    if (size / RATIO_MAX > packed_size)
        return refuse(diag, path, "the archive says more than its bytes can hold");
    bytes = malloc(size + 1);
    if (!bytes)
        return CN_ENOMEM;
    *unpacked = bytes;
    if (!unpack(packed, packed_size, bytes, size) ||
        crc32(crc32(0, NULL, 0), bytes, (uInt)size) != cn_get_u32(entry + 16))
        return refuse(diag, path, "the compressed array is damaged");
    return cn_npy_parse(bytes, size, path, diag, array);
}

// Finds the bytes of the entry at this place of the directory.
static cn_err open_entry(const uint8_t *entry, const uint8_t *data, size_t size, const char *path,
                         struct cn_diag *diag, struct cn_npy *array, void **unpacked)
{
    size_t at = cn_get_u32(entry + 42), length = cn_get_u32(entry + 20);
    uint16_t method = cn_get_u16(entry + 10);

    if (cn_get_u16(entry + 8) & 1)
        return refuse(diag, path, "the archive is encrypted");
    if (method != STORED && method != DEFLATED)
        return refuse(diag, path,
                      "the array is compressed in another way than by numpy.savez_compressed");
    if (size < LOCAL_SIZE || at > size - LOCAL_SIZE || memcmp(data + at, "PK\x03\x04", 4) != 0)
        return refuse(diag, path, "not a whole NumPy archive");
    at += (size_t)LOCAL_SIZE + cn_get_u16(data + at + 26) + cn_get_u16(data + at + 28);
    if (at > size || length > size - at)
        return refuse(diag, path, "not a whole NumPy archive, or one of 4 GiB or more");
    return method == STORED ? cn_npy_parse(data + at, length, path, diag, array)
                            : open_packed(entry, data + at, length, path, diag, array, unpacked);
}

// Returns whether the entry is the array of this name: a file NAME.npy.
static bool is_member(const uint8_t *entry, const char *member)
{
    size_t length = strlen(member);

    return cn_get_u16(entry + 28) == length + 4 &&
           memcmp(entry + ENTRY_SIZE, member, length) == 0 &&
           memcmp(entry + ENTRY_SIZE + length, ".npy", 4) == 0;
}

cn_err cn_source_npz(const char *path, const char *member, const uint8_t *data, size_t size,
                     struct cn_diag *diag, struct cn_npy *array, void **unpacked)
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

        if (at > size || size - at < ENTRY_SIZE || memcmp(entry, "PK\x01\x02", 4) != 0)
            return refuse(diag, path, "not a whole NumPy archive");
        length = cn_get_u16(entry + 28);
        if (size - at - ENTRY_SIZE < length)
            return refuse(diag, path, "not a whole NumPy archive");
        if ((!member[0] && count == 1) || is_member(entry, member))
            return open_entry(entry, data, size, path, diag, array, unpacked);
        at += ENTRY_SIZE + length + cn_get_u16(entry + 30) + cn_get_u16(entry + 32);
    }
    return refuse(diag, path,
                  member[0] ? "the archive has no such array"
                            : "which of its arrays? Wanted FILE.npz:NAME");
}
