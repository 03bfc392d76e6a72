#include "runtime/command/misspelling.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/nearest.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyz0123456789-"

// A search for the known word that is nearest to a word.
struct search {
    const char *word;
    size_t best; // distance of nearest, or that of a word that is too far away
    char nearest[CN_NEAREST_WORD + 1];
};

static void begin(struct search *search, const char *word)
{
    *search = (struct search){.word = word, .best = cn_nearest_limit(word)};
}

static void compare(struct search *search, const char *known, size_t length)
{
    char word[CN_NEAREST_WORD + 1];

    if (length > CN_NEAREST_WORD || strlen(search->word) > CN_NEAREST_WORD)
        return;
    memcpy(word, known, length);
    word[length] = '\0';
    if (cn_nearest_distance(search->word, word) < search->best) {
        search->best = cn_nearest_distance(search->word, word);
        memcpy(search->nearest, word, length + 1);
    }
}

void cn_misspelling_command(const char *program, const struct cn_command *const *commands,
                            const char *name)
{
    struct search search;

    begin(&search, name);
    for (size_t i = 0; commands[i]; i++)
        compare(&search, commands[i]->name, strlen(commands[i]->name));
    fprintf(stderr, "error: '%s' is not a command%s%s%s '%s --help' lists them\n", name,
            search.nearest[0] ? "; did you mean '" : "", search.nearest,
            search.nearest[0] ? "'?" : ";", program);
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
static bool look_up(struct search *search, const char *help)
{
    size_t length, size = strlen(search->word);
    bool known = strcmp(search->word, "help") == 0;

    for (const char *at = help; (at = next_option(at, &length)) != NULL; at += length) {
        known |= size <= length && strncmp(at, search->word, size) == 0;
        compare(search, at, length);
    }
    return known;
}

void cn_misspelling_option(const char *program, const struct cn_command *command,
                           const char *argument)
{
    struct search search;
    char word[64];

    if (strncmp(argument, "--", 2) != 0)
        return;
    snprintf(word, sizeof(word), "%.*s", (int)strcspn(argument + 2, "="), argument + 2);
    begin(&search, word);
    if (look_up(&search, command->help))
        return;
    if (search.nearest[0])
        fprintf(stderr, "error: --%s: did you mean '--%s'? ", word, search.nearest);
    else
        fprintf(stderr, "error: --%s is no option of it; ", word);
    fprintf(stderr, "'%s %s --help' lists the options\n", program, command->name);
}
