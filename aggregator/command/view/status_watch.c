#include "aggregator/command/view/status_watch.h"

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/command/view/status_view.h"
#include "aggregator/serve/status.h"
#include "aggregator/show/board_list.h"
#include "runtime/command/terminal/sparkline.h"
#include "runtime/command/terminal/wrap.h"
#include "runtime/port/platform.h"

#define DRAW_MS 1000
#define VERSIONS 400   // newest ones, in the curves
#define LABEL 10       // columns before a curve
#define LEGEND 28      // columns behind it
#define REASON_LINES 3 // most lines of a reason
#define LINE_SIZE (CN_SPARKLINE_SIZE + 256)

struct curve {
    double values[VERSIONS];
    double first, last, least, largest; // of the values that are known; NaN: none is
};

struct watch {
    const struct cn_setup *setup;
    struct cn_job job;
    struct cn_live_state live;
    struct cn_round_view view;
    struct cn_board_list boards;
    size_t count; // of values in each curve
    struct curve accuracy, loss, bytes;
    uint64_t pace_ms;              // from one round to the next; 0: not known
    struct cn_status_view *screen; // borrowed
    unsigned columns;
};

// --- reading ---

static void add_value(struct curve *curve, size_t at, double value)
{
    curve->values[at] = value;
    if (at == 0)
        curve->first = curve->last = curve->least = curve->largest = NAN;
    if (!isfinite(value))
        return;
    if (isnan(curve->first))
        curve->first = value;
    curve->last = value;
    curve->least = fmin(curve->least, value);
    curve->largest = fmax(curve->largest, value);
}

static cn_err read_curves(struct watch *watch)
{
    uint32_t newest = watch->view.has_version ? watch->view.version.number : 0;
    uint32_t from = newest >= VERSIONS ? newest - VERSIONS + 1 : 0;
    uint64_t before = 0;
    watch->count = 0;
    for (uint32_t number = from; watch->view.has_version && number <= newest; number++) {
        struct cn_ledger_version version;
        struct cn_score score;
        cn_err err = cn_ledger_find_version(watch->setup->ledger, number, &version);
        if (err == CN_ENOTFOUND)
            continue;
        if (err)
            return err;
        cn_score_of(&version, &score);
        bool accurate = score.known && watch->job.loss == CN_LOSS_CROSS_ENTROPY;
        add_value(&watch->accuracy, watch->count, accurate ? score.accuracy : NAN);
        add_value(&watch->loss, watch->count, score.known ? score.loss : NAN);
        uint64_t bytes = version.bytes_in + version.bytes_out;
        add_value(&watch->bytes, watch->count, number > from ? (double)(bytes - before) : NAN);
        before = bytes;
        watch->count++;
    }
    return CN_OK;
}

static cn_err look(struct watch *watch, uint64_t now_ms)
{
    const struct cn_setup *setup = watch->setup;
    cn_err err = cn_status_read(setup->settings->state, now_ms, &watch->live);
    if (!err)
        err = cn_setup_find_job(setup, &watch->job);
    if (!err)
        err = cn_round_view_load(setup->ledger, &watch->job, NULL, &watch->view);
    if (!err)
        err = read_curves(watch);
    if (!err)
        err = cn_history_pace(setup->ledger, &watch->pace_ms);
    const struct cn_reason_facts facts = {&watch->view, &watch->live,
                                          cn_job_updates_needed(&watch->job), now_ms};
    return err ? err : cn_board_list_load(setup->ledger, &facts, &watch->boards);
}

static void forget(struct watch *watch)
{
    cn_board_list_deinit(&watch->boards);
    cn_round_view_deinit(&watch->view);
    cn_status_deinit(&watch->live);
}

// --- drawing ---

static void print(struct watch *watch, const char *line)
{
    cn_status_view_add(watch->screen, CN_STATUS_PLAIN, line);
}

static void paint(struct watch *watch, enum cn_screen_color color, const char *line)
{
    cn_status_view_add(watch->screen, (int)color, line);
}

static void print_run(struct watch *watch)
{
    char line[LINE_SIZE], bar[CN_SPARKLINE_SIZE], left[CN_SCREEN_LEFT_SIZE], lag[CN_SCORE_LAG];
    const struct cn_round_view *view = &watch->view;
    uint32_t made = view->has_version ? view->version.number : 0;
    snprintf(line, sizeof(line), "%s, run %016" PRIx64 ": %s", watch->job.name,
             cn_ledger_identity(watch->setup->ledger)->run,
             view->end_reason       ? view->end_reason
             : !watch->live.running ? "the aggregator is NOT running"
             : view->steering.pause ? "paused until `resume`"
                                    : "the aggregator is running");
    if (view->end_reason)
        paint(watch, CN_SCREEN_GREEN, line);
    else if (watch->live.running && view->steering.pause)
        paint(watch, CN_SCREEN_YELLOW, line);
    else
        paint(watch, watch->live.running ? CN_SCREEN_BOLD : CN_SCREEN_RED, line);
    uint32_t rest = made < watch->job.rounds ? watch->job.rounds - made : 0;
    bool known = watch->pace_ms > 0 && cn_live_is_moving(&watch->live, &view->steering);
    cn_screen_time_left(watch->pace_ms, known && !view->end_reason, rest + 1, left);
    cn_sparkline_bar((double)made / watch->job.rounds, watch->columns / 3, bar);
    snprintf(line, sizeof(line), "%s version %u of %u%s%s", bar, made, watch->job.rounds,
             left[0] ? ", " : "", left);
    print(watch, line);
    snprintf(line, sizeof(line), "round %u: %u of %u updates", view->round.number, view->accepted,
             cn_job_updates_needed(&watch->job));
    print(watch, line);
    cn_score_lag_text(&view->progress, made, view->end_reason != NULL, lag);
    if (view->end_reason && lag[0])
        print(watch, lag);
}

static void print_curve(struct watch *watch, const char *name, const struct curve *curve,
                        const char *format, double scale)
{
    char drawn[CN_SPARKLINE_SIZE], from[32], to[32], line[LINE_SIZE];
    if (watch->count == 0 || isnan(curve->last))
        return;
    size_t columns = watch->columns > LABEL + LEGEND + 8 ? watch->columns - LABEL - LEGEND : 8;
    cn_sparkline_draw(curve->values, watch->count, columns, cn_screen_has_blocks(), drawn);
    snprintf(from, sizeof(from), format, curve->first * scale);
    snprintf(to, sizeof(to), format, curve->last * scale);
    snprintf(line, sizeof(line), "%-*s%s  %s to %s", LABEL, name, drawn, from, to);
    print(watch, line);
}

// Returns whether a board needs a person, or hinders the round.
static bool is_trouble(enum cn_reason_kind kind)
{
    switch (kind) {
    case CN_REASON_NEVER:
    case CN_REASON_TWICE:
    case CN_REASON_FAILED:
    case CN_REASON_AHEAD:
    case CN_REASON_MISSING:
    case CN_REASON_SILENT:
        return true;
    default:
        return false;
    }
}

// Prints a board with trouble and, where that fits in no line, the reason below it: what the board
// itself said comes last.
static void print_board(struct watch *watch, const struct cn_board_entry *board, const char *reason)
{
    enum cn_screen_color color =
        board->reason.kind == CN_REASON_FAILED ? CN_SCREEN_RED : CN_SCREEN_YELLOW;
    unsigned width = watch->columns > CN_WRAP_INDENT ? watch->columns - CN_WRAP_INDENT : 1;
    char line[LINE_SIZE];
    snprintf(line, sizeof(line), "  %-16s %-16s %s", board->name, board->group, reason);
    if (cn_screen_fit(line, watch->columns) == (int)strlen(line)) {
        paint(watch, color, line);
        return;
    }
    snprintf(line, sizeof(line), "  %-16s %s", board->name, board->group);
    paint(watch, color, line);
    for (unsigned i = 0; i < REASON_LINES && *reason; i++) {
        size_t length = cn_wrap_fit(reason, width);
        snprintf(line, sizeof(line), "%*s%.*s", CN_WRAP_INDENT, "", (int)length, reason);
        print(watch, line);
        reason += length + strspn(reason + length, " ");
    }
}

// Prints the boards with trouble: without keys to scroll, as many as there are rows for.
static void print_boards(struct watch *watch, uint64_t now_ms)
{
    char line[LINE_SIZE], reason[CN_REASON_SIZE];
    size_t bad = 0, enrolled = 0;
    for (size_t i = 0; i < watch->boards.count; i++) {
        enrolled += watch->boards.boards[i].reason.kind != CN_REASON_REVOKED;
        bad += is_trouble(watch->boards.boards[i].reason.kind);
    }
    snprintf(line, sizeof(line), "boards    %zu, %zu with trouble", enrolled, bad);
    paint(watch, bad ? CN_SCREEN_YELLOW : CN_SCREEN_GREEN, line);
    for (size_t i = 0; i < watch->boards.count; i++) {
        const struct cn_board_entry *board = &watch->boards.boards[i];
        if (!is_trouble(board->reason.kind))
            continue;
        if (!watch->screen->keyed &&
            watch->screen->count + 3 + REASON_LINES > watch->screen->rows) {
            print(watch, "  ... more: status without --watch has all");
            return;
        }
        cn_reason_text(&board->reason, now_ms, true, reason);
        print_board(watch, board, reason);
    }
}

static cn_err draw(struct watch *watch, uint64_t now_ms)
{
    struct cn_status_view *screen = watch->screen;
    bool over = watch->view.end_reason != NULL;
    cn_err err = cn_status_view_begin(screen);
    if (err)
        return err;
    watch->columns = screen->columns;
    print_run(watch);
    if (watch->live.warning[0])
        paint(watch, CN_SCREEN_RED, watch->live.warning);
    print(watch, "");
    print_curve(watch, "accuracy", &watch->accuracy, "%.4f", 1);
    print_curve(watch, "loss", &watch->loss, "%.5g", 1);
    print_curve(watch, "kB/round", &watch->bytes, "%.1f", 1e-3);
    print_boards(watch, now_ms);
    if (screen->live && !over && !screen->keyed)
        print(watch, "Ctrl-C ends this view, not the run");
    else if (!screen->live)
        print(watch, "");
    cn_status_view_show(screen, over);
    return CN_OK;
}

// Returns whether nobody reads what is written any more, such as `head` that has enough.
static bool has_no_reader(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    return ferror(stdout) || (poll(&out, 1, 0) > 0 && (out.revents & (POLLERR | POLLNVAL)));
}

// Looks at the run and draws it. Without a terminal that can be drawn over, *drawn is the newest
// version in what was drawn last, which is not drawn again. Sets *over when the run has ended.
static cn_err show(const struct cn_setup *setup, struct cn_status_view *screen, uint32_t *drawn,
                   bool *over)
{
    static struct watch watch; // large
    uint64_t now_ms = cn_platform_now_ms();
    watch = (struct watch){.setup = setup, .screen = screen};
    cn_err err = look(&watch, now_ms);
    uint32_t newest = watch.view.has_version ? watch.view.version.number : 0;
    *over = watch.view.end_reason != NULL;
    if (!err && (screen->live || newest != *drawn || *over))
        err = draw(&watch, now_ms);
    *drawn = newest;
    forget(&watch);
    return err;
}

int cn_status_watch(const struct cn_setup *setup, const atomic_bool *stop)
{
    struct cn_status_view screen = {0};
    bool over = false, gone = false;
    uint32_t drawn = UINT32_MAX;
    cn_err err = CN_OK;
    cn_status_view_open(&screen);
    while (!err && !over && !gone && !atomic_load(stop)) {
        err = show(setup, &screen, &drawn, &over);
        gone = has_no_reader();
        if (!err && !over && !gone && !cn_status_view_wait(&screen, DRAW_MS, stop))
            break;
    }
    cn_status_view_close(&screen);
    if (err)
        fprintf(stderr, "error: %s: %s\n", setup->state_name, cn_err_text(err));
    return err || gone ? CN_EXIT_FAILED : CN_EXIT_DONE;
}
