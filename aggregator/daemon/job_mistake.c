#include "aggregator/daemon/job_mistake.h"

#include <stdio.h>
#include <string.h>

#define SEE_LOG "the gateway's log says what is wrong"
#define MARK ": error: "
#define EXPECTED "; expected "
#define KEY_CHARACTERS "abcdefghijklmnopqrstuvwxyz0123456789_."
#define DIGITS "0123456789"

// A line of diag taken apart: FILE:LINE:COLUMN: error: MESSAGE.
struct mistake {
    const char *file, *message;
    int file_length; // with the number of the line
};

// Goes back over a colon and the number before it. Returns NULL when there are none.
static const char *skip_number(const char *line, const char *end)
{
    const char *at = end;
    while (at > line && strchr(DIGITS, at[-1]))
        at--;
    return at < end && at > line && at[-1] == ':' ? at - 1 : NULL;
}

static bool take_apart(const char *line, struct mistake *mistake)
{
    const char *mark = strstr(line, MARK);
    const char *column = mark ? skip_number(line, mark) : NULL;
    const char *number = column ? skip_number(line, column) : NULL;
    if (!number)
        return false;
    mistake->file = number;
    while (mistake->file > line && mistake->file[-1] != '/')
        mistake->file--;
    mistake->file_length = (int)(column - mistake->file);
    mistake->message = mark + strlen(MARK);
    return true;
}

// Returns the last part of a message that says what was expected; NULL: it has none, or one that
// may be a path.
static const char *find_expected(const char *message)
{
    const char *found = NULL;
    for (const char *next = message; (next = strstr(next, EXPECTED)); next += strlen(EXPECTED))
        found = next + strlen("; ");
    return found && !strchr(found, '/') ? found : NULL;
}

static void describe(const struct mistake *mistake, char text[CN_JOB_REASON])
{
    const char *message = mistake->message, *expected = find_expected(message);
    int key = (int)strspn(message, KEY_CHARACTERS);
    // The name of a key that does not exist is the user's own text, as is all but a key.
    bool unknown = strncmp(message + key, ": unknown key", strlen(": unknown key")) == 0;
    if (strncmp(message + key, ": ", 2) != 0 || unknown)
        key = 0;
    snprintf(text, CN_JOB_REASON, "%.*s: %.*s%s%s", mistake->file_length, mistake->file, key,
             message, key ? ": " : "",
             unknown    ? "unknown key"
             : expected ? expected
                        : SEE_LOG);
}

void cn_job_mistake_text(const struct cn_diag *diag, char text[CN_JOB_REASON])
{
    struct mistake mistake;
    snprintf(text, CN_JOB_REASON, "its profile cannot be read; " SEE_LOG);
    for (size_t i = 0; i < diag->count && i < CN_DIAG_LINES; i++) {
        if (!take_apart(diag->lines[i], &mistake))
            continue; // a warning
        describe(&mistake, text);
        return;
    }
}
