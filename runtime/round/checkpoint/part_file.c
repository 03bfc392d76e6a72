#include "runtime/round/checkpoint/part_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE ((size_t)1 << 16) // bytes that are read at a time
#define ARRAYS (1u << CN_PART_WEIGHTS | 1u << CN_PART_OPTIMIZER | 1u << CN_PART_SECOND)
#define SIZE_AT 8       // place of the file's size in the header
#define CONTENTS_AT 176 // place of `contents`

static const uint8_t magic[8] = "cairnpt1";

const char *const cn_stored_names[CN_STORED_FILES][CN_STORED_SLOTS] = {
    [CN_STORED_OWN] = {"part.a", "part.b"},
    [CN_STORED_BEFORE] = {"part-before.a", "part-before.b"},
};

#define WAITING_NAME "waits-%016" PRIx64 "-%02" PRIu32

void cn_waiting_name(uint64_t set, uint32_t part, char name[CN_WAITING_NAME_SIZE])
{
    snprintf(name, CN_WAITING_NAME_SIZE, WAITING_NAME, set, part);
}

bool cn_waiting_parse(const char *name, uint64_t *set, uint32_t *part)
{
    char again[CN_WAITING_NAME_SIZE];

    // NOLINTNEXTLINE(cert-err34-c): what does not fit gives another name
    if (sscanf(name, "waits-%16" SCNx64 "-%2" SCNu32, set, part) != 2)
        return false;
    cn_waiting_name(*set, *part, again);
    return strcmp(name, again) == 0;
}

// --- header ---

_Static_assert(sizeof(struct cn_part_digests) == (1 + CN_CUT_PARTS_MAX) * CN_DIGEST_SIZE,
               "the digests lie in a file as in memory");

static bool waits(const struct cn_part_header *header)
{
    return header->arrays == CN_PART_WAITING;
}

// Returns the bytes of the digests behind the header.
static size_t digests_of(const struct cn_part_header *header)
{
    return waits(header) ? sizeof(struct cn_part_digests) : 0;
}

void cn_part_set_contents(struct cn_part_header *header, const struct cn_part_digests *digests)
{
    cn_crypto_digest(digests, sizeof(*digests), header->contents);
}

static bool are_contents(const struct cn_part_header *header, const struct cn_part_digests *digests)
{
    struct cn_part_header other;

    cn_part_set_contents(&other, digests);
    return memcmp(other.contents, header->contents, CN_DIGEST_SIZE) == 0;
}

// Returns the bytes behind the header; SIZE_MAX when there are too many.
static uint64_t rest_of(const struct cn_part_header *header)
{
    size_t count = (size_t)__builtin_popcount(header->arrays), bytes;

    if (header->values > UINT32_MAX * (uint64_t)sizeof(float) ||
        cn_size_multiply((size_t)header->values, count * sizeof(float), &bytes))
        return SIZE_MAX;
    return digests_of(header) + (uint64_t)header->tensors * sizeof(uint32_t) + bytes +
           CN_DIGEST_SIZE;
}

uint64_t cn_part_size(const struct cn_part_header *header)
{
    return CN_PART_HEADER_SIZE + rest_of(header);
}

static void put_header(const struct cn_part_header *header, uint8_t bytes[CN_PART_HEADER_SIZE])
{
    memset(bytes, 0, CN_PART_HEADER_SIZE);
    memcpy(bytes, magic, sizeof(magic));
    cn_put_u64(bytes + SIZE_AT, cn_part_size(header));
    cn_put_u64(bytes + 16, header->run);
    cn_put_u64(bytes + 24, header->epoch);
    cn_put_u32(bytes + 32, header->lineage);
    cn_put_u32(bytes + 36, header->round);
    cn_put_u32(bytes + 40, header->step);
    cn_put_u32(bytes + 44, header->parts);
    memcpy(bytes + 48, header->base, CN_DIGEST_SIZE);
    cn_put_u64(bytes + 80, header->samples);
    cn_put_u64(bytes + 88, header->cursor);
    cn_put_u64(bytes + 96, header->updates);
    cn_put_f64(bytes + 104, header->train_loss);
    memcpy(bytes + 112, &header->loss_scale.factor, sizeof(float));
    cn_put_u32(bytes + 116, header->loss_scale.steps);
    for (uint32_t s = 0; s < CN_GROUP_MAX; s++)
        cn_put_u16(bytes + 120 + 2 * s, header->micro[s]);
    cn_put_u32(bytes + 152, header->arrays);
    cn_put_u32(bytes + 156, header->part);
    cn_put_u32(bytes + 160, header->tensors);
    cn_put_u32(bytes + 164, header->cut);
    cn_put_u64(bytes + 168, header->values);
    memcpy(bytes + CONTENTS_AT, header->contents, CN_DIGEST_SIZE);
}

uint64_t cn_part_state(const struct cn_part_header *header)
{
    struct cn_part_header alike = *header;
    uint8_t bytes[CN_PART_HEADER_SIZE], digest[CN_DIGEST_SIZE];

    alike.part = alike.tensors = 0;
    alike.values = 0;
    put_header(&alike, bytes);
    cn_put_u64(bytes + SIZE_AT, 0);
    cn_crypto_digest(bytes, sizeof(bytes), digest);
    return cn_get_u64(digest) | 1;
}

_Static_assert(120 + 2 * CN_GROUP_MAX == 152, "the fields of the header follow each other");

static void get_header(const uint8_t bytes[CN_PART_HEADER_SIZE], struct cn_part_header *header)
{
    *header = (struct cn_part_header){
        .run = cn_get_u64(bytes + 16),
        .epoch = cn_get_u64(bytes + 24),
        .lineage = cn_get_u32(bytes + 32),
        .round = cn_get_u32(bytes + 36),
        .step = cn_get_u32(bytes + 40),
        .parts = cn_get_u32(bytes + 44),
        .samples = cn_get_u64(bytes + 80),
        .cursor = cn_get_u64(bytes + 88),
        .updates = cn_get_u64(bytes + 96),
        .train_loss = cn_get_f64(bytes + 104),
        .loss_scale = {cn_get_f32(bytes + 112), cn_get_u32(bytes + 116)},
        .arrays = cn_get_u32(bytes + 152),
        .part = cn_get_u32(bytes + 156),
        .tensors = cn_get_u32(bytes + 160),
        .cut = cn_get_u32(bytes + 164),
        .values = cn_get_u64(bytes + 168),
    };
    memcpy(header->base, bytes + 48, CN_DIGEST_SIZE);
    memcpy(header->contents, bytes + CONTENTS_AT, CN_DIGEST_SIZE);
    for (uint32_t s = 0; s < CN_GROUP_MAX; s++)
        header->micro[s] = cn_get_u16(bytes + 120 + 2 * s);
}

// Returns whether a loss scale is one that a device may be given.
static bool is_scale(struct cn_loss_scale scale)
{
    int exponent;

    if (fabsf(scale.factor) <= 0)
        return true; // no scale
    return isfinite(scale.factor) && scale.factor > 0 && frexpf(scale.factor, &exponent) <= 0.5f &&
           exponent >= 1 && exponent <= 64 && scale.steps <= UINT16_MAX;
}

static bool has_arrays(const struct cn_part_header *header)
{
    return waits(header) ||
           ((header->arrays & ~ARRAYS) == 0 && header->arrays >> CN_PART_WEIGHTS & 1);
}

static bool makes_sense(const struct cn_part_header *header, const struct cn_layout *layout)
{
    return header->parts >= 2 && header->parts <= CN_CUT_PARTS_MAX &&
           header->part < header->parts && has_arrays(header) &&
           header->tensors <= layout->tensor_count && header->values <= layout->total &&
           is_scale(header->loss_scale);
}

// --- writing ---

static void put(struct cn_part_writer *writer, const void *bytes, size_t size)
{
    cn_sha256_add(&writer->sha, bytes, size);
    if (!writer->err)
        writer->err = cn_store_writer_put(&writer->file, bytes, size);
}

void cn_part_writer_begin(struct cn_part_writer *writer, struct cn_store *store, const char *name,
                          const struct cn_part_header *header,
                          const struct cn_part_digests *digests, const uint32_t *tensors)
{
    uint8_t bytes[CN_PART_HEADER_SIZE];

    *writer = (struct cn_part_writer){.waits = waits(header)};
    cn_sha256_init(&writer->sha);
    writer->err = cn_store_writer_begin(store, name, &writer->file);
    if (writer->err)
        writer->file.file = NULL;
    put_header(header, bytes);
    put(writer, bytes, sizeof(bytes));
    if (writer->waits) { // what is hashed begins here
        memcpy(writer->expected, digests->parts[header->part], CN_DIGEST_SIZE);
        put(writer, digests, sizeof(*digests));
        if (!writer->err && !are_contents(header, digests))
            writer->err = CN_EDIGEST;
        cn_sha256_init(&writer->sha);
    }
    put(writer, tensors, header->tensors * sizeof(*tensors));
}

void cn_part_writer_put(void *to, const float *values, size_t count)
{
    put(to, values, count * sizeof(*values));
}

cn_err cn_part_writer_end(struct cn_part_writer *writer, cn_err err)
{
    uint8_t digest[CN_DIGEST_SIZE];

    cn_sha256_finish(&writer->sha, digest);
    if (!writer->file.file)
        return err ? err : writer->err;
    if (!writer->err && writer->waits && memcmp(digest, writer->expected, CN_DIGEST_SIZE) != 0)
        writer->err = CN_EDIGEST;
    put(writer, digest, sizeof(digest));
    return cn_store_writer_end(&writer->file, err ? err : writer->err);
}

// --- reading ---

cn_err cn_part_header_read(const uint8_t bytes[CN_PART_HEADER_SIZE], const struct cn_layout *layout,
                           struct cn_part_header *header)
{
    get_header(bytes, header);
    return memcmp(bytes, magic, sizeof(magic)) == 0 && makes_sense(header, layout) &&
                   cn_get_u64(bytes + SIZE_AT) == cn_part_size(header)
               ? CN_OK
               : CN_EFORMAT;
}

cn_err cn_part_check_tensors(const struct cn_part_header *header, const uint32_t *tensors,
                             const struct cn_layout *layout)
{
    uint64_t values = 0;

    for (uint32_t t = 0; t < header->tensors; t++) {
        if (tensors[t] >= layout->tensor_count || (t > 0 && tensors[t] <= tensors[t - 1]))
            return CN_EFORMAT;
        values += layout->tensors[tensors[t]].count;
    }
    return values == header->values ? CN_OK : CN_EFORMAT;
}

cn_err cn_part_reader_begin(struct cn_part_reader *reader, const struct cn_layout *layout,
                            const uint8_t header[CN_PART_HEADER_SIZE],
                            void (*take)(void *context, enum cn_checkpoint_part array, size_t first,
                                         size_t count, const float *values),
                            void *context)
{
    cn_err err;

    *reader = (struct cn_part_reader){.layout = layout, .take = take, .context = context};
    err = cn_part_header_read(header, layout, &reader->header);
    reader->left = rest_of(&reader->header);
    if (err)
        return err;
    reader->tensors = calloc((size_t)reader->header.tensors + 1, sizeof(*reader->tensors));
    if (!reader->tensors)
        return CN_ENOMEM;
    reader->array = (uint32_t)__builtin_ctz(reader->header.arrays);
    cn_sha256_init(&reader->sha);
    if (!waits(&reader->header)) // the digests have all of it
        cn_sha256_add(&reader->sha, header, CN_PART_HEADER_SIZE);
    return CN_OK;
}

// Goes on to the next array when all tensors of this one have come.
static void pass_tensors(struct cn_part_reader *reader)
{
    while (reader->tensor < reader->header.tensors &&
           reader->of_it == reader->layout->tensors[reader->tensors[reader->tensor]].count) {
        reader->of_it = 0;
        reader->tensor++;
    }
    if (reader->tensor < reader->header.tensors)
        return;
    reader->tensor = 0;
    do
        reader->array++;
    while (reader->array < 32 && !(reader->header.arrays >> reader->array & 1));
}

static void take_values(struct cn_part_reader *reader, const uint8_t *bytes, size_t count)
{
    float values[1024];

    while (count > 0) {
        const struct cn_tensor_info *tensor =
            &reader->layout->tensors[reader->tensors[reader->tensor]];
        size_t some = tensor->count - reader->of_it;

        some = some < count ? some : count;
        some = some < 1024 ? some : 1024;
        memcpy(values, bytes, some * sizeof(*values));
        if (some > 0 && reader->take)
            reader->take(reader->context, (enum cn_checkpoint_part)reader->array,
                         tensor->offset + reader->of_it, some, values);
        reader->of_it += some;
        bytes += some * sizeof(*values);
        count -= some;
        pass_tensors(reader);
    }
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Returns how many of the next bytes belong before this place behind the header.
static size_t before(const struct cn_part_reader *reader, size_t end, size_t size)
{
    return reader->read < end ? least(size, end - reader->read) : 0;
}

// Copies the bytes that belong before `end` to `to`, which begins at `begin`. Returns their number.
static size_t copy(struct cn_part_reader *reader, size_t begin, size_t end, void *to,
                   const uint8_t *bytes, size_t size)
{
    size_t some = before(reader, end, size);

    if (some > 0)
        memcpy((uint8_t *)to + (reader->read - begin), bytes, some);
    reader->read += some;
    return some;
}

static cn_err check_digest(struct cn_part_reader *reader)
{
    const struct cn_part_header *header = &reader->header;
    uint8_t digest[CN_DIGEST_SIZE];

    cn_sha256_finish(&reader->sha, digest);
    if (memcmp(digest, reader->digest, CN_DIGEST_SIZE) != 0 ||
        (waits(header) && memcmp(digest, reader->digests.parts[header->part], CN_DIGEST_SIZE) != 0))
        return CN_EDIGEST;
    return CN_OK;
}

cn_err cn_part_reader_put(struct cn_part_reader *reader, const uint8_t *bytes, size_t size)
{
    const struct cn_part_header *header = &reader->header;
    size_t digests = digests_of(header);
    size_t names = digests + header->tensors * sizeof(*reader->tensors);
    size_t values =
        names + (size_t)header->values * sizeof(float) * (size_t)__builtin_popcount(header->arrays);
    size_t some;

    if (size > reader->left || size % sizeof(float) != 0)
        return CN_EFORMAT;
    reader->left -= size;
    some = copy(reader, 0, digests, &reader->digests, bytes, size);
    bytes += some;
    size -= some;
    if (some > 0 && reader->read == digests && !are_contents(header, &reader->digests))
        return CN_EDIGEST;
    some = copy(reader, digests, names, reader->tensors, bytes, size);
    cn_sha256_add(&reader->sha, bytes, some);
    bytes += some;
    size -= some;
    if (reader->read == names && cn_part_check_tensors(header, reader->tensors, reader->layout))
        return CN_EFORMAT;
    some = before(reader, values, size);
    if (some > 0)
        take_values(reader, bytes, some / sizeof(float));
    reader->read += some;
    cn_sha256_add(&reader->sha, bytes, some);
    bytes += some;
    size -= some;
    copy(reader, values, SIZE_MAX, reader->digest, bytes, size);
    return reader->left > 0 ? CN_OK : check_digest(reader);
}

void cn_part_reader_end(struct cn_part_reader *reader)
{
    free(reader->tensors);
    reader->tensors = NULL;
}

// Reads again what a disk fails to read once.
static cn_err read_bytes(struct cn_store *store, struct cn_store_file *file, uint64_t offset,
                         uint8_t *bytes, size_t size)
{
    cn_err err = store->ops->read(file, offset, bytes, size);

    return err == CN_EIO ? store->ops->read(file, offset, bytes, size) : err;
}

// What becomes of a file's values; take is NULL where they are only checked.
struct taker {
    void (*take)(void *context, enum cn_checkpoint_part array, size_t first, size_t count,
                 const float *values);
    void *context;
};

static cn_err check(struct cn_store *store, struct cn_store_file *file, uint64_t size,
                    const struct cn_layout *layout, const struct taker *taker, uint8_t *piece,
                    struct cn_part_reader *reader)
{
    uint64_t offset = CN_PART_HEADER_SIZE;
    cn_err err = size < offset ? CN_EFORMAT : read_bytes(store, file, 0, piece, (size_t)offset);

    if (!err)
        err = cn_part_reader_begin(reader, layout, piece, taker ? taker->take : NULL,
                                   taker ? taker->context : NULL);
    if (!err && reader->left != size - offset)
        err = CN_EFORMAT;
    while (!err && taker && reader->left > 0) {
        size_t some = least(PIECE, (size_t)reader->left);

        err = read_bytes(store, file, offset, piece, some);
        if (!err)
            err = cn_part_reader_put(reader, piece, some);
        offset += some;
    }
    return err;
}

// Without a taker only the header is read.
static cn_err check_file(struct cn_store *store, const char *name, const struct cn_layout *layout,
                         const struct taker *taker, struct cn_part_header *header)
{
    struct cn_part_reader reader = {.left = 0};
    struct cn_store_file *file;
    uint8_t *piece;
    uint64_t size;
    cn_err err = store->ops->open(store, name, &file, &size);

    if (err)
        return err;
    piece = malloc(PIECE);
    err = piece ? check(store, file, size, layout, taker, piece, &reader) : CN_ENOMEM;
    *header = reader.header;
    cn_part_reader_end(&reader);
    free(piece);
    store->ops->abort(file);
    return err;
}

cn_err cn_part_file_read(struct cn_store *store, const char *name, const struct cn_layout *layout,
                         struct cn_part_header *header)
{
    return check_file(store, name, layout, NULL, header);
}

cn_err cn_part_file_check(struct cn_store *store, const char *name, const struct cn_layout *layout,
                          struct cn_part_header *header)
{
    const struct taker taker = {NULL, NULL};

    return check_file(store, name, layout, &taker, header);
}

cn_err cn_part_file_take(struct cn_store *store, const char *name, const struct cn_layout *layout,
                         void (*take)(void *context, enum cn_checkpoint_part array, size_t first,
                                      size_t count, const float *values),
                         void *context, struct cn_part_header *header)
{
    const struct taker taker = {take, context};

    return check_file(store, name, layout, &taker, header);
}
