// json_text.h - writes JSON into a growing buffer with a limit.
//
// Each function takes the key of a member, a plain word, or NULL for an element of an array. The
// first error stays in err, and later calls then do nothing, so one check at the end is enough. The
// text is ASCII apart from characters of valid UTF-8; "<", ">" and "&" are written as \u escapes.
// So the text can stand inside <script> of an HTML page. Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/bytes.h"

struct cn_json_text {
    struct cn_buffer *out; // borrowed
    cn_err err;            // CN_ERANGE: the buffer's limit is reached; CN_ENOMEM
    bool comma;            // whether the next value needs a comma before it
};

void cn_json_text_init(struct cn_json_text *json, struct cn_buffer *out);

// Begin and end an object or an array: bracket is '{' or '[', and '}' or ']'.
void cn_json_open(struct cn_json_text *json, const char *key, char bracket);
void cn_json_close(struct cn_json_text *json, char bracket);

// Writes a text. Bytes that are no valid UTF-8 become U+FFFD.
void cn_json_string(struct cn_json_text *json, const char *key, const char *text);
// As cn_json_string, for a text that came from a board: cleaned and cut as fault.h says.
void cn_json_foreign(struct cn_json_text *json, const char *key, const char *text);
// Writes size bytes as hexadecimal digits; at most CN_DIGEST_SIZE bytes.
void cn_json_hex(struct cn_json_text *json, const char *key, const uint8_t *bytes, size_t size);
// Writes a number with six significant digits. A number that is not finite becomes null.
void cn_json_real(struct cn_json_text *json, const char *key, double value);
void cn_json_count(struct cn_json_text *json, const char *key, uint64_t value);
void cn_json_bool(struct cn_json_text *json, const char *key, bool value);
// Writes a value that is already JSON.
void cn_json_raw(struct cn_json_text *json, const char *key, const void *text, size_t size);
