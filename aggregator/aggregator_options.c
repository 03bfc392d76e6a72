#include "aggregator/aggregator_options.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"

static const struct cn_option *find_option(const struct cn_arguments *arguments, const char *word)
{
    for (size_t i = 0; i < arguments->option_count; i++) {
        const struct cn_option *option = &arguments->options[i];
        if (strcmp(option->name, word) == 0 ||
            (option->short_name && strcmp(option->short_name, word) == 0))
            return option;
    }
    return NULL;
}

static enum cn_parse_result complain(const char *command, const char *what, const char *word)
{
    fprintf(stderr, "cairn-aggregator %s: %s%s%s; see --help\n", command, what, *word ? " " : "",
            word);
    return CN_PARSE_WRONG;
}

static bool set_log_level(const char *word)
{
    enum cn_log_level level;
    if (cn_log_parse_level(word, &level) != CN_OK)
        return false;
    cn_log_set_level(level);
    return true;
}

// Takes the option at argv[*at] and its value.
static enum cn_parse_result take_option(const struct cn_arguments *arguments, int argc, char **argv,
                                        int *at)
{
    const char *level = NULL, *word = argv[*at];
    const struct cn_option log_level = {"--log-level", NULL, &level, NULL};
    const struct cn_option *option = find_option(arguments, word);
    if (!option && strcmp(word, log_level.name) == 0)
        option = &log_level;
    if (!option)
        return complain(argv[0], "unknown option", word);
    if (option->flag) {
        *option->flag = true;
        return CN_PARSE_OK;
    }
    if (++*at >= argc)
        return complain(argv[0], "a value is missing after", word);
    *option->value = argv[*at];
    if (level && !set_log_level(level))
        return complain(argv[0], "--log-level is error, warn, info or debug, not", level);
    return CN_PARSE_OK;
}

enum cn_parse_result cn_aggregator_options_parse(const struct cn_arguments *arguments, int argc,
                                                 char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(arguments->usage, stdout);
            return CN_PARSE_HELP;
        }
        if (argv[i][0] != '-') {
            if (count == arguments->positional_max)
                return complain(argv[0], "one argument too many:", argv[i]);
            arguments->positional[count++] = argv[i];
            continue;
        }
        enum cn_parse_result result = take_option(arguments, argc, argv, &i);
        if (result != CN_PARSE_OK)
            return result;
    }
    if (count < arguments->positional_min)
        return complain(argv[0], "an argument is missing", "");
    return CN_PARSE_OK;
}
