#include "runtime/command/misspelling.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/nearest.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyz0123456789-"

void cn_misspelling_command(const char *program, const struct cn_command *const *commands,
                            const char *name)
{
    struct cn_nearest search;

    cn_nearest_begin(&search, name);
    for (size_t i = 0; commands[i]; i++)
        cn_nearest_compare(&search, commands[i]->name, strlen(commands[i]->name));
    fprintf(stderr, "error: '%s' is not a command%s%s%s '%s --help' lists them\n", name,
            search.found[0] ? "; did you mean '" : "", search.found, search.found[0] ? "'?" : ";",
            program);
}

// Returns the next option that a help text names, without its dashes; NULL: there is none.
static const char *next_option(const char *help, size_t *length)
{
    for (; (help = strstr(help, "--")) != NULL; help += *length) {
        help += 2;
        *length = strspn(help, LETTERS);
        if (*length && help[0] != '-')
            return help;
    }
    return NULL;
}

// Says whether an option is known, also shortened. Compares it with all others meanwhile.
static bool look_up(struct cn_nearest *search, const char *help)
{
    size_t length, size = strlen(search->word);
    bool known = strcmp(search->word, "help") == 0;

    for (const char *at = help; (at = next_option(at, &length)) != NULL; at += length) {
        known |= size <= length && strncmp(at, search->word, size) == 0;
        cn_nearest_compare(search, at, length);
    }
    return known;
}

void cn_misspelling_option(const char *program, const struct cn_command *command,
                           const char *argument)
{
    struct cn_nearest search;
    char word[64];

    if (strncmp(argument, "--", 2) != 0)
        return;
    snprintf(word, sizeof(word), "%.*s", (int)strcspn(argument + 2, "="), argument + 2);
    cn_nearest_begin(&search, word);
    if (look_up(&search, command->help))
        return;
    if (search.found[0])
        fprintf(stderr, "did you mean '--%s'? ", search.found);
    fprintf(stderr, "'%s %s --help' lists the options\n", program, command->name);
}
