#include "transport/message.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tinycbor/cbor.h>

// A message is described by a table: one row for each key, and what the struct's field is. The
// order of the rows is that of the keys, which makes the encoding deterministic (RFC 8949, 4.2.1).
enum kind {
    U32, // enums too
    U64,
    BOOL,
    F64,
    NAME,
    NAME_OR_EMPTY,
    TEXT,   // max: size of the array
    BYTES,  // max: size of the array
    PAIR,   // struct cn_version_range as [min, max]
    MAP,    // of schema
    RANGES, // struct cn_chunk_range[] as [first, count, first, count...]; the count is at
            // count_offset
};

struct field {
    uint8_t key;
    enum kind kind;
    size_t offset;
    uint64_t min, max;
    double low, high;
    const struct schema *schema;
    size_t count_offset;
};

struct schema {
    const struct field *fields;
    size_t count;
};

_Static_assert(sizeof(enum cn_loss) == sizeof(uint32_t), "enums are read and written as U32");

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define NUMBER(k, t, f, from, to)                                                                  \
    {                                                                                              \
        .key = (k), .kind = U32, .offset = offsetof(struct t, f), .min = (from), .max = (to)       \
    }
#define LONG(k, t, f, from, to)                                                                    \
    {                                                                                              \
        .key = (k), .kind = U64, .offset = offsetof(struct t, f), .min = (from), .max = (to)       \
    }
#define REAL(k, t, f, from, to)                                                                    \
    {                                                                                              \
        .key = (k), .kind = F64, .offset = offsetof(struct t, f), .low = (from), .high = (to)      \
    }
#define FIELD(k, what, t, f)                                                                       \
    {                                                                                              \
        .key = (k), .kind = (what), .offset = offsetof(struct t, f),                               \
        .max = sizeof(((struct t *)0)->f)                                                          \
    }
#define SUB(k, t, f, s)                                                                            \
    {                                                                                              \
        .key = (k), .kind = MAP, .offset = offsetof(struct t, f), .schema = &(s)                   \
    }
#define SCHEMA(table)                                                                              \
    {                                                                                              \
        (table), COUNT(table)                                                                      \
    }

#define ANY UINT64_MAX
#define ANY_ORDER 1 // of ranges, which may also touch and repeat
#define HUGE 1e30

static const struct field register_fields[] = {
    FIELD(1, PAIR, cn_register_request, protocol),
    FIELD(2, PAIR, cn_register_request, update_format),
    FIELD(3, PAIR, cn_register_request, graph_ops),
    NUMBER(4, cn_register_request, facts.cpu_count, 1, 65536),
    LONG(5, cn_register_request, facts.memory, 0, ANY),
    LONG(6, cn_register_request, facts.power_mw, 0, ANY),
    FIELD(7, NAME_OR_EMPTY, cn_register_request, facts.board_type),
};
static const struct schema register_schema = SCHEMA(register_fields);

static const struct field rule_fields[] = {
    NUMBER(1, cn_update_rule, mode, 0, CN_UPDATE_TOPK),
    REAL(2, cn_update_rule, density, 0, 1),
    NUMBER(3, cn_update_rule, value_bits, 0, 8),
};
static const struct schema rule_schema = SCHEMA(rule_fields);

static const struct field job_fields[] = {
    FIELD(1, NAME, cn_job, name),
    LONG(2, cn_job, seed, 0, ANY),
    NUMBER(3, cn_job, loss, 0, CN_LOSS_MSE),
    FIELD(4, NAME, cn_job, data_set),
    FIELD(5, NAME_OR_EMPTY, cn_job, central_set),
    REAL(6, cn_job, scale, -HUGE, HUGE),
    REAL(7, cn_job, mean, -HUGE, HUGE),
    REAL(8, cn_job, held_out, 0, 0.9),
    NUMBER(9, cn_job, batch, 1, 1u << 20),
    NUMBER(10, cn_job, accumulate, 1, 1u << 20),
    NUMBER(11, cn_job, local_steps, 1, 1u << 30),
    REAL(12, cn_job, learning_rate, 0, HUGE),
    REAL(13, cn_job, momentum, 0, 1),
    REAL(14, cn_job, weight_decay, 0, HUGE),
    FIELD(15, BOOL, cn_job, keep_optimizer),
    SUB(16, cn_job, up, rule_schema),
    SUB(17, cn_job, down, rule_schema),
    NUMBER(18, cn_job, rounds, 0, UINT32_MAX),
    NUMBER(19, cn_job, quorum, 0, UINT32_MAX),
    REAL(20, cn_job, over_select, 0, HUGE),
    LONG(21, cn_job, deadline_ms, 0, ANY),
    REAL(22, cn_job, max_norm, 0, HUGE),
    LONG(23, cn_job, max_weight, 0, ANY),
    NUMBER(24, cn_job, patience, 0, UINT32_MAX),
    REAL(25, cn_job, target_accuracy, 0, 1),
};
static const struct schema job_schema = SCHEMA(job_fields);

static const struct field manifest_fields[] = {
    NUMBER(1, cn_register_reply, protocol, 1, UINT32_MAX),
    NUMBER(2, cn_register_reply, update_format, 1, UINT32_MAX),
    NUMBER(3, cn_register_reply, graph_ops, 1, UINT32_MAX),
    NUMBER(4, cn_register_reply, chunk_size, 16, CN_CHUNK_MAX),
    NUMBER(5, cn_register_reply, window, 1, UINT32_MAX),
    LONG(6, cn_register_reply, manifest.run, 0, ANY),
    NUMBER(7, cn_register_reply, manifest.lineage, 0, UINT32_MAX),
    FIELD(8, NAME, cn_register_reply, manifest.group),
    FIELD(9, BYTES, cn_register_reply, manifest.graph),
    LONG(10, cn_register_reply, manifest.graph_size, 1, ANY),
    SUB(11, cn_register_reply, manifest.job, job_schema),
};
static const struct schema manifest_schema = SCHEMA(manifest_fields);

static const struct field round_fields[] = {
    LONG(1, cn_round_info, run, 0, ANY),
    NUMBER(2, cn_round_info, lineage, 0, UINT32_MAX),
    NUMBER(3, cn_round_info, state, 0, CN_ROUND_ENDED),
    NUMBER(4, cn_round_info, round, 0, UINT32_MAX),
    LONG(5, cn_round_info, remaining_ms, 0, ANY),
    FIELD(6, BOOL, cn_round_info, invited),
    NUMBER(7, cn_round_info, version, 0, UINT32_MAX),
    FIELD(8, BYTES, cn_round_info, version_digest),
    LONG(9, cn_round_info, version_size, 0, ANY),
    FIELD(10, BYTES, cn_round_info, parent),
    FIELD(11, BYTES, cn_round_info, delta_digest),
    LONG(12, cn_round_info, delta_size, 0, ANY),
    NUMBER(13, cn_round_info, decided_round, 0, UINT32_MAX),
    FIELD(14, BOOL, cn_round_info, decided_accepted),
    FIELD(15, BYTES, cn_round_info, decided_digest),
};
static const struct schema round_schema = SCHEMA(round_fields);

static const struct field declare_fields[] = {
    LONG(1, cn_declare_request, run, 0, ANY),
    NUMBER(2, cn_declare_request, round, 1, UINT32_MAX),
    LONG(3, cn_declare_request, size, 1, ANY),
    FIELD(4, BYTES, cn_declare_request, digest),
    FIELD(5, BYTES, cn_declare_request, base),
    REAL(6, cn_declare_request, held_out_loss, -HUGE, HUGE),
    LONG(7, cn_declare_request, held_out_correct, 0, ANY),
    LONG(8, cn_declare_request, held_out_count, 0, ANY),
    REAL(9, cn_declare_request, train_loss, -HUGE, HUGE),
};
static const struct schema declare_schema = SCHEMA(declare_fields);

static const struct field status_fields[] = {
    FIELD(1, BYTES, cn_upload_status, id),
    FIELD(2, BOOL, cn_upload_status, decided),
    NUMBER(3, cn_upload_status, verdict, 0, CN_VERDICT_LATE),
    FIELD(4, BYTES, cn_upload_status, accepted),
    NUMBER(5, cn_upload_status, chunk_count, 0, UINT32_MAX),
    NUMBER(6, cn_upload_status, received, 0, UINT32_MAX),
    {.key = 7,
     .kind = RANGES,
     .offset = offsetof(struct cn_upload_status, missing),
     .max = CN_RANGE_MAX,
     .count_offset = offsetof(struct cn_upload_status, missing_count)},
    FIELD(8, TEXT, cn_upload_status, reason),
    NUMBER(9, cn_upload_status, known, 0, UINT32_MAX),
    {.key = 10,
     .kind = RANGES,
     .offset = offsetof(struct cn_upload_status, recent),
     .max = CN_RECENT_MAX,
     .min = ANY_ORDER,
     .count_offset = offsetof(struct cn_upload_status, recent_count)},
};
static const struct schema status_schema = SCHEMA(status_fields);

void cn_message_copy_text(char *to, size_t to_size, const uint8_t *from, size_t size)
{
    size_t length = size < to_size ? size : to_size - 1;

    for (size_t i = 0; i < length; i++)
        to[i] = (char)(from[i] < 0x20 || from[i] == 0x7f ? '?' : from[i]);
    to[length] = 0;
}

static uint32_t load_u32(const void *from)
{
    uint32_t value;

    memcpy(&value, from, sizeof(value));
    return value;
}

// ---- encoding

static CborError put_map(CborEncoder *encoder, const struct schema *schema, const uint8_t *object);

static CborError put_text(CborEncoder *encoder, const char *text, size_t size)
{
    char copy[CN_MESSAGE_MAX];

    cn_message_copy_text(copy, size, (const uint8_t *)text, strnlen(text, size - 1));
    return cbor_encode_text_string(encoder, copy, strlen(copy));
}

static CborError put_numbers(CborEncoder *encoder, const uint32_t *numbers, size_t count)
{
    CborEncoder array;
    CborError error = cbor_encoder_create_array(encoder, &array, count);

    for (size_t i = 0; !error && i < count; i++)
        error = cbor_encode_uint(&array, numbers[i]);
    return error ? error : cbor_encoder_close_container(encoder, &array);
}

static CborError put_field(CborEncoder *encoder, const struct field *field, const uint8_t *object)
{
    const uint8_t *from = object + field->offset;
    uint64_t number;
    double real;

    switch (field->kind) {
    case U32:
        return cbor_encode_uint(encoder, load_u32(from));
    case U64:
        memcpy(&number, from, sizeof(number));
        return cbor_encode_uint(encoder, number);
    case BOOL:
        return cbor_encode_boolean(encoder, *(const bool *)from);
    case F64: // always 64 bits: a rule of this protocol (RFC 8949, 4.2.2)
        memcpy(&real, from, sizeof(real));
        return cbor_encode_double(encoder, real);
    case NAME:
    case NAME_OR_EMPTY:
    case TEXT:
        return put_text(encoder, (const char *)from, field->max);
    case BYTES:
        return cbor_encode_byte_string(encoder, from, field->max);
    case PAIR:
        return put_numbers(encoder, (const uint32_t *)(const void *)from, 2);
    case MAP:
        return put_map(encoder, field->schema, from);
    case RANGES:
        return put_numbers(encoder, (const uint32_t *)(const void *)from,
                           (size_t)2 * load_u32(object + field->count_offset));
    }
    return CborErrorInternalError;
}

static CborError put_map(CborEncoder *encoder, const struct schema *schema, const uint8_t *object)
{
    CborEncoder map;
    CborError error = cbor_encoder_create_map(encoder, &map, schema->count);

    for (size_t i = 0; !error && i < schema->count; i++) {
        error = cbor_encode_uint(&map, schema->fields[i].key);
        if (!error)
            error = put_field(&map, &schema->fields[i], object);
    }
    return error ? error : cbor_encoder_close_container(encoder, &map);
}

static cn_err put(const struct schema *schema, const void *object, uint8_t *bytes, size_t *size)
{
    CborEncoder encoder;

    cbor_encoder_init(&encoder, bytes, CN_MESSAGE_MAX, 0);
    if (put_map(&encoder, schema, object))
        return CN_ERANGE;
    *size = cbor_encoder_get_buffer_size(&encoder, bytes);
    return CN_OK;
}

// ---- decoding

static cn_err get_map(CborValue *value, const struct schema *schema, uint8_t *object);

static cn_err get_number(CborValue *value, uint64_t min, uint64_t max, uint64_t *number)
{
    if (!cbor_value_is_unsigned_integer(value))
        return CN_EFORMAT;
    cbor_value_get_uint64(value, number);
    if (*number < min || *number > max || cbor_value_advance_fixed(value))
        return CN_EFORMAT;
    return CN_OK;
}

static cn_err get_u32(CborValue *value, uint64_t min, uint64_t max, uint32_t *to)
{
    uint64_t number;
    cn_err err = get_number(value, min, max < UINT32_MAX ? max : UINT32_MAX, &number);

    if (!err)
        *to = (uint32_t)number;
    return err;
}

static cn_err get_real(CborValue *value, const struct field *field, uint8_t *to)
{
    double real;

    if (!cbor_value_is_double(value))
        return CN_EFORMAT;
    cbor_value_get_double(value, &real);
    if (!isfinite(real) || real < field->low || real > field->high)
        return CN_EFORMAT;
    memcpy(to, &real, sizeof(real));
    return cbor_value_advance_fixed(value) ? CN_EFORMAT : CN_OK;
}

static cn_err get_bool(CborValue *value, uint8_t *to)
{
    bool flag;

    if (!cbor_value_is_boolean(value))
        return CN_EFORMAT;
    cbor_value_get_boolean(value, &flag);
    *(bool *)to = flag;
    return cbor_value_advance_fixed(value) ? CN_EFORMAT : CN_OK;
}

static cn_err get_bytes(CborValue *value, size_t size, uint8_t *to)
{
    size_t length;

    if (!cbor_value_is_byte_string(value) || cbor_value_get_string_length(value, &length) ||
        length != size)
        return CN_EFORMAT;
    return cbor_value_copy_byte_string(value, to, &length, value) ? CN_EFORMAT : CN_OK;
}

static cn_err get_text(CborValue *value, const struct field *field, char *to)
{
    size_t length;

    if (!cbor_value_is_text_string(value) || cbor_value_get_string_length(value, &length) ||
        length >= field->max || cbor_value_copy_text_string(value, to, &length, value))
        return CN_EFORMAT;
    to[length] = 0;
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)to[i] < 0x20 || to[i] == 0x7f)
            return CN_EFORMAT;
    }
    if (field->kind == TEXT || (field->kind == NAME_OR_EMPTY && !length))
        return CN_OK;
    return cn_name_valid(to) ? CN_OK : CN_EFORMAT;
}

// An array of at most max numbers; *count is how many there are.
static cn_err get_numbers(CborValue *value, size_t max, uint32_t *numbers, size_t *count)
{
    CborValue item;
    cn_err err = CN_OK;

    if (!cbor_value_is_array(value) || cbor_value_get_array_length(value, count) || *count > max ||
        cbor_value_enter_container(value, &item))
        return CN_EFORMAT;
    for (size_t i = 0; !err && i < *count; i++)
        err = get_u32(&item, 0, UINT32_MAX, &numbers[i]);
    if (err || !cbor_value_at_end(&item) || cbor_value_leave_container(value, &item))
        return CN_EFORMAT;
    return CN_OK;
}

static cn_err get_pair(CborValue *value, struct cn_version_range *range)
{
    uint32_t numbers[2];
    size_t count;

    if (get_numbers(value, 2, numbers, &count) || count != 2 || !numbers[0] ||
        numbers[0] > numbers[1])
        return CN_EFORMAT;
    *range = (struct cn_version_range){numbers[0], numbers[1]};
    return CN_OK;
}

// Ranges are not empty; unless any order is allowed they ascend and do not touch.
static cn_err get_ranges(CborValue *value, const struct field *field, uint8_t *object)
{
    struct cn_chunk_range *ranges = (struct cn_chunk_range *)(void *)(object + field->offset);
    uint32_t numbers[2 * CN_RANGE_MAX];
    uint64_t end = 0;
    uint32_t pairs;
    size_t count;

    if (get_numbers(value, 2 * field->max, numbers, &count) || count % 2)
        return CN_EFORMAT;
    pairs = (uint32_t)(count / 2);
    for (size_t i = 0; i < pairs; i++) {
        ranges[i] = (struct cn_chunk_range){numbers[2 * i], numbers[2 * i + 1]};
        if (!ranges[i].count || (field->min != ANY_ORDER && i && ranges[i].first <= end))
            return CN_EFORMAT;
        end = (uint64_t)ranges[i].first + ranges[i].count;
        if (end > UINT32_MAX)
            return CN_EFORMAT;
    }
    memcpy(object + field->count_offset, &pairs, sizeof(pairs));
    return CN_OK;
}

static cn_err get_field(CborValue *value, const struct field *field, uint8_t *object)
{
    uint8_t *to = object + field->offset;
    uint64_t number;
    uint32_t small;
    cn_err err;

    switch (field->kind) {
    case U32:
        err = get_u32(value, field->min, field->max, &small);
        if (!err)
            memcpy(to, &small, sizeof(small));
        return err;
    case U64:
        err = get_number(value, field->min, field->max, &number);
        if (!err)
            memcpy(to, &number, sizeof(number));
        return err;
    case BOOL:
        return get_bool(value, to);
    case F64:
        return get_real(value, field, to);
    case NAME:
    case NAME_OR_EMPTY:
    case TEXT:
        return get_text(value, field, (char *)to);
    case BYTES:
        return get_bytes(value, field->max, to);
    case PAIR:
        return get_pair(value, (struct cn_version_range *)(void *)to);
    case MAP:
        return get_map(value, field->schema, to);
    case RANGES:
        return get_ranges(value, field, object);
    }
    return CN_EFORMAT;
}

// Keys ascend, so none can come twice. Keys that are not in the schema are newer: they are skipped.
static cn_err get_map(CborValue *value, const struct schema *schema, uint8_t *object)
{
    CborValue item;
    uint64_t previous = 0;
    size_t next = 0;
    cn_err err;

    if (!cbor_value_is_map(value) || !cbor_value_is_length_known(value) ||
        cbor_value_enter_container(value, &item))
        return CN_EFORMAT;
    while (!cbor_value_at_end(&item)) {
        uint64_t key;

        if (get_number(&item, previous + 1, UINT32_MAX, &key))
            return CN_EFORMAT;
        previous = key;
        if (next < schema->count && schema->fields[next].key < key)
            return CN_EFORMAT; // a field is missing
        if (next < schema->count && schema->fields[next].key == key)
            err = get_field(&item, &schema->fields[next++], object);
        else
            err = cbor_value_advance(&item) ? CN_EFORMAT : CN_OK;
        if (err)
            return CN_EFORMAT;
    }
    if (next != schema->count || cbor_value_leave_container(value, &item))
        return CN_EFORMAT;
    return CN_OK;
}

static cn_err get(const struct schema *schema, const uint8_t *bytes, size_t size, void *object,
                  size_t object_size)
{
    CborParser parser;
    CborValue value;
    cn_err err;

    memset(object, 0, object_size);
    if (size > CN_MESSAGE_MAX || cbor_parser_init(bytes, size, 0, &parser, &value))
        return CN_EFORMAT;
    err = get_map(&value, schema, object);
    if (!err && cbor_value_get_next_byte(&value) != bytes + size)
        err = CN_EFORMAT;
    if (err)
        memset(object, 0, object_size);
    return err;
}

// ---- the messages

cn_err cn_message_put_register(const struct cn_register_request *message, uint8_t *bytes,
                               size_t *size)
{
    return put(&register_schema, message, bytes, size);
}

cn_err cn_message_get_register(const uint8_t *bytes, size_t size,
                               struct cn_register_request *message)
{
    return get(&register_schema, bytes, size, message, sizeof(*message));
}

cn_err cn_message_put_manifest(const struct cn_register_reply *message, uint8_t *bytes,
                               size_t *size)
{
    return put(&manifest_schema, message, bytes, size);
}

cn_err cn_message_get_manifest(const uint8_t *bytes, size_t size, struct cn_register_reply *message)
{
    return get(&manifest_schema, bytes, size, message, sizeof(*message));
}

cn_err cn_message_put_round(const struct cn_round_info *message, uint8_t *bytes, size_t *size)
{
    return put(&round_schema, message, bytes, size);
}

cn_err cn_message_get_round(const uint8_t *bytes, size_t size, struct cn_round_info *message)
{
    return get(&round_schema, bytes, size, message, sizeof(*message));
}

cn_err cn_message_put_declare(const struct cn_declare_request *message, uint8_t *bytes,
                              size_t *size)
{
    return put(&declare_schema, message, bytes, size);
}

cn_err cn_message_get_declare(const uint8_t *bytes, size_t size, struct cn_declare_request *message)
{
    return get(&declare_schema, bytes, size, message, sizeof(*message));
}

cn_err cn_message_put_status(const struct cn_upload_status *message, uint8_t *bytes, size_t *size)
{
    if (message->missing_count > CN_RANGE_MAX || message->recent_count > CN_RECENT_MAX)
        return CN_ERANGE;
    return put(&status_schema, message, bytes, size);
}

static bool ranges_fit(const struct cn_chunk_range *ranges, uint32_t count, uint32_t end)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ranges[i].first + ranges[i].count > end)
            return false;
    }
    return true;
}

cn_err cn_message_get_status(const uint8_t *bytes, size_t size, struct cn_upload_status *message)
{
    cn_err err = get(&status_schema, bytes, size, message, sizeof(*message));

    if (!err && (message->known > message->chunk_count ||
                 !ranges_fit(message->missing, message->missing_count, message->chunk_count) ||
                 !ranges_fit(message->recent, message->recent_count, message->chunk_count))) {
        memset(message, 0, sizeof(*message));
        err = CN_EFORMAT;
    }
    return err;
}
