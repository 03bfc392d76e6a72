#include "runtime/engine/data/npy.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/bytes.h"

#define MAGIC "\x93NUMPY"
#define MAGIC_SIZE 6
#define HEADER_MAX 65536 // numpy writes less than 128 bytes for an array of numbers

// The header is a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
struct header {
    const char *at, *end;
    const char *descr;
    size_t descr_size;
    bool fortran_order;
    unsigned seen; // one bit for each key
};

enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL = 7 };

static void skip_spaces(struct header *header)
{
    while (header->at < header->end && (*header->at == ' ' || *header->at == '\n'))
        header->at++;
}

static bool take(struct header *header, const char *word)
{
    size_t size = strlen(word);

    skip_spaces(header);
    if ((size_t)(header->end - header->at) < size || memcmp(header->at, word, size) != 0)
        return false;
    header->at += size;
    return true;
}

static bool take_string(struct header *header, const char **text, size_t *size)
{
    const char *close;

    skip_spaces(header);
    if (header->at == header->end || (*header->at != '\'' && *header->at != '"'))
        return false;
    close = memchr(header->at + 1, *header->at, (size_t)(header->end - header->at) - 1);
    if (!close)
        return false;
    *text = header->at + 1;
    *size = (size_t)(close - *text);
    header->at = close + 1;
    return true;
}

static bool take_number(struct header *header, uint64_t *number)
{
    bool digits = false;

    skip_spaces(header);
    *number = 0;
    for (; header->at < header->end && *header->at >= '0' && *header->at <= '9'; header->at++) {
        digits = true;
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, (uint64_t)(*header->at - '0'), number))
            return false;
    }
    return digits;
}

static bool take_shape(struct header *header, struct cn_npy *npy)
{
    if (!take(header, "("))
        return false;
    while (!take(header, ")")) {
        if (npy->rank == CN_NPY_RANK_MAX || !take_number(header, &npy->dims[npy->rank]))
            return false;
        npy->rank++;
        if (!take(header, ","))
            return npy->rank > 1 && take(header, ")"); // (3) is a number, (3,) a tuple
    }
    return true;
}

// Notes a key. Returns false for a repeated one.
static bool is_first(struct header *header, unsigned key)
{
    bool first = !(header->seen & key);

    header->seen |= key;
    return first;
}

static bool take_value(struct header *header, const char *key, size_t size, struct cn_npy *npy)
{
    if (size == 5 && memcmp(key, "descr", 5) == 0)
        return is_first(header, DESCR) && take_string(header, &header->descr, &header->descr_size);
    if (size == 5 && memcmp(key, "shape", 5) == 0)
        return is_first(header, SHAPE) && take_shape(header, npy);
    if (size == 13 && memcmp(key, "fortran_order", 13) == 0) {
        if (!is_first(header, ORDER))
            return false;
        header->fortran_order = take(header, "True");
        return header->fortran_order || take(header, "False");
    }
    return false;
}

static bool take_dictionary(struct header *header, struct cn_npy *npy)
{
    const char *key;
    size_t size;

    if (!take(header, "{"))
        return false;
    while (!take(header, "}")) {
        if (!take_string(header, &key, &size) || !take(header, ":") ||
            !take_value(header, key, size, npy))
            return false;
        if (take(header, ","))
            continue;
        if (!take(header, "}"))
            return false;
        break;
    }
    skip_spaces(header);
    return header->at == header->end && header->seen == ALL;
}

// Reads descr: a byte order (< > = |), a kind and a size in bytes. Big-endian sets *swapped.
static bool read_type(const struct header *header, struct cn_npy *npy, bool *swapped)
{
    static const char kinds[] = {'f', 'i', 'u', 'b'};
    const char *found;
    char order;

    if (header->descr_size != 3)
        return false;
    found = memchr(kinds, header->descr[1], sizeof(kinds));
    npy->element_size = (uint32_t)(header->descr[2] - '0');
    if (!found || (npy->element_size != 1 && npy->element_size != 2 && npy->element_size != 4 &&
                   npy->element_size != 8))
        return false;
    if (*found == 'f' ? npy->element_size == 1 : *found == 'b' && npy->element_size != 1)
        return false;
    npy->kind = *found == 'f' ? CN_NPY_FLOAT : *found == 'i' ? CN_NPY_INT : CN_NPY_UINT;
    order = header->descr[0];
    *swapped = order == '>' && npy->element_size > 1;
    return order == '<' || order == '=' || order == '>' || (order == '|' && npy->element_size == 1);
}

static cn_err check_type(const struct header *header, const char *path, struct cn_diag *diag,
                         struct cn_npy *npy)
{
    bool swapped = false;
    int shown = header->descr_size < 40 ? (int)header->descr_size : 40;

    if (!read_type(header, npy, &swapped)) {
        cn_diag_add(diag, "%s: the elements are '%.*s'; wanted numbers like float32 ('<f4')", path,
                    shown, header->descr);
        return CN_ENOTSUP;
    }
    if (swapped) {
        cn_diag_add(diag,
                    "%s: the numbers are big-endian ('%.*s'); save the array with "
                    ".astype('<%.*s')",
                    path, shown, header->descr, shown - 1, header->descr + 1);
        return CN_ENOTSUP;
    }
    if (header->fortran_order && npy->rank > 1) {
        cn_diag_add(diag, "%s: the array is in Fortran order; save it with numpy.ascontiguousarray",
                    path);
        return CN_ENOTSUP;
    }
    return CN_OK;
}

static cn_err find_data(const uint8_t *data, size_t size, const char *path, struct cn_diag *diag,
                        struct cn_npy *npy)
{
    size_t wanted;

    npy->count = 1;
    for (uint32_t i = 0; i < npy->rank; i++) {
        if (cn_size_multiply(npy->count, npy->dims[i], &npy->count)) {
            cn_diag_add(diag, "%s: the size of the array overflows", path);
            return CN_EFORMAT;
        }
    }
    if (cn_size_multiply(npy->count, npy->element_size, &wanted))
        wanted = SIZE_MAX;
    if (wanted != size) {
        cn_diag_add(diag, "%s: %zu bytes of data, but its shape wants %zu%s", path, size, wanted,
                    size < wanted ? ": the file is cut off" : "");
        return CN_EFORMAT;
    }
    npy->data = npy->count ? data : NULL;
    return CN_OK;
}

// Finds the header's text after magic, version and length.
static cn_err find_header(const uint8_t *file, size_t size, const char *path, struct cn_diag *diag,
                          struct header *header)
{
    size_t prefix, length;

    if (size < MAGIC_SIZE + 4 || memcmp(file, MAGIC, MAGIC_SIZE) != 0) {
        cn_diag_add(diag, "%s: not a .npy file; save the array with numpy.save", path);
        return CN_EFORMAT;
    }
    if (file[MAGIC_SIZE] < 1 || file[MAGIC_SIZE] > 3) {
        cn_diag_add(diag, "%s: .npy version %u; wanted 1 to 3", path, file[MAGIC_SIZE]);
        return CN_ENOTSUP;
    }
    prefix = MAGIC_SIZE + (file[MAGIC_SIZE] == 1 ? 4 : 6);
    length = file[MAGIC_SIZE] == 1 ? cn_get_u16(file + MAGIC_SIZE + 2)
             : size >= prefix      ? cn_get_u32(file + MAGIC_SIZE + 2)
                                   : HEADER_MAX;
    if (size < prefix || length > HEADER_MAX || length > size - prefix) {
        cn_diag_add(diag, "%s: the header is cut off", path);
        return CN_EFORMAT;
    }
    header->at = (const char *)file + prefix;
    header->end = header->at + length;
    return CN_OK;
}

cn_err cn_npy_parse(const uint8_t *file, size_t size, const char *path, struct cn_diag *diag,
                    struct cn_npy *npy)
{
    struct header header = {0};
    cn_err err;

    *npy = (struct cn_npy){0};
    err = find_header(file, size, path, diag, &header);
    if (err)
        return err;
    if (!take_dictionary(&header, npy)) {
        cn_diag_add(diag,
                    "%s: the .npy header is malformed; wanted {'descr', 'fortran_order', 'shape'} "
                    "of an array of numbers",
                    path);
        return CN_EFORMAT;
    }
    err = check_type(&header, path, diag, npy);
    if (err)
        return err;
    return find_data((const uint8_t *)header.end,
                     size - (size_t)((const uint8_t *)header.end - file), path, diag, npy);
}

int64_t cn_npy_int(const struct cn_npy *npy, size_t index)
{
    const uint8_t *at = npy->data + index * npy->element_size;
    bool sign = npy->kind == CN_NPY_INT;
    uint64_t value;

    switch (npy->element_size) {
    case 1:
        return sign ? (int8_t)*at : *at;
    case 2:
        return sign ? (int16_t)cn_get_u16(at) : cn_get_u16(at);
    case 4:
        return sign ? (int32_t)cn_get_u32(at) : (int64_t)cn_get_u32(at);
    default:
        value = cn_get_u64(at);
        return !sign && value > INT64_MAX ? INT64_MAX : (int64_t)value;
    }
}

void cn_npy_type_text(const struct cn_npy *npy, char text[CN_NPY_TYPE_SIZE])
{
    static const char *const kinds[] = {"float", "int", "uint"};

    snprintf(text, CN_NPY_TYPE_SIZE, "%s%u", kinds[npy->kind], npy->element_size * 8);
}
