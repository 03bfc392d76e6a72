#include "aggregator/show/json_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/roster/fault.h"
#include "runtime/base/utf8.h"

#define REPLACEMENT 0xfffdu // stands for bytes that are no valid UTF-8
#define HEX_MAX (2 * CN_DIGEST_SIZE + 1)

void cn_json_text_init(struct cn_json_text *json, struct cn_buffer *out)
{
    *json = (struct cn_json_text){.out = out};
}

static void append(struct cn_json_text *json, const void *data, size_t size)
{
    if (!json->err)
        json->err = cn_buffer_append(json->out, data, size);
}

static void append_text(struct cn_json_text *json, const char *text)
{
    append(json, text, strlen(text));
}

// Characters that JSON, HTML or JavaScript do not take as they are.
static bool needs_escape(uint32_t point)
{
    return point < ' ' || point == 0x7f || point == 0x2028 || point == 0x2029 ||
           (point < 0x80 && strchr("\"\\<>&", (int)point));
}

static void append_string(struct cn_json_text *json, const char *text)
{
    const char *plain = text; // start of the characters that are not appended yet
    char escape[8];
    append(json, "\"", 1);
    while (*text && !json->err) {
        uint32_t point = 0;
        size_t size = cn_utf8_read(text, &point);
        bool escaped = !size || needs_escape(point);
        if (escaped)
            append(json, plain, (size_t)(text - plain));
        text += size ? size : 1;
        if (!escaped)
            continue;
        plain = text;
        snprintf(escape, sizeof(escape), "\\u%04x", size ? point : REPLACEMENT);
        append_text(json, escape);
    }
    append(json, plain, (size_t)(text - plain));
    append(json, "\"", 1);
}

// Writes the comma and the key before a value.
static void begin_value(struct cn_json_text *json, const char *key)
{
    if (json->comma)
        append(json, ",", 1);
    if (key) {
        append(json, "\"", 1);
        append_text(json, key);
        append(json, "\":", 2);
    }
    json->comma = true;
}

void cn_json_open(struct cn_json_text *json, const char *key, char bracket)
{
    begin_value(json, key);
    append(json, &bracket, 1);
    json->comma = false;
}

void cn_json_close(struct cn_json_text *json, char bracket)
{
    append(json, &bracket, 1);
    json->comma = true;
}

void cn_json_string(struct cn_json_text *json, const char *key, const char *text)
{
    begin_value(json, key);
    append_string(json, text);
}

void cn_json_foreign(struct cn_json_text *json, const char *key, const char *text)
{
    char cleaned[CN_FAULT_SIZE];
    cn_fault_clean(cleaned, text);
    cn_json_string(json, key, cleaned);
}

void cn_json_hex(struct cn_json_text *json, const char *key, const uint8_t *bytes, size_t size)
{
    char text[HEX_MAX];
    cn_hex(text, bytes, size < CN_DIGEST_SIZE ? size : CN_DIGEST_SIZE);
    cn_json_string(json, key, text);
}

void cn_json_real(struct cn_json_text *json, const char *key, double value)
{
    char text[32];
    if (!isfinite(value)) {
        cn_json_raw(json, key, "null", 4);
        return;
    }
    snprintf(text, sizeof(text), "%.6g", value);
    cn_json_raw(json, key, text, strlen(text));
}

void cn_json_count(struct cn_json_text *json, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    cn_json_raw(json, key, text, strlen(text));
}

void cn_json_bool(struct cn_json_text *json, const char *key, bool value)
{
    cn_json_raw(json, key, value ? "true" : "false", value ? 4 : 5);
}

void cn_json_raw(struct cn_json_text *json, const char *key, const void *text, size_t size)
{
    begin_value(json, key);
    append(json, text, size);
}
