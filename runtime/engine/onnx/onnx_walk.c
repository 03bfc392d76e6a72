#include "runtime/engine/onnx/onnx_walk.h"

#include <stdlib.h>
#include <string.h>

// Most bytes of all tables of one model. A hostile file can ask for about 100 times its size.
#define TABLES_MAX (64u << 20)
#define BEGIN_SIZE 16 // a file that is wrong so early is something else

cn_err cn_onnx_walk_malformed(struct cn_onnx_decoder *decoder, const uint8_t *at, const char *kind,
                              const char *problem)
{
    cn_diag_add(decoder->diag, "byte %zu: %s: %s", (size_t)(at - decoder->onnx->file), kind,
                problem);
    return CN_EFORMAT;
}

static cn_err check_rule(struct cn_onnx_decoder *decoder, const struct cn_onnx_kind *kind,
                         const uint8_t *at, const struct cn_wire_field *field, uint32_t *seen)
{
    for (size_t i = 0; i < kind->rule_count; i++) {
        const struct cn_onnx_rule *rule = &kind->rules[i];

        if (rule->number != field->number)
            continue;
        if (!(rule->types >> field->type & 1))
            return cn_onnx_walk_malformed(decoder, at, kind->name,
                                          "a field has the wrong wire type");
        if (rule->once && *seen >> i & 1)
            return cn_onnx_walk_malformed(decoder, at, kind->name, "a field occurs twice");
        *seen |= 1u << i;
    }
    return CN_OK;
}

// Says what bytes are that begin no field.
static const char *describe(const struct cn_onnx_decoder *decoder, const uint8_t *at,
                            const struct cn_onnx_kind *kind)
{
    bool begins = strcmp(kind->name, "model") == 0 && at - decoder->onnx->file < BEGIN_SIZE;

    return begins ? "this is no ONNX file" : "the file is cut off or malformed here";
}

cn_err cn_onnx_walk(struct cn_onnx_decoder *decoder, struct cn_wire message,
                    const struct cn_onnx_kind *kind, void *object)
{
    struct cn_wire_field field;
    uint32_t seen = 0;

    for (;;) {
        const uint8_t *at = message.at;
        cn_err err = cn_wire_next(&message, &field);

        if (err)
            return cn_onnx_walk_malformed(decoder, at, kind->name, describe(decoder, at, kind));
        if (!field.number)
            return CN_OK;
        err = check_rule(decoder, kind, at, &field, &seen);
        if (!err)
            err = kind->take(decoder, &field, object);
        if (err)
            return err;
    }
}

cn_err cn_onnx_walk_table(struct cn_onnx_decoder *decoder, size_t count, size_t size, void *table)
{
    void *data = NULL;
    size_t bytes;

    if (cn_size_multiply(count, size, &bytes) || bytes > TABLES_MAX - decoder->tables) {
        cn_diag_add(decoder->diag, "the tables of the model need more than %u MiB",
                    TABLES_MAX >> 20);
        return CN_ERANGE;
    }
    decoder->tables += bytes;
    if (count) {
        data = calloc(count, size);
        if (!data)
            return CN_ENOMEM;
    }
    memcpy(table, &data, sizeof(data));
    return CN_OK;
}

struct cn_text cn_onnx_walk_text(const struct cn_wire_field *field)
{
    return (struct cn_text){(const char *)field->bytes.at, cn_wire_size(field->bytes)};
}

// UTF-8 as in RFC 3629, section 4, without control characters.
static bool printable(struct cn_text name)
{
    const uint8_t *at = (const uint8_t *)name.data;
    const uint8_t *end = at + name.size;

    while (at < end) {
        uint8_t lead = *at++;
        int more = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
        uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
        uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;

        if (lead < 0x20 || (lead >= 0x7f && lead < 0xc2) || lead > 0xf4 || end - at < more)
            return false;
        for (int i = 0; i < more; i++, at++) {
            if (*at < (i ? 0x80 : low) || *at > (i ? 0xbf : high))
                return false;
        }
    }
    return true;
}

cn_err cn_onnx_walk_name(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                         struct cn_text *name)
{
    *name = cn_onnx_walk_text(field);
    if (!printable(*name))
        return cn_onnx_walk_malformed(decoder, field->bytes.at, "name",
                                      "it is not printable UTF-8");
    return CN_OK;
}

int32_t cn_onnx_walk_int32(const struct cn_wire_field *field)
{
    return (int32_t)(uint32_t)field->value;
}

float cn_onnx_walk_float(const struct cn_wire_field *field)
{
    uint32_t bits = (uint32_t)field->value;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

cn_err cn_onnx_walk_packed(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                           size_t element_size)
{
    struct cn_wire rest = field->bytes;
    uint64_t value;

    if (field->type != CN_WIRE_BYTES)
        return CN_OK;
    if (element_size && cn_wire_size(rest) % element_size)
        return cn_onnx_walk_malformed(decoder, rest.at, "packed list",
                                      "its last number is cut off");
    while (!element_size && rest.at < rest.end) {
        if (cn_wire_varint(&rest, &value))
            return cn_onnx_walk_malformed(decoder, rest.at, "packed list", "a number is malformed");
    }
    return CN_OK;
}
