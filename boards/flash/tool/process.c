#include "boards/flash/tool/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/command/command.h"

#define OUTPUT_MAX (64u << 20)
#define CHUNK 65536

static const atomic_bool *stop;

void cn_process_catch_signals(void)
{
    struct sigaction action;

    stop = cn_command_catch_signals();
    // A terminal that closes has the effect of Ctrl-C, unless nohup(1) was asked for.
    if (sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler != SIG_IGN &&
        sigaction(SIGTERM, NULL, &action) == 0)
        sigaction(SIGHUP, &action, NULL);
}

bool cn_process_interrupted(void)
{
    return stop && atomic_load(stop);
}

// Becomes the program in the child process; does not return.
static _Noreturn void become(const char *const argv[], int in, int out, int errors)
{
    int null = open("/dev/null", O_RDWR);

    dup2(in >= 0 ? in : null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    if (errors >= 0)
        dup2(errors, STDERR_FILENO);
    signal(SIGPIPE, SIG_DFL);
    setenv("LC_ALL", "C", 1);
    setenv("DEBUGFS_PAGER", "cat", 1);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static cn_err start(const char *const argv[], int in, int out[2], int errors[2], pid_t *child)
{
    if (pipe2(out, O_CLOEXEC))
        return cn_err_from_errno(errno);
    if (errors && pipe2(errors, O_CLOEXEC)) {
        close(out[0]);
        close(out[1]);
        return CN_EIO;
    }
    *child = fork();
    if (*child == 0)
        become(argv, in, out[1], errors ? errors[1] : -1);
    close(out[1]);
    if (errors)
        close(errors[1]);
    if (*child > 0)
        return CN_OK;
    close(out[0]);
    if (errors)
        close(errors[0]);
    return CN_ENOMEM;
}

// Appends what descriptor has to buffer. Returns false at the end of the stream, or with *err set.
static bool collect(int descriptor, struct cn_buffer *buffer, cn_err *err)
{
    uint8_t chunk[CHUNK];
    ssize_t got = read(descriptor, chunk, sizeof(chunk));

    if (got < 0)
        return errno == EINTR;
    if (got == 0)
        return false;
    *err = cn_buffer_append(buffer, chunk, (size_t)got);
    return !*err;
}

int cn_process_wait(pid_t child)
{
    int status;

    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return 127;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

cn_err cn_process_run(const char *const argv[], int in, struct cn_process_result *result)
{
    struct pollfd ends[2] = {{.events = POLLIN}, {.events = POLLIN}};
    int out[2] = {-1, -1}, errors[2] = {-1, -1};
    cn_err err;
    pid_t child = -1;

    result->code = 127;
    cn_buffer_init(&result->out, OUTPUT_MAX);
    cn_buffer_init(&result->errors, OUTPUT_MAX);
    err = start(argv, in, out, errors, &child);
    if (err)
        return err;
    ends[0].fd = out[0];
    ends[1].fd = errors[0];
    while (!err && (ends[0].fd >= 0 || ends[1].fd >= 0)) {
        if (poll(ends, 2, -1) < 0 && errno != EINTR)
            break;
        if (ends[0].revents && !collect(out[0], &result->out, &err))
            ends[0].fd = -1; // poll skips a negative descriptor
        if (ends[1].revents && !collect(errors[0], &result->errors, &err))
            ends[1].fd = -1;
        ends[0].revents = ends[1].revents = 0;
    }
    close(out[0]);
    close(errors[0]);
    result->code = cn_process_wait(child);
    return err;
}

void cn_process_deinit(struct cn_process_result *result)
{
    cn_buffer_deinit(&result->out);
    cn_buffer_deinit(&result->errors);
}

cn_err cn_process_start(const char *const argv[], pid_t *child, int *out)
{
    int ends[2];
    cn_err err = start(argv, -1, ends, NULL, child);

    if (!err)
        *out = ends[0];
    return err;
}

const char *cn_process_complaint(struct cn_process_result *result)
{
    struct cn_buffer *errors = &result->errors;
    char *text, *line;

    while (errors->size && errors->data[errors->size - 1] == '\n')
        errors->size--;
    if (errors->size == 0 || cn_buffer_append(errors, "", 1))
        return "it said nothing";
    errors->size--;
    text = (char *)errors->data;
    line = strrchr(text, '\n');
    return line ? line + 1 : text;
}
