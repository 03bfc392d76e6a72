// cairn-aggregator events: prints what happened at a gateway, from the files of event_file.h.
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/daemon/job_place.h"
#include "aggregator/daemon/setup.h"
#include "aggregator/serve/event_file.h"
#include "runtime/port/platform.h"
#include "runtime/profile/profile.h"

#define LOOK_MS 250

static const char help[] =
    "Usage: cairn-aggregator events [--alarms] [--job JOB] [--json] [--follow]\n"
    "                               PROFILE\n"
    "\n"
    "Prints what happened at this gateway, oldest first: rounds, versions, boards\n"
    "that fail, fall silent or come back (docs/events.md). The files keep the newest\n"
    "64 MiB. With the profile of a submitted job, only what happened in its run.\n"
    "\n"
    "  --alarms         only what needs a person\n"
    "  --job JOB        only what happened in the run of this job\n"
    "  --json           one object a line, as in the files\n"
    "  --follow         then waits for more, until it is interrupted\n";

struct reader {
    char path[PATH_MAX];
    FILE *stream; // the newest file; NULL: it is not there yet
    bool alarms, json;
    const char *job; // only events about it; "": about no submitted job; NULL: all
    char *line;      // owned
    size_t size;
};

static void print(const struct reader *reader, const char *line, size_t length)
{
    struct cn_event event;
    char date[32] = "";
    struct tm utc;
    if (!cn_event_file_parse(line, length, &event) ||
        (reader->alarms && !cn_event_kind_is_alarm(event.kind)) ||
        (reader->job && strcmp(event.job, reader->job) != 0))
        return;
    if (reader->json) {
        fwrite(line, 1, length, stdout);
        fputc('\n', stdout);
        return;
    }
    time_t seconds = (time_t)(event.date_ms / 1000);
    if (gmtime_r(&seconds, &utc))
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
    // The subject of the end of a job is the job.
    bool named = event.job[0] && !reader->job && strcmp(event.job, event.subject) != 0;
    printf("%s %s%s%s%s%s%s: %s\n", date, cn_event_kind_word(event.kind),
           event.subject[0] ? " " : "", event.subject, named ? " (job " : "",
           named ? event.job : "", named ? ")" : "", event.text);
}

// Prints the whole lines that are there. The beginning of a line that is still being written stays
// for later.
static void print_lines(struct reader *reader, FILE *stream)
{
    for (;;) {
        long before = ftell(stream);
        ssize_t length = getline(&reader->line, &reader->size, stream);
        if (length <= 0)
            break;
        if (reader->line[length - 1] != '\n') {
            if (before >= 0)
                (void)fseek(stream, before, SEEK_SET);
            break;
        }
        print(reader, reader->line, (size_t)length - 1);
    }
    clearerr(stream);
}

static void print_older(struct reader *reader)
{
    char path[sizeof(reader->path) + 16];
    for (int number = CN_EVENT_FILES_KEPT; number > 0; number--) {
        snprintf(path, sizeof(path), "%s.%d", reader->path, number);
        FILE *stream = fopen(path, "re");
        if (!stream)
            continue;
        print_lines(reader, stream);
        fclose(stream);
    }
}

// Says whether the name leads to another file now, because the newest one was moved.
static bool was_moved(const struct reader *reader)
{
    struct stat now, open;
    return stat(reader->path, &now) == 0 && fstat(fileno(reader->stream), &open) == 0 &&
           (now.st_ino != open.st_ino || now.st_dev != open.st_dev);
}

static void print_newest(struct reader *reader)
{
    if (reader->stream) {
        print_lines(reader, reader->stream);
        if (!was_moved(reader))
            return;
        print_lines(reader, reader->stream); // what came before it was moved
        fclose(reader->stream);
    }
    reader->stream = fopen(reader->path, "re");
    if (reader->stream)
        print_lines(reader, reader->stream);
}

// Finds the state with the events, and the job that they are about. Returns the exit code.
static int choose(const struct cn_setup *setup, struct cn_job_place *place,
                  char state[CN_PATH_SIZE], const char **job)
{
    snprintf(state, CN_PATH_SIZE, "%s", setup->settings->state);
    bool of_job = cn_job_place_find(setup->state_name, place);
    if (of_job) { // the gateway has the events of all its jobs
        cn_err err = cn_job_place_reach(place, state);
        if (err) {
            fprintf(stderr, "error: %s: %s\n", place->gateway, cn_err_reason(err));
            return CN_EXIT_FAILED;
        }
        *job = *job ? *job : place->job;
    }
    if (!*job)
        return CN_EXIT_DONE;
    if (!of_job && strcmp(*job, setup->settings->job.name) == 0)
        *job = ""; // the gateway's own job
    else if (cn_job_place_look(state, *job) == CN_ENOTFOUND) {
        fprintf(stderr, "error: --job: no job %s was submitted to the gateway with the state %s\n",
                *job, of_job ? place->gateway : setup->state_name);
        return CN_EXIT_USAGE;
    }
    return CN_EXIT_DONE;
}

static int read_events(const struct cn_setup *setup, struct reader reader, bool follow)
{
    struct cn_job_place place;
    char state[CN_PATH_SIZE];
    int result = choose(setup, &place, state, &reader.job);
    if (result)
        return result;
    const atomic_bool *stop = follow ? cn_command_catch_signals() : NULL;
    int length = snprintf(reader.path, sizeof(reader.path), "%s/" CN_EVENT_FILE, state);
    if (length < 0 || (size_t)length >= sizeof(reader.path))
        return CN_EXIT_FAILED;
    print_older(&reader);
    print_newest(&reader);
    if (!reader.stream && !follow)
        fprintf(stderr, "%s/%s: no events yet\n", setup->state_name, CN_EVENT_FILE);
    while (follow && !atomic_load(stop) && !fflush(stdout)) {
        cn_platform_sleep_ms(LOOK_MS);
        print_newest(&reader);
    }
    if (reader.stream)
        fclose(reader.stream);
    free(reader.line);
    return fflush(stdout) ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {{"alarms", no_argument, NULL, 'a'},
                                          {"job", required_argument, NULL, 'J'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"follow", no_argument, NULL, 'f'},
                                          {0}};
    struct reader reader = {0};
    bool follow = false;
    const char *positional[1];
    (void)ports;
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'a')
            reader.alarms = true;
        else if (option == 'J')
            reader.job = optarg;
        else if (option == 'j')
            reader.json = true;
        else if (option == 'f')
            follow = true;
        else
            return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_LOOK);
    if (!result)
        result = read_events(&setup, reader, follow);
    cn_setup_deinit(&setup);
    return result;
}

const struct cn_command cn_aggregator_events = {
    .name = "events",
    .summary = "print what happened: rounds, boards that fail",
    .help = help,
    .run = run,
};
