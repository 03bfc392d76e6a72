#include "aggregator/serve/event_hook.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/port/platform.h"

#define FACTS 12
#define FACT_SIZE (CN_PATH_SIZE + 64)
#define INPUT_MAX 4096 // bytes on standard input; fits a pipe, so writing them does not wait

struct facts {
    char lines[FACTS][FACT_SIZE];
    char *environment[FACTS + 1];
    size_t count;
};

bool cn_event_hook_wants(const struct cn_event_hook *hook, enum cn_event_kind kind)
{
    const struct cn_event_hook_settings *wanted = &hook->settings->event_hook;
    return wanted->path[0] && cn_event_kind_is_wanted(wanted->events, kind);
}

const char *cn_event_hook_fault(const struct cn_settings *settings)
{
    const char *path = settings->event_hook.path;
    struct stat info;
    if (!path[0])
        return NULL;
    if (stat(path, &info) != 0)
        return strerror(errno);
    if (!S_ISREG(info.st_mode))
        return "it is not a file";
    return access(path, X_OK) == 0 ? NULL : "it is not executable";
}

void cn_event_hook_warn(const struct cn_settings *settings)
{
    const char *fault = cn_event_hook_fault(settings);
    if (fault)
        cn_log(CN_LOG_WARN, "hook", "hooks.on_event: %s cannot be run: %s",
               settings->event_hook.path, fault);
}

void cn_event_hook_tell(struct cn_event_hook *hook, const struct cn_event *event)
{
    if (hook->count == CN_EVENT_HOOK_QUEUE) {
        hook->first = (hook->first + 1) % CN_EVENT_HOOK_QUEUE;
        hook->count--;
        hook->left_out++;
    }
    hook->waiting[(hook->first + hook->count++) % CN_EVENT_HOOK_QUEUE] = *event;
}

__attribute__((format(printf, 2, 3))) static void add(struct facts *facts, const char *format, ...)
{
    char *line = facts->lines[facts->count];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, FACT_SIZE, format, arguments);
    va_end(arguments);
    facts->environment[facts->count++] = line;
}

// Returns the job that an event is about: a submitted one, else that of the gateway.
static const char *job_of(const struct cn_event_hook *hook, const struct cn_event *event)
{
    return event->job[0] ? event->job : hook->job;
}

// Returns the id of that job's run; 0: not known.
static uint64_t run_of(const struct cn_event_hook *hook, const struct cn_event *event)
{
    return event->job[0] ? event->run : hook->run;
}

static void describe(const struct cn_event_hook *hook, const struct cn_event *event,
                     struct facts *facts)
{
    time_t seconds = (time_t)(event->date_ms / 1000);
    char date[32] = "";
    struct tm utc;
    uint64_t run = run_of(hook, event);
    if (gmtime_r(&seconds, &utc))
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
    facts->environment[facts->count++] = cn_platform_path_line();
    add(facts, "CAIRN_EVENT=%s", cn_event_kind_word(event->kind));
    add(facts, "CAIRN_SUBJECT=%s", event->subject);
    add(facts, "CAIRN_TEXT=%s", event->text);
    add(facts, "CAIRN_DATE=%s", date);
    add(facts, "CAIRN_SEQ=%" PRIu64, event->seq);
    add(facts, "CAIRN_GATEWAY=%s", hook->settings->name);
    add(facts, "CAIRN_JOB=%s", job_of(hook, event));
    if (run)
        add(facts, "CAIRN_RUN=%016" PRIx64, run);
    else
        add(facts, "CAIRN_RUN=");
    add(facts, "CAIRN_STATE=%s", hook->settings->state);
    add(facts, "CAIRN_LEFT_OUT=%" PRIu64, hook->left_out);
}

static cn_err write_input(const struct cn_event_hook *hook, const struct cn_event *event,
                          struct cn_buffer *out)
{
    struct cn_json_text json;
    uint8_t run[8];
    cn_put_u64(run, __builtin_bswap64(run_of(hook, event))); // the digits begin with the highest
    cn_json_text_init(&json, out);
    cn_json_open(&json, NULL, '{');
    cn_json_count(&json, "v", 1);
    cn_json_string(&json, "gateway", hook->settings->name);
    cn_json_string(&json, "job", job_of(hook, event));
    if (run_of(hook, event))
        cn_json_hex(&json, "run", run, sizeof(run));
    cn_json_open(&json, "event", '{');
    cn_events_write_members(event, &json);
    cn_json_close(&json, '}');
    if (hook->left_out)
        cn_json_count(&json, "left_out", hook->left_out);
    cn_json_close(&json, '}');
    return json.err ? json.err : cn_buffer_append(out, "\n", 1);
}

static void start(struct cn_event_hook *hook, const struct cn_event *event, uint64_t now_ms)
{
    static struct facts facts; // static because it is large
    const char *path = hook->settings->event_hook.path;
    struct cn_buffer input;
    facts = (struct facts){0};
    describe(hook, event, &facts);
    cn_buffer_init(&input, INPUT_MAX);
    cn_err err = write_input(hook, event, &input);
    if (!err)
        err = cn_platform_start_hook_with(
            path, facts.environment, (unsigned)((hook->settings->care.hook_limit_ms + 999) / 1000),
            input.data, input.size, &hook->process);
    cn_buffer_deinit(&input);
    hook->running = err == CN_OK;
    hook->left_out = 0;
    if (err)
        cn_log_within(&hook->lines, now_ms, CN_LOG_WARN, "hook",
                      "hooks.on_event: %s cannot be run: %s", path,
                      err == CN_ENOTFOUND ? "it is not there or not executable" : cn_err_text(err));
}

// Returns false while the program runs. Logs a failure after it has ended.
static bool has_ended(struct cn_event_hook *hook, uint64_t now_ms)
{
    int code = 0;
    enum cn_hook_state state = cn_platform_poll_hook(hook->process, &code);
    const char *path = hook->settings->event_hook.path;
    if (state == CN_HOOK_LATE)
        cn_log_within(&hook->lines, now_ms, CN_LOG_WARN, "hook",
                      "hooks.on_event: %s was ended after %" PRIu64 " s", path,
                      (hook->settings->care.hook_limit_ms + 999) / 1000);
    else if (state == CN_HOOK_FAILED)
        cn_log_within(&hook->lines, now_ms, CN_LOG_WARN, "hook",
                      "hooks.on_event: %s failed with %d", path, code);
    return state != CN_HOOK_RUNNING;
}

void cn_event_hook_step(struct cn_event_hook *hook, uint64_t now_ms)
{
    if (hook->running && has_ended(hook, now_ms))
        hook->running = false;
    if (hook->running || !hook->count)
        return;
    const struct cn_event *event = &hook->waiting[hook->first];
    hook->first = (hook->first + 1) % CN_EVENT_HOOK_QUEUE;
    hook->count--;
    start(hook, event, now_ms);
}
