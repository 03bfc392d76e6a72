#include "aggregator/trial/trial_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/command/command.h"
#include "runtime/command/terminal/screen.h"
#include "runtime/command/terminal/wrap.h"
#include "runtime/port/platform.h"

#define STEP_MS 100
#define END_MS 10000   // for a process to end in order
#define LEAVE_MS 60000 // for boards to notice the end of the run

// Makes the screen ready for a line on standard error.
static void clear_live_line(struct cn_trial_run *run)
{
    if (run->drawn)
        cn_screen_clear(stdout);
    run->drawn = false;
    fflush(stdout);
}

static void tell_failed(struct cn_trial_run *run, const struct cn_trial_process *process)
{
    char log[PATH_MAX];
    clear_live_line(run);
    snprintf(log, sizeof(log), "%s/logs/%s.log", run->folder, process->name);
    if (process->code > 128)
        fprintf(stderr, "error: %s was ended by signal %d; from %s:\n", process->name,
                process->code - 128, log);
    else
        fprintf(stderr, "error: %s ended with exit code %d; from %s:\n", process->name,
                process->code, log);
    if (cn_trial_process_tell(log, process->log_offset))
        fprintf(stderr, "To take what you changed: cairn-aggregator reload %s/gateway.yaml\n",
                run->folder);
}

// --- starting ---

static cn_err start(const struct cn_trial_run *run, struct cn_trial_process *process,
                    const char *program, const char *option, int output)
{
    char path[PATH_MAX], command[] = "run", profile[CN_TRIAL_NAME_SIZE + 8], more[32] = "";
    char log[CN_TRIAL_NAME_SIZE + 16];
    snprintf(path, sizeof(path), "%s", program);
    snprintf(profile, sizeof(profile), "%s.yaml", process->name);
    snprintf(log, sizeof(log), "logs/%s.log", process->name);
    snprintf(more, sizeof(more), "%s", option ? option : "");
    char *argv[] = {path, command, profile, option ? more : NULL, NULL};
    cn_err err = cn_trial_process_start(process, run->folder, argv, log, output);
    if (err)
        fprintf(stderr, "error: %s cannot be started: %s\n", process->name, strerror(errno));
    return err;
}

static cn_err start_gateway(struct cn_trial_run *run)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        fprintf(stderr, "error: %s\n", strerror(errno));
        return CN_EIO;
    }
    run->output = ends[0];
    snprintf(run->gateway.name, sizeof(run->gateway.name), "gateway");
    cn_err err =
        start(run, &run->gateway, run->programs->aggregator, run->stay ? "--stay" : NULL, ends[1]);
    close(ends[1]);
    return err;
}

static cn_err start_all(struct cn_trial_run *run)
{
    cn_err err = start_gateway(run);
    for (uint32_t i = 0; i < run->boards && !err; i++) {
        snprintf(run->processes[i].name, sizeof(run->processes[i].name), "board-%u", i + 1);
        err = start(run, &run->processes[i], run->programs->node, "--until-end", 0);
    }
    return err;
}

// --- the gateway's rows ---

// Draws a live line below a row of the gateway's table: the round under way and the time left.
static void draw_progress(struct cn_trial_run *run, const char *row)
{
    char *end, line[128], left[CN_SCREEN_LEFT_SIZE];
    uint64_t now_ms = cn_platform_now_ms();
    unsigned long version = strtoul(row, &end, 10);
    if (end == row || *end != ' ' || version >= run->rounds)
        return;
    if (run->begun_ms == 0) {
        run->begun_ms = now_ms;
        run->begun = (uint32_t)version;
    }
    cn_screen_time_left(now_ms - run->begun_ms, version - run->begun, run->rounds - run->begun,
                        left);
    snprintf(line, sizeof(line), "round %lu of %u%s%s", version + 1, run->rounds,
             left[0] ? "; " : "", left);
    cn_screen_draw(stdout, line);
    run->drawn = true;
}

// Prints a line of the gateway, and draws the progress of the run below it.
static void show_line(struct cn_trial_run *run, const char *line)
{
    static const char over[] = "the run is over: ";
    bool ends = strncmp(line, over, sizeof(over) - 1) == 0;
    if (!run->over && !run->quiet) {
        if (run->drawn)
            cn_screen_clear(stdout);
        run->drawn = false;
        if (ends)
            cn_screen_paint(stdout, CN_SCREEN_GREEN, line);
        else
            cn_wrap_print(line, CN_WRAP_INDENT);
        if (ends)
            putchar('\n');
        draw_progress(run, line);
        fflush(stdout);
    }
    run->over |= ends;
}

// Reads what the gateway has printed, for at most STEP_MS. Returns false at the end of it.
static bool read_output(struct cn_trial_run *run)
{
    struct pollfd watched = {.fd = run->output, .events = POLLIN};
    if (poll(&watched, 1, STEP_MS) <= 0)
        return true;
    ssize_t size =
        read(run->output, run->line + run->line_size, sizeof(run->line) - 1 - run->line_size);
    if (size <= 0)
        return size < 0 && errno == EINTR;
    run->line_size += (size_t)size;
    run->line[run->line_size] = '\0';
    char *from = run->line, *end;
    while ((end = strchr(from, '\n'))) {
        *end = '\0';
        show_line(run, from);
        from = end + 1;
    }
    run->line_size = strlen(from);
    if (run->line_size == sizeof(run->line) - 1)
        run->line_size = 0; // no line of the gateway fills the buffer
    memmove(run->line, from, run->line_size);
    return true;
}

// Reads the gateway's output for a moment. Without output it only waits.
static void look(struct cn_trial_run *run)
{
    if (run->output < 0) {
        cn_platform_sleep_ms(STEP_MS);
    } else if (!read_output(run)) {
        close(run->output);
        run->output = -1;
    }
}

// --- the end ---

// Counts the boards that have ended. Tells those that failed.
static uint32_t look_at_boards(struct cn_trial_run *run)
{
    uint32_t ended = 0;
    for (uint32_t i = 0; i < run->boards; i++) {
        if (!cn_trial_process_ended(&run->processes[i]))
            continue;
        ended++;
        if (!run->processes[i].code || run->faults.boards[i].gone)
            continue;
        run->faults.boards[i].gone = true;
        run->changed = true;
        tell_failed(run, &run->processes[i]);
    }
    return ended;
}

// Prints what boards report to the gateway.
static void look_at_faults(struct cn_trial_run *run)
{
    struct cn_event event;
    while (cn_trial_faults_next(&run->faults, &event)) {
        clear_live_line(run);
        fprintf(stderr, "%s%s: %s\n", event.kind == CN_EVENT_BOARD_FAILED ? "error: " : "",
                event.subject, event.text);
        run->changed = true;
    }
}

// Returns whether enough groups can train. Prints what follows from the boards that newly cannot.
static bool can_go_on(struct cn_trial_run *run)
{
    uint32_t able = cn_trial_faults_able(&run->faults, run->split, run->members);
    bool enough = able > 0 && able >= run->quorum;
    if (!run->changed)
        return true;
    run->changed = false;
    if (enough) {
        fprintf(stderr, "%u of %u groups can train, a version needs %u: the run goes on\n", able,
                run->split->groups, run->quorum);
        return true;
    }
    fprintf(stderr, "error: the run cannot go on: %u of %u groups can train, a version needs %u\n",
            able, run->split->groups, run->quorum);
    if (cn_trial_faults_diverged(&run->faults))
        fprintf(stderr, "The loss is not finite: begin again with a --job file that has a lower "
                        "train.learning_rate. Where features have different scales, give it the "
                        "model that 'cairn-node normalize' makes.\n");
    return false;
}

// Waits for the boards after the gateway has ended. Boards that do not notice the end are ended
// later.
static void wait_for_boards(struct cn_trial_run *run)
{
    uint64_t begun_ms = cn_platform_now_ms();
    while (look_at_boards(run) < run->boards && cn_platform_now_ms() - begun_ms < LEAVE_MS &&
           !atomic_load(run->stop))
        cn_platform_sleep_ms(STEP_MS);
}

int cn_trial_run_until_end(struct cn_trial_run *run)
{
    run->output = -1;
    cn_trial_faults_init(&run->faults, run->state);
    if (start_all(run))
        return CN_TRIAL_EXIT_PROCESS;
    while (!atomic_load(run->stop)) {
        look(run);
        bool gateway_ended = cn_trial_process_ended(&run->gateway);
        while (gateway_ended && run->output >= 0)
            look(run);
        if (gateway_ended && run->gateway.code) {
            tell_failed(run, &run->gateway);
            return CN_TRIAL_EXIT_PROCESS;
        }
        if (gateway_ended) {
            if (run->over) // boards do not learn of a gateway that was drained
                wait_for_boards(run);
            return CN_EXIT_DONE;
        }
        uint32_t ended = look_at_boards(run);
        look_at_faults(run);
        if (!run->over && !can_go_on(run))
            return CN_TRIAL_EXIT_PROCESS;
        if (run->stay && ended == run->boards)
            return CN_EXIT_DONE;
    }
    return CN_EXIT_INTERRUPTED;
}

void cn_trial_run_stay(struct cn_trial_run *run)
{
    while (!atomic_load(run->stop) && !cn_trial_process_ended(&run->gateway))
        look(run);
}

void cn_trial_run_end(struct cn_trial_run *run)
{
    // The boards first: without the gateway they would only note that it is away.
    cn_trial_process_end(run->processes, run->boards, END_MS);
    cn_trial_process_end(&run->gateway, 1, END_MS);
    if (run->output >= 0)
        close(run->output);
    run->output = -1;
}
