// Any bytes as a stored part of a model of three tensors: refused, or values that lie in its row,
// each once. The digests are made to fit for further tries.
#include "runtime/round/checkpoint/part_file.h"
#include "tests/fuzz/sealed.h"

#define TOTAL 40

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct cn_tensor_info tensors[] = {
    {.offset = 0, .count = 7}, {.offset = 7, .count = 0}, {.offset = 7, .count = 33}};
static const struct cn_layout layout = {tensors, 3, TOTAL};

static void take(void *context, enum cn_checkpoint_part array, size_t first, size_t count,
                 const float *values)
{
    uint32_t(*taken)[TOTAL] = context;

    (void)values;
    for (size_t i = first; i < first + count; i++)
        if (i >= TOTAL || array >= CN_PART_COUNT || taken[array][i]++)
            abort();
}

static void try_bytes(const uint8_t *bytes, size_t size)
{
    uint32_t taken[CN_PART_COUNT][TOTAL] = {0};
    struct cn_part_reader reader;
    size_t offset = CN_PART_HEADER_SIZE;
    cn_err err;

    if (size < offset)
        return;
    err = cn_part_reader_begin(&reader, &layout, bytes, take, taken);
    while (!err && reader.left > 0 && offset < size) {
        size_t some = offset % 28 ? 4 : 24;

        some = some < reader.left ? some : (size_t)reader.left;
        if (some > size - offset)
            break;
        err = cn_part_reader_put(&reader, bytes + offset, some);
        offset += some;
    }
    if (!err && offset > size)
        abort();
    cn_part_reader_end(&reader);
}

// What waits has digests of its contents.
static void try_waiting(const uint8_t *data, size_t size)
{
    size_t hashed = CN_PART_HEADER_SIZE + sizeof(struct cn_part_digests), end;
    uint8_t *bytes, *digest;

    if (size < hashed + CN_DIGEST_SIZE || cn_get_u32(data + 152) != CN_PART_WAITING ||
        cn_get_u32(data + 156) >= CN_CUT_PARTS_MAX)
        return;
    bytes = malloc(size);
    if (!bytes)
        abort();
    memcpy(bytes, data, size);
    end = size - CN_DIGEST_SIZE;
    digest = bytes + CN_PART_HEADER_SIZE + (1 + cn_get_u32(bytes + 156)) * CN_DIGEST_SIZE;
    cn_crypto_digest(bytes + hashed, end - hashed, digest);
    memcpy(bytes + end, digest, CN_DIGEST_SIZE);
    cn_crypto_digest(bytes + CN_PART_HEADER_SIZE, sizeof(struct cn_part_digests),
                     bytes + CN_PART_HEADER_SIZE - CN_DIGEST_SIZE);
    try_bytes(bytes, size);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_waiting(data, size);
    return try_sealed(data, size, try_bytes);
}
