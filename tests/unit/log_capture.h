// log_capture.h - captures the lines that a test makes the log write.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct log_capture {
    FILE *file;
    int kept; // standard error as it was
};

// Sends standard error to a file from now on.
static inline void log_capture_begin(struct log_capture *capture)
{
    capture->file = tmpfile();
    capture->kept = dup(STDERR_FILENO);
    if (!capture->file || capture->kept < 0 || dup2(fileno(capture->file), STDERR_FILENO) < 0)
        abort();
}

// Restores standard error. Returns the number of lines that were written; *with_text is the number
// of those that contain text.
static inline unsigned log_capture_end(struct log_capture *capture, const char *text,
                                       unsigned *with_text)
{
    unsigned lines = 0;
    char line[2048];

    if (dup2(capture->kept, STDERR_FILENO) < 0)
        abort();
    close(capture->kept);
    rewind(capture->file);
    for (*with_text = 0; fgets(line, sizeof(line), capture->file); lines++)
        *with_text += strstr(line, text) != NULL;
    fclose(capture->file);
    return lines;
}
