#include "runtime/round/node/alone_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUES_FILE "values"
#define VALUES_MAX (64u << 10)
#define SHOWN 100 // characters of a value that are shown

void cn_alone_values_deinit(struct cn_alone_values *values)
{
    free(values->text);
    values->text = NULL;
}

cn_err cn_alone_values_describe(const struct cn_settings *settings, bool sequential,
                                const uint8_t graph[CN_DIGEST_SIZE],
                                const uint8_t weights[CN_DIGEST_SIZE],
                                struct cn_alone_values *values)
{
    char digest[2 * CN_DIGEST_SIZE + 1];
    size_t size;
    FILE *stream;

    values->text = NULL;
    stream = open_memstream(&values->text, &size);
    if (!stream)
        return CN_ENOMEM;
    cn_profile_print_results(settings, stream);
    fprintf(stream, "--order: %s\n", sequential ? "sequential" : "shuffled");
    cn_hex(digest, graph, CN_DIGEST_SIZE);
    fprintf(stream, "the model's graph: %.16s\n", digest);
    cn_hex(digest, weights, CN_DIGEST_SIZE);
    fprintf(stream, "the model's weights: %.16s\n", digest);
    return fclose(stream) ? CN_ENOMEM : CN_OK;
}

// Returns the value of a line and its length, or NULL when there is no such line.
static const char *find(const char *text, const char *name, size_t name_length, size_t *length)
{
    while (text && *text) {
        const char *end = strchrnul(text, '\n');

        if ((size_t)(end - text) >= name_length + 2 && memcmp(text, name, name_length) == 0 &&
            memcmp(text + name_length, ": ", 2) == 0) {
            *length = (size_t)(end - text) - name_length - 2;
            return text + name_length + 2;
        }
        text = *end ? end + 1 : end;
    }
    return NULL;
}

bool cn_alone_values_get(const struct cn_alone_values *values, const char *name, char *value,
                         size_t size)
{
    size_t length;
    const char *found = find(values->text, name, strlen(name), &length);

    if (!found || length >= size)
        return false;
    memcpy(value, found, length);
    value[length] = '\0';
    return true;
}

cn_err cn_alone_values_set(struct cn_alone_values *values, const char *name, const char *value)
{
    size_t length, size;
    const char *found = find(values->text, name, strlen(name), &length);
    char *text = NULL;
    FILE *stream = open_memstream(&text, &size);

    if (!stream)
        return CN_ENOMEM;
    if (found)
        fprintf(stream, "%.*s%s%s", (int)(found - values->text), values->text, value,
                found + length);
    else
        fprintf(stream, "%s%s: %s\n", values->text ? values->text : "", name, value);
    if (fclose(stream)) {
        free(text);
        return CN_ENOMEM;
    }
    free(values->text);
    values->text = text;
    return CN_OK;
}

void cn_alone_values_load(struct cn_store *store, struct cn_alone_values *values)
{
    uint8_t *bytes = NULL;
    size_t size = 0;

    values->text = NULL;
    if (store->ops->load(store, VALUES_FILE, VALUES_MAX, &bytes, &size))
        return;
    values->text = strndup((const char *)bytes, size);
    free(bytes);
}

cn_err cn_alone_values_save(struct cn_store *store, const struct cn_alone_values *stored,
                            const struct cn_alone_values *values)
{
    if (stored->text && strcmp(stored->text, values->text) == 0)
        return CN_OK;
    return cn_store_replace(store, VALUES_FILE, values->text, strlen(values->text));
}

size_t cn_alone_values_compare(const struct cn_alone_values *stored,
                               const struct cn_alone_values *values, struct cn_diag *diag)
{
    size_t count = 0;

    for (const char *line = values->text, *end; line && *line; line = *end ? end + 1 : end) {
        const char *colon = strstr(line, ": "), *value, *before;
        size_t length, before_length;

        end = strchrnul(line, '\n');
        if (!colon || colon > end)
            continue;
        value = colon + 2;
        length = (size_t)(end - value);
        before = find(stored->text, line, (size_t)(colon - line), &before_length);
        if (!before || (before_length == length && memcmp(before, value, length) == 0))
            continue;
        cn_diag_add(diag, "%.*s was %.*s, is %.*s", (int)(colon - line), line,
                    (int)(before_length < SHOWN ? before_length : SHOWN), before,
                    (int)(length < SHOWN ? length : SHOWN), value);
        count++;
    }
    return count;
}
