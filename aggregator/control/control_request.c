#include "aggregator/control/control_request.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/utf8.h"

#define NUMBER_MOST 999999999999999.0 // cJSON writes 15 digits of a number

enum kind { KIND_TEXT, KIND_NAME, KIND_BOOL, KIND_NUMBER, KIND_SECRET };

static const struct member {
    const char *name;
    enum cn_control_member bit;
    enum kind kind;
    size_t place; // in the request
} members[] = {
    {"state", CN_CONTROL_STATE, KIND_TEXT, offsetof(struct cn_control_request, state)},
    {"board", CN_CONTROL_BOARD, KIND_NAME, offsetof(struct cn_control_request, board)},
    {"group", CN_CONTROL_GROUP, KIND_NAME, offsetof(struct cn_control_request, group)},
    {"now", CN_CONTROL_NOW, KIND_BOOL, offsetof(struct cn_control_request, now)},
    {"yes", CN_CONTROL_YES, KIND_BOOL, offsetof(struct cn_control_request, yes)},
    {"duration_ms", CN_CONTROL_DURATION, KIND_NUMBER,
     offsetof(struct cn_control_request, duration_ms)},
    {"key", CN_CONTROL_KEY, KIND_SECRET, offsetof(struct cn_control_request, key)},
    {"max_weight", CN_CONTROL_MAX_WEIGHT, KIND_NUMBER,
     offsetof(struct cn_control_request, max_weight)},
    {"lines", CN_CONTROL_LINES, KIND_NUMBER, offsetof(struct cn_control_request, lines)},
    {"job", CN_CONTROL_JOB, KIND_NAME, offsetof(struct cn_control_request, job)},
};

#define MEMBERS (sizeof(members) / sizeof(members[0]))

static const struct member *find_member(const char *name)
{
    for (size_t i = 0; i < MEMBERS; i++)
        if (strcmp(members[i].name, name) == 0)
            return &members[i];
    return NULL;
}

static bool is_id(const char *text)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                 "._-");
    return length > 0 && length < CN_STEERING_ID_SIZE && text[length] == '\0';
}

static bool is_command(const char *text)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz-");
    return length > 0 && length < CN_CONTROL_COMMAND_SIZE && text[length] == '\0';
}

// Returns whether a member's name can be shown as it is.
static bool is_plain(const char *text)
{
    return text[0] && text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-")] == '\0';
}

// A path of printable characters.
static bool is_text(const char *text)
{
    uint32_t point;
    if (strlen(text) >= CN_PATH_SIZE)
        return false;
    while (*text) {
        size_t size = cn_utf8_read(text, &point);
        if (size == 0 || point < 0x20 || point == 0x7f)
            return false;
        text += size;
    }
    return true;
}

// Stores the value of a member. Returns what is wanted instead of a wrong value, otherwise NULL.
static const char *take_value(const struct member *member, const cJSON *item,
                              struct cn_control_request *request)
{
    void *place = (char *)request + member->place;
    const char *text = cJSON_GetStringValue(item);
    double number = cJSON_IsNumber(item) ? item->valuedouble : -1;
    switch (member->kind) {
    case KIND_TEXT:
        if (!text || !is_text(text))
            return "a path of printable characters";
        memcpy(place, text, strlen(text) + 1);
        return NULL;
    case KIND_NAME:
        if (!text || !cn_name_valid(text))
            return "a name: 1 to 63 of a-z 0-9 . _ -";
        memcpy(place, text, strlen(text) + 1);
        return NULL;
    case KIND_BOOL:
        *(bool *)place = cJSON_IsTrue(item);
        return cJSON_IsBool(item) ? NULL : "true or false";
    case KIND_NUMBER:
        if (!(number >= 0 && number <= NUMBER_MOST) || number > (double)(uint64_t)number)
            return "a whole number, at least 0";
        *(uint64_t *)place = (uint64_t)number;
        return NULL;
    default:
        return text && cn_hex_parse(text, place, CN_KEY_SIZE) == CN_OK ? NULL
                                                                       : "64 hexadecimal digits";
    }
}

// Takes a member. Returns false with a sentence in reason.
static bool take_member(const cJSON *item, struct cn_control_request *request,
                        char reason[CN_CONTROL_REASON])
{
    const char *text = cJSON_GetStringValue(item), *wanted;
    const struct member *member = find_member(item->string);
    if (strcmp(item->string, "id") == 0) {
        if (!text || !is_id(text) || request->id[0]) {
            snprintf(reason, CN_CONTROL_REASON, "id: expected 1 to 64 letters, digits or . _ -");
            return false;
        }
        memcpy(request->id, text, strlen(text) + 1);
        return true;
    }
    if (strcmp(item->string, "command") == 0) {
        if (!text || !is_command(text) || request->command[0]) {
            snprintf(reason, CN_CONTROL_REASON, "command: expected the name of a command");
            return false;
        }
        memcpy(request->command, text, strlen(text) + 1);
        return true;
    }
    if (!member || request->members & member->bit) {
        snprintf(reason, CN_CONTROL_REASON, "%.40s: %s",
                 is_plain(item->string) ? item->string : "a member",
                 member ? "is there twice" : "no request has this member");
        return false;
    }
    wanted = take_value(member, item, request);
    if (wanted)
        snprintf(reason, CN_CONTROL_REASON, "%s: expected %s", member->name, wanted);
    request->members |= member->bit;
    return !wanted;
}

// Returns whether a text of the line holds the character 0, at which it would end here.
static bool holds_zero(const char *line, size_t size)
{
    for (size_t i = 0; i + 1 < size; i++) {
        if (line[i] != '\\')
            continue;
        if (size - i >= 6 && memcmp(line + i + 1, "u0000", 5) == 0)
            return true;
        i++; // the character that is escaped
    }
    return false;
}

static bool take_all(const cJSON *root, struct cn_control_request *request,
                     char reason[CN_CONTROL_REASON])
{
    const cJSON *item;
    bool fine = true;
    cJSON_ArrayForEach(item, root)
    {
        // The first mistake is told; the id is still looked for, so that the answer can have it.
        if (fine)
            fine = take_member(item, request, reason);
        else if (strcmp(item->string, "id") == 0 && !request->id[0] && cJSON_IsString(item) &&
                 is_id(item->valuestring))
            memcpy(request->id, item->valuestring, strlen(item->valuestring) + 1);
    }
    if (fine && (!request->id[0] || !request->command[0])) {
        snprintf(reason, CN_CONTROL_REASON, "the request has no %s",
                 request->id[0] ? "command" : "id");
        return false;
    }
    return fine;
}

cn_err cn_control_request_parse(const char *line, size_t size, struct cn_control_request *request,
                                char reason[CN_CONTROL_REASON])
{
    const char *end = NULL;
    *request = (struct cn_control_request){0};
    reason[0] = '\0';
    cJSON *root =
        holds_zero(line, size) ? NULL : cJSON_ParseWithLengthOpts(line, size + 1, &end, true);
    bool fine = cJSON_IsObject(root) && end == line + size;
    if (fine)
        fine = take_all(root, request, reason);
    else
        snprintf(reason, CN_CONTROL_REASON, "the line is no JSON object, or holds \\u0000");
    cJSON_Delete(root);
    if (!fine)
        return CN_EFORMAT;
    cn_err err = cn_control_request_digest(request);
    if (err)
        snprintf(reason, CN_CONTROL_REASON, "%s", cn_err_text(err));
    return err;
}

// --- writing ---

static void add_member(cJSON *root, const struct member *member,
                       const struct cn_control_request *request)
{
    const void *place = (const char *)request + member->place;
    char hex[2 * CN_KEY_SIZE + 1];
    switch (member->kind) {
    case KIND_TEXT:
    case KIND_NAME:
        cJSON_AddStringToObject(root, member->name, place);
        break;
    case KIND_BOOL:
        cJSON_AddBoolToObject(root, member->name, *(const bool *)place);
        break;
    case KIND_NUMBER:
        cJSON_AddNumberToObject(root, member->name, (double)*(const uint64_t *)place);
        break;
    default:
        cn_hex(hex, place, CN_KEY_SIZE);
        cJSON_AddStringToObject(root, member->name, hex);
        cn_crypto_wipe(hex, sizeof(hex));
    }
}

enum head { HEAD_NONE, HEAD_COMMAND, HEAD_WHOLE };

static char *print(const struct cn_control_request *request, unsigned shown, enum head head)
{
    cJSON *root = cJSON_CreateObject();
    if (head == HEAD_WHOLE)
        cJSON_AddStringToObject(root, "id", request->id);
    if (head != HEAD_NONE)
        cJSON_AddStringToObject(root, "command", request->command);
    for (size_t i = 0; i < MEMBERS; i++)
        if (request->members & shown & members[i].bit)
            add_member(root, &members[i], request);
    char *text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return text;
}

char *cn_control_request_arguments(const struct cn_control_request *request)
{
    return print(request, ~(unsigned)(CN_CONTROL_KEY | CN_CONTROL_STATE), HEAD_NONE);
}

char *cn_control_request_print(const struct cn_control_request *request)
{
    return print(request, ~0u, HEAD_WHOLE);
}

cn_err cn_control_request_digest(struct cn_control_request *request)
{
    char *text = print(request, ~(unsigned)CN_CONTROL_STATE, HEAD_COMMAND);
    if (!text)
        return CN_ENOMEM;
    cn_crypto_digest(text, strlen(text), request->digest);
    cn_crypto_wipe(text, strlen(text));
    cJSON_free(text);
    return CN_OK;
}
