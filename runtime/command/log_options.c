#include "runtime/command/log_options.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"

// Takes one item, "LEVEL" or "AREA=LEVEL".
static bool set_level(char *item)
{
    char *equals = strchr(item, '=');
    const char *text = equals ? equals + 1 : item;
    enum cn_log_level level;

    if (cn_log_parse_level(text, &level)) {
        fprintf(stderr, "error: --log-level '%s' is not error, warn, info or debug\n", text);
        return false;
    }
    if (!equals) {
        cn_log_set_level(level);
        return true;
    }
    *equals = '\0';
    if (cn_log_set_area_level(item, level) == CN_OK)
        return true;
    fprintf(stderr, "error: --log-level '%s=%s': wanted the name of an area, at most %d of them\n",
            item, text, CN_LOG_AREAS);
    return false;
}

// Takes a list such as "warn,run=debug".
static bool set_levels(const char *list)
{
    char item[64];

    do {
        size_t length = strcspn(list, ",");

        if (length >= sizeof(item)) {
            fprintf(stderr, "error: --log-level '%s' is too long\n", list);
            return false;
        }
        memcpy(item, list, length);
        item[length] = '\0';
        if (!set_level(item))
            return false;
        list += length;
    } while (*list++);
    return true;
}

static bool set_format(const char *text)
{
    static const char *const names[] = {
        [CN_LOG_TEXT] = "text", [CN_LOG_JOURNAL] = "journal", [CN_LOG_JSON] = "json"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            cn_log_set_format((enum cn_log_format)i);
            return true;
        }
    }
    fprintf(stderr, "error: --log-format '%s' is not text, json or journal\n", text);
    return false;
}

// Returns the value of option if that option stands at argv[*i], else NULL. A missing value is "".
// Moves *i to the argument with the value.
static const char *value_of(const char *option, int argc, char **argv, int *i)
{
    size_t length = strlen(option);

    if (!argv[*i] || strncmp(argv[*i], option, length) != 0)
        return NULL;
    if (argv[*i][length] == '=')
        return argv[*i] + length + 1;
    if (argv[*i][length])
        return NULL;
    return *i + 1 < argc ? argv[++*i] : "";
}

int cn_log_options_take(int *argc, char **argv)
{
    int kept = 1;

    cn_log_set_format(cn_log_find_format());
    for (int i = 1; i < *argc; i++) {
        char *argument = argv[i];
        const char *level = value_of("--log-level", *argc, argv, &i);
        const char *format = level ? NULL : value_of("--log-format", *argc, argv, &i);

        if ((level && !set_levels(level)) || (format && !set_format(format)))
            return -1;
        if (!level && !format)
            argv[kept++] = argument;
    }
    argv[kept] = NULL;
    *argc = kept;
    return 0;
}
