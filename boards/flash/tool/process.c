#include "boards/flash/tool/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/command/command.h"
#include "runtime/port/platform.h"

#define OUTPUT_MAX (64u << 20)
#define CHUNK 65536
#define KEPT 32768  // newest bytes of output that are kept of a program that may say too much
#define LOOK_MS 100 // between two looks whether a program has ended
#define LOCK_MS 1000

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

bool cn_process_lock(int file)
{
    for (int waited_ms = 0;; waited_ms += LOOK_MS) {
        if (flock(file, LOCK_EX | LOCK_NB) == 0)
            return true;
        if (errno != EWOULDBLOCK || waited_ms >= LOCK_MS)
            return false;
        poll(NULL, 0, LOOK_MS);
    }
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

// Starts a program. leads: it leads a process group of its own, so that all of it can be killed.
static cn_err start(const char *const argv[], int in, bool leads, int out[2], int errors[2],
                    pid_t *child)
{
    pid_t parent = getpid();

    if (pipe2(out, O_CLOEXEC))
        return cn_err_from_errno(errno);
    if (errors && pipe2(errors, O_CLOEXEC)) {
        close(out[0]);
        close(out[1]);
        return CN_EIO;
    }
    *child = fork();
    if (*child == 0) {
        // A program must not go on writing to an image or a card after this one was killed.
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(127);
        if (leads)
            setpgid(0, 0);
        become(argv, in, out[1], errors ? errors[1] : -1);
    }
    if (*child > 0 && leads)
        setpgid(*child, *child); // whichever of the two comes first
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

static int exit_code(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int cn_process_wait(pid_t child)
{
    int status;

    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return 127;
    }
    return exit_code(status);
}

// --- several programs at once ---

// Removes the oldest bytes of what a program said, if only the newest are kept.
static void forget(struct cn_buffer *buffer, size_t kept)
{
    if (!kept || buffer->size <= 2 * kept)
        return;
    memmove(buffer->data, buffer->data + buffer->size - kept, kept);
    buffer->size = kept;
}

// Appends what pipe i of the job has, and closes it at its end. Returns whether there may be more
// to read at once.
static bool collect(struct cn_process_job *job, int i)
{
    struct cn_buffer *buffer = i ? &job->result.errors : &job->result.out;
    uint8_t chunk[CHUNK];
    ssize_t got = read(job->ends[i], chunk, sizeof(chunk));

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return false;
    if (got > 0 && !job->err) {
        job->err = cn_buffer_append(buffer, chunk, (size_t)got);
        forget(buffer, job->kept);
    }
    if (got > 0 && !job->err)
        return true;
    close(job->ends[i]);
    job->ends[i] = -1;
    return false;
}

static void begin(struct cn_process_job *job)
{
    int out[2] = {-1, -1}, errors[2] = {-1, -1};

    job->result = (struct cn_process_result){.code = 127};
    cn_buffer_init(&job->result.out, OUTPUT_MAX);
    cn_buffer_init(&job->result.errors, OUTPUT_MAX);
    job->child = 0;
    job->err = start(job->argv, job->in, job->leads, out, errors, &job->child);
    job->ends[0] = job->err ? -1 : out[0];
    job->ends[1] = job->err ? -1 : errors[0];
    if (job->err)
        job->child = 0;
    // The program may leave another one behind that holds its end of a pipe open.
    for (int i = 0; i < 2 && !job->err; i++)
        fcntl(job->ends[i], F_SETFL, O_NONBLOCK);
}

static void end(struct cn_process_job *job)
{
    kill(job->leads ? -job->child : job->child, SIGKILL);
}

// Takes the program's exit code if it has ended, and the rest of what it said. Returns whether it
// has ended.
static bool reap(struct cn_process_job *job)
{
    int status;
    pid_t found = waitpid(job->child, &status, WNOHANG);

    if (found == 0 || (found < 0 && errno == EINTR))
        return false;
    job->result.code = found < 0 ? 127 : exit_code(status);
    job->result.late = job->result.late && job->result.code != 0;
    job->child = 0;
    for (int i = 0; i < 2; i++) {
        while (job->ends[i] >= 0 && collect(job, i))
            ;
        if (job->ends[i] >= 0)
            close(job->ends[i]);
        job->ends[i] = -1;
    }
    return true;
}

// Waits until a program has said something, and collects it.
static void wait_for_output(struct cn_process_job *jobs, size_t count)
{
    struct pollfd ends[2 * CN_PROCESS_JOBS];
    int wait_ms = LOOK_MS;

    for (size_t i = 0; i < count; i++) {
        const struct cn_process_job *job = &jobs[i];

        for (size_t k = 0; k < 2; k++) // poll skips a negative descriptor
            ends[2 * i + k] = (struct pollfd){.fd = job->ends[k], .events = POLLIN};
        if (job->child && job->ends[0] < 0 && job->ends[1] < 0)
            wait_ms = 1; // it ends now
    }
    if (poll(ends, 2 * count, wait_ms) <= 0)
        return;
    for (size_t i = 0; i < 2 * count; i++)
        if (ends[i].fd >= 0 && ends[i].revents)
            collect(&jobs[i / 2], (int)(i % 2));
}

// Ends the program if there is a reason to. Then, once it has ended, starts the one that is to run
// next in its place, if any.
static void advance(struct cn_process_job *job, bool late, cn_process_ended *ended, void *context)
{
    bool over = job->leads && (late || (!job->undoes && cn_process_interrupted()));

    if (job->child && (over || job->err)) {
        job->result.late = late && !job->err;
        end(job);
    }
    if (job->done || (job->child && !reap(job)))
        return;
    job->done = !ended || !ended(context, job);
    if (job->done)
        return;
    cn_process_deinit(&job->result);
    begin(job);
}

static void run_all(struct cn_process_job *jobs, size_t count, uint64_t deadline_ms,
                    cn_process_ended *ended, void *context)
{
    size_t running = count;

    for (size_t i = 0; i < count; i++)
        begin(&jobs[i]);
    while (running) {
        bool late = cn_platform_now_ms() >= deadline_ms;

        wait_for_output(jobs, count);
        running = 0;
        for (size_t i = 0; i < count; i++) {
            advance(&jobs[i], late, ended, context);
            running += !jobs[i].done;
        }
    }
}

void cn_process_run_all(struct cn_process_job *jobs, size_t count, uint64_t deadline_ms,
                        cn_process_ended *ended, void *context)
{
    for (size_t i = 0; i < count; i++) {
        jobs[i].leads = true;
        jobs[i].kept = KEPT;
        jobs[i].done = false;
    }
    run_all(jobs, count, deadline_ms, ended, context);
}

cn_err cn_process_run(const char *const argv[], int in, struct cn_process_result *result)
{
    struct cn_process_job job = {.argv = argv, .in = in};

    run_all(&job, 1, UINT64_MAX, NULL, NULL);
    *result = job.result;
    return job.err;
}

cn_err cn_process_run_within(const char *const argv[], int in, uint64_t limit_ms,
                             struct cn_process_result *result)
{
    struct cn_process_job job = {
        .argv = argv, .in = in, .leads = true, .undoes = cn_process_interrupted()};

    run_all(&job, 1, cn_platform_now_ms() + limit_ms, NULL, NULL);
    *result = job.result;
    return job.err;
}

void cn_process_deinit(struct cn_process_result *result)
{
    cn_buffer_deinit(&result->out);
    cn_buffer_deinit(&result->errors);
}

cn_err cn_process_start(const char *const argv[], pid_t *child, int *out)
{
    int ends[2];
    cn_err err = start(argv, -1, false, ends, NULL, child);

    if (!err)
        *out = ends[0];
    return err;
}

const char *cn_process_complaint(struct cn_process_result *result)
{
    struct cn_buffer *errors = &result->errors;
    char *text, *line;

    if (result->late)
        return "it did not answer in time";
    while (errors->size && errors->data[errors->size - 1] == '\n')
        errors->size--;
    if (errors->size == 0 || cn_buffer_append(errors, "", 1))
        return "it said nothing";
    errors->size--;
    text = (char *)errors->data;
    line = strrchr(text, '\n');
    return line ? line + 1 : text;
}
