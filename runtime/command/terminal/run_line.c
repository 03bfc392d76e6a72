#include "runtime/command/terminal/run_line.h"

#include <stdio.h>

#include "runtime/base/log.h"
#include "runtime/command/terminal/screen.h"

#define LINE_MS 250 // shortest time between two drawings

void cn_run_line_open(struct cn_run_line *line)
{
    line->live = cn_screen_is_live(stderr);
    cn_log_set_over_line(line->live);
}

// Writes "; " and the time that is left, at the pace of the rounds that this process saw. A stop
// rule may end the run sooner.
static void describe_rest(struct cn_run_line *line, const struct cn_status_file *status,
                          uint64_t now_ms, char text[CN_SCREEN_LEFT_SIZE + 2])
{
    uint32_t round = status->progress.round, rounds = status->job->rounds;
    char left[CN_SCREEN_LEFT_SIZE] = "";

    if (!line->begun || line->run != status->run || round < line->begun) {
        line->run = status->run;
        line->begun = round;
        line->begun_ms = now_ms;
    }
    if (round <= rounds)
        cn_screen_time_left(now_ms - line->begun_ms, round - line->begun,
                            (uint64_t)rounds + 1 - line->begun, left);
    snprintf(text, CN_SCREEN_LEFT_SIZE + 2, "%s%s", left[0] ? "; " : "", left);
}

void cn_run_line_draw(void *context, const struct cn_status_file *status, uint64_t now_ms)
{
    const struct cn_progress *progress = &status->progress;
    char text[240], rest[CN_SCREEN_LEFT_SIZE + 2];
    struct cn_run_line *line = context;

    if (!line->live || now_ms - line->drawn_ms < LINE_MS)
        return;
    line->drawn_ms = now_ms;
    if (status->job && progress->round && !progress->ended) {
        describe_rest(line, status, now_ms, rest);
        snprintf(text, sizeof(text), "round %u of %u, step %u of %u: %s%s", progress->round,
                 status->job->rounds, progress->step, progress->steps, cn_status_text(status),
                 rest);
    } else {
        snprintf(text, sizeof(text), "%s", cn_status_text(status));
    }
    cn_screen_draw(stderr, text);
}

void cn_run_line_close(struct cn_run_line *line)
{
    if (line->live)
        cn_screen_clear(stderr);
    cn_log_set_over_line(false);
    line->live = false;
}
