#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tinycbor/cbor.h>

#include "transport/message/message_private.h"

static uint32_t load_u32(const void *from)
{
    uint32_t value;

    memcpy(&value, from, sizeof(value));
    return value;
}

// --- encoding ---

static CborError put_map(CborEncoder *encoder, const struct cn_message_schema *schema,
                         const uint8_t *object);

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

static CborError put_field(CborEncoder *encoder, const struct cn_message_field *field,
                           const uint8_t *object)
{
    const uint8_t *from = object + field->offset;
    uint64_t number;
    double real;

    switch (field->kind) {
    case U32:
        return cbor_encode_uint(encoder, load_u32(from));
    case U64:
    case U64_OR_ZERO:
        memcpy(&number, from, sizeof(number));
        return cbor_encode_uint(encoder, number);
    case BOOL:
        return cbor_encode_boolean(encoder, *(const bool *)from);
    case F64: // always 64 bits, a rule of this protocol (RFC 8949, 4.2.2)
        memcpy(&real, from, sizeof(real));
        return cbor_encode_double(encoder, real);
    case NAME:
    case NAME_OR_EMPTY:
    case TEXT:
    case TEXT_OR_NONE:
        return put_text(encoder, (const char *)from, field->max);
    case BYTES:
        return cbor_encode_byte_string(encoder, from, field->max);
    case PAIR:
        return put_numbers(encoder, (const uint32_t *)(const void *)from, 2);
    case MAP:
    case RULES:
        return put_map(encoder, field->schema, from);
    case RANGES:
    case SIGNS:
        return put_numbers(encoder, (const uint32_t *)(const void *)from,
                           (size_t)2 * load_u32(object + field->count_offset));
    }
    return CborErrorInternalError;
}

// Compares the fields that would be written, so that padding and unused bytes of a struct do not
// count.
bool cn_message_is_plain(const struct cn_message_schema *schema, const void *object)
{
    static const union {
        struct cn_rules rules;
        struct cn_parallel parallel;
        struct cn_pipeline_settings pipeline;
        struct cn_delta_chain chain;
        struct cn_round_control control;
    } none;
    uint8_t bytes[2][CN_MESSAGE_MAX];
    CborEncoder encoder[2];

    for (int i = 0; i < 2; i++) {
        const uint8_t *from = i ? (const void *)&none : object;

        cbor_encoder_init(&encoder[i], bytes[i], CN_MESSAGE_MAX, 0);
        if (put_map(&encoder[i], schema, from))
            return false; // too long for any message; put_map reports it
    }
    return cbor_encoder_get_buffer_size(&encoder[0], bytes[0]) ==
               cbor_encoder_get_buffer_size(&encoder[1], bytes[1]) &&
           memcmp(bytes[0], bytes[1], cbor_encoder_get_buffer_size(&encoder[0], bytes[0])) == 0;
}

static bool is_optional(const struct cn_message_field *field)
{
    return field->kind == RULES || field->kind == U64_OR_ZERO || field->kind == SIGNS ||
           field->kind == TEXT_OR_NONE;
}

static bool is_left_out(const struct cn_message_field *field, const uint8_t *object)
{
    static const uint8_t zero[sizeof(uint64_t)];

    if (field->kind == U64_OR_ZERO)
        return memcmp(object + field->offset, zero, sizeof(zero)) == 0;
    if (field->kind == SIGNS)
        return load_u32(object + field->count_offset) == 0;
    if (field->kind == TEXT_OR_NONE)
        return object[field->offset] == 0;
    return field->kind == RULES && cn_message_is_plain(field->schema, object + field->offset);
}

static CborError put_map(CborEncoder *encoder, const struct cn_message_schema *schema,
                         const uint8_t *object)
{
    CborEncoder map;
    size_t count = schema->count;
    CborError error;

    for (size_t i = 0; i < schema->count; i++)
        count -= is_left_out(&schema->fields[i], object);
    error = cbor_encoder_create_map(encoder, &map, count);
    for (size_t i = 0; !error && i < schema->count; i++) {
        if (is_left_out(&schema->fields[i], object))
            continue;
        error = cbor_encode_uint(&map, schema->fields[i].key);
        if (!error)
            error = put_field(&map, &schema->fields[i], object);
    }
    return error ? error : cbor_encoder_close_container(encoder, &map);
}

cn_err cn_message_put(const struct cn_message_schema *schema, const void *object, uint8_t *bytes,
                      size_t *size)
{
    CborEncoder encoder;

    cbor_encoder_init(&encoder, bytes, CN_MESSAGE_MAX, 0);
    if (put_map(&encoder, schema, object))
        return CN_ERANGE;
    *size = cbor_encoder_get_buffer_size(&encoder, bytes);
    return CN_OK;
}

// --- decoding ---

static cn_err get_map(CborValue *value, const struct cn_message_schema *schema, uint8_t *object);

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

static cn_err get_real(CborValue *value, const struct cn_message_field *field, uint8_t *to)
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

static cn_err get_text(CborValue *value, const struct cn_message_field *field, char *to)
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
    if (field->kind == TEXT || field->kind == TEXT_OR_NONE ||
        (field->kind == NAME_OR_EMPTY && !length))
        return CN_OK;
    return cn_name_valid(to) ? CN_OK : CN_EFORMAT;
}

// Reads an array of at most max numbers. Sets *count to their number.
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

// Reads ranges. They must not be empty. Unless any order is allowed, they must ascend and not
// touch.
static cn_err get_ranges(CborValue *value, const struct cn_message_field *field, uint8_t *object)
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
        if (!ranges[i].count || (field->min != CN_MESSAGE_ANY_ORDER && i && ranges[i].first <= end))
            return CN_EFORMAT;
        end = (uint64_t)ranges[i].first + ranges[i].count;
        if (end > UINT32_MAX)
            return CN_EFORMAT;
    }
    memcpy(object + field->count_offset, &pairs, sizeof(pairs));
    return CN_OK;
}

static cn_err get_signs(CborValue *value, const struct cn_message_field *field, uint8_t *object)
{
    uint32_t numbers[2 * CN_GROUP_MAX];
    uint32_t pairs;
    size_t count;

    if (get_numbers(value, 2 * field->max, numbers, &count) || count % 2)
        return CN_EFORMAT;
    pairs = (uint32_t)(count / 2);
    memcpy(object + field->offset, numbers, count * sizeof(numbers[0]));
    memcpy(object + field->count_offset, &pairs, sizeof(pairs));
    return CN_OK;
}

static cn_err get_field(CborValue *value, const struct cn_message_field *field, uint8_t *object)
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
    case U64_OR_ZERO:
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
    case TEXT_OR_NONE:
        return get_text(value, field, (char *)to);
    case BYTES:
        return get_bytes(value, field->max, to);
    case PAIR:
        return get_pair(value, (struct cn_version_range *)(void *)to);
    case MAP:
    case RULES:
        return get_map(value, field->schema, to);
    case RANGES:
        return get_ranges(value, field, object);
    case SIGNS:
        return get_signs(value, field, object);
    }
    return CN_EFORMAT;
}

// Reads a map. Keys must ascend, so none can occur twice. Keys that are not in the schema are
// skipped, because newer versions may add some.
static cn_err get_map(CborValue *value, const struct cn_message_schema *schema, uint8_t *object)
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
        while (next < schema->count && schema->fields[next].key < key &&
               is_optional(&schema->fields[next]))
            next++;
        if (next < schema->count && schema->fields[next].key < key)
            return CN_EFORMAT; // a required field is missing
        if (next < schema->count && schema->fields[next].key == key)
            err = get_field(&item, &schema->fields[next++], object);
        else
            err = cbor_value_advance(&item) ? CN_EFORMAT : CN_OK;
        if (err)
            return CN_EFORMAT;
    }
    while (next < schema->count && is_optional(&schema->fields[next]))
        next++;
    if (next != schema->count || cbor_value_leave_container(value, &item))
        return CN_EFORMAT;
    return CN_OK;
}

cn_err cn_message_get(const struct cn_message_schema *schema, const uint8_t *bytes, size_t size,
                      void *object, size_t object_size)
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
