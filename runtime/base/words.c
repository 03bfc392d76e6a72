#include "runtime/base/words.h"

#include <stdio.h>
#include <string.h>

#define ITEM_SIZE 256

bool cn_words_next(const char **rest, char *item, size_t size)
{
    size_t length;

    *rest += strspn(*rest, " ");
    length = strcspn(*rest, " ");
    snprintf(item, size, "%.*s", (int)length, *rest);
    *rest += length;
    return length > 0;
}

size_t cn_words_count(const char *words)
{
    char item[1];
    size_t count = 0;

    while (cn_words_next(&words, item, sizeof(item)))
        count++;
    return count;
}

// Matches the shortest text with each *. After a mismatch only the last * has to take more.
static bool matches(const char *pattern, const char *text)
{
    const char *star = NULL, *from = NULL;

    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            from = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++from;
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == '\0';
}

bool cn_words_match(const char *words, const char *text)
{
    char pattern[ITEM_SIZE];

    while (cn_words_next(&words, pattern, sizeof(pattern)))
        if (matches(pattern, text))
            return true;
    return false;
}
