#include "aggregator/trial/trial_process.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/port/platform.h"

#define TAIL_LINES 10
#define ERROR_LINES 30 // from the program's first error on
#define TAIL_BYTES 4096
#define LOOK_MS 20 // between looks at processes that are to end

// Runs in the child. All other descriptors are closed by exec, except the one that sweep_record.c
// has processes inherit.
static void become(const char *folder, char *const argv[], const char *log, int output,
                   pid_t parent)
{
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int file = -1;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) // the parent was killed before the call above
        raise(SIGTERM);
    if (chdir(folder) == 0)
        file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (nothing < 0 || file < 0 || dup2(nothing, STDIN_FILENO) < 0 ||
        dup2(output > 0 ? output : file, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0)
        _exit(127);
    execv(argv[0], argv);
    perror(argv[0]);
    _exit(127);
}

static long size_of(const char *folder, const char *log)
{
    char path[PATH_MAX];
    struct stat found;
    snprintf(path, sizeof(path), "%s/%s", folder, log);
    return stat(path, &found) == 0 ? (long)found.st_size : 0;
}

cn_err cn_trial_process_start(struct cn_trial_process *process, const char *folder,
                              char *const argv[], const char *log, int output)
{
    pid_t parent = getpid();
    fflush(stdout);
    process->code = 0;
    process->log_offset = size_of(folder, log);
    process->pid = fork();
    if (process->pid == 0)
        become(folder, argv, log, output, parent);
    if (process->pid > 0)
        return CN_OK;
    process->pid = 0;
    return CN_EIO;
}

bool cn_trial_process_ended(struct cn_trial_process *process)
{
    int status;
    if (process->pid == 0)
        return true;
    if (waitpid(process->pid, &status, WNOHANG) != process->pid)
        return false;
    process->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    process->pid = 0;
    return true;
}

static bool is_program(const char *folder, size_t length, const char *program, char *path,
                       size_t size)
{
    int written = snprintf(path, size, "%.*s/%s", (int)length, folder, program);
    return written > 0 && (size_t)written < size && access(path, X_OK) == 0;
}

bool cn_trial_process_find(const char *program, char *path, size_t size)
{
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    if (length > 0) {
        own[length] = '\0';
        char *slash = strrchr(own, '/');
        if (slash && is_program(own, (size_t)(slash - own), program, path, size))
            return true;
    }
    const char *folder = getenv("PATH");
    while (folder && *folder) {
        size_t part = strcspn(folder, ":");
        if (part && is_program(folder, part, program, path, size))
            return true;
        folder += part + (folder[part] == ':');
    }
    return false;
}

static bool all_ended(struct cn_trial_process *processes, size_t count)
{
    bool all = true;
    for (size_t i = 0; i < count; i++)
        all &= cn_trial_process_ended(&processes[i]);
    return all;
}

static void signal_all(const struct cn_trial_process *processes, size_t count, int number)
{
    for (size_t i = 0; i < count; i++)
        if (processes[i].pid > 0)
            kill(processes[i].pid, number);
}

void cn_trial_process_end(struct cn_trial_process *processes, size_t count, uint64_t limit_ms)
{
    uint64_t begun_ms = cn_platform_now_ms();
    signal_all(processes, count, SIGTERM);
    while (!all_ended(processes, count) && cn_platform_now_ms() - begun_ms < limit_ms)
        cn_platform_sleep_ms(LOOK_MS);
    signal_all(processes, count, SIGKILL);
    while (!all_ended(processes, count))
        cn_platform_sleep_ms(LOOK_MS);
}

uint64_t cn_trial_process_warnings(const char *log, char newest[CN_TRIAL_LINE_SIZE])
{
    char *line = NULL;
    size_t size = 0;
    uint64_t count = 0;
    FILE *file = fopen(log, "re");
    newest[0] = '\0';
    // A line of the log is "TIME LEVEL AREA: TEXT" (docs/log.md).
    while (file && getline(&line, &size, file) >= 0) {
        const char *level = strchr(line, ' ');
        if (!level || (strncmp(level, " warn ", 6) != 0 && strncmp(level, " error ", 7) != 0))
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(newest, CN_TRIAL_LINE_SIZE, "%s", level + 1 + strcspn(level + 1, " ") + 1);
        count++;
    }
    free(line);
    if (file)
        fclose(file);
    return count;
}

// Reads the last bytes of a file, at most TAIL_BYTES of what begins at offset.
static bool read_tail(const char *log, long offset, char text[TAIL_BYTES + 1])
{
    FILE *file = fopen(log, "re");
    if (!file)
        return false;
    long end = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : 0;
    long from = end - offset > TAIL_BYTES ? end - TAIL_BYTES : end < offset ? 0 : offset;
    size_t size = fseek(file, from, SEEK_SET) == 0 ? fread(text, 1, TAIL_BYTES, file) : 0;
    fclose(file);
    while (size && text[size - 1] == '\n')
        size--;
    text[size] = '\0';
    return true;
}

// Returns the first line that begins with "error: ", or else the first of the last TAIL_LINES.
static const char *find_first_line(const char *text)
{
    const char *error = strncmp(text, "error: ", 7) == 0 ? text : strstr(text, "\nerror: ");
    if (error)
        return error + (*error == '\n');
    const char *from = text + strlen(text);
    for (int lines = 0; from > text && lines < TAIL_LINES; from--)
        lines += from[-1] == '\n';
    return from > text ? from + 1 : from; // from is the newline before the first line
}

bool cn_trial_process_tell(const char *log, long offset)
{
    char text[TAIL_BYTES + 1];
    if (!read_tail(log, offset, text))
        return false;
    const char *from = find_first_line(text);
    bool names_reload = strstr(from, "cairn-aggregator reload") != NULL;
    int most = strncmp(from, "error: ", 7) == 0 ? ERROR_LINES : TAIL_LINES;
    for (int lines = 0; *from && lines < most; lines++) {
        size_t length = strcspn(from, "\n");
        fprintf(stderr, "  | %.*s\n", (int)length, from);
        from += length + (from[length] == '\n');
    }
    return names_reload;
}
