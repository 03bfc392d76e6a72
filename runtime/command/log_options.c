#include "runtime/command/log_options.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"

static bool set_level(const char *text)
{
    enum cn_log_level level;

    if (cn_log_parse_level(text, &level)) {
        fprintf(stderr, "error: --log-level '%s' is not error, warn, info or debug\n", text);
        return false;
    }
    cn_log_set_level(level);
    return true;
}

static bool set_format(const char *text)
{
    bool json = strcmp(text, "json") == 0;

    if (!json && strcmp(text, "text") != 0) {
        fprintf(stderr, "error: --log-format '%s' is not text or json\n", text);
        return false;
    }
    cn_log_set_format(json ? CN_LOG_JSON : CN_LOG_TEXT);
    return true;
}

// Returns the value of option where it stands at argv[*i], or NULL. Moves *i over the value.
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

        if ((level && !set_level(level)) || (format && !set_format(format)))
            return -1;
        if (!level && !format)
            argv[kept++] = argument;
    }
    argv[kept] = NULL;
    *argc = kept;
    return 0;
}
