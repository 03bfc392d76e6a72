#include "runtime/command/written_by.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/build_version.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/text_file.h"
#include "runtime/port/platform.h"
#include "runtime/profile/profile.h"

#define FILE_NAME "written_by"
#define LINE_SIZE 80 // bytes that hold the line, with its end

// Reads the line of the file; unprintable characters become '?'. The text is "" without the file: a
// build before this file existed wrote the state.
static void read_writer(const char *state, char text[LINE_SIZE])
{
    (void)cn_text_file_line(state, FILE_NAME, text, LINE_SIZE);
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

void cn_written_by_note(const char *state, const char *program)
{
    char now[LINE_SIZE], before[LINE_SIZE], path[CN_PATH_SIZE + 16];
    cn_err err;

    read_writer(state, before);
    snprintf(now, sizeof(now) - 1, "%s %s", program, cn_build_version);
    if (strcmp(now, before) == 0)
        return;
    snprintf(path, sizeof(path), "%s/%s", state, FILE_NAME);
    strcat(now, "\n");
    err = cn_platform_replace_note(path, now);
    if (err)
        cn_log(CN_LOG_WARN, "state", "%s cannot be written: %s", path, cn_err_reason(err));
}

void cn_written_by_explain(const char *state, const char *name, const char *found,
                           const char *known)
{
    char writer[LINE_SIZE];

    read_writer(state, writer);
    fprintf(stderr,
            "error: %s: the state has %s, written by %s; this build, %s, reads %s.\n"
            "Nothing was changed. Finish the run with a version that reads it.\n",
            name, found, writer[0] ? writer : "a version of Cairn that left no name",
            cn_build_version, known);
}
