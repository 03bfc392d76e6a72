#include "aggregator/command/view/status_view.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/port/platform.h"

#define STEP_MS 50 // between looks whether to stop
#define PLAIN_MARK ' '

// Has a signal end the program as Ctrl-C does. One that is ignored, as nohup does with SIGHUP,
// stays ignored.
static void catch_end(int signal, const struct sigaction *action)
{
    struct sigaction before;
    if (sigaction(signal, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        (void)sigaction(signal, action, NULL);
}

// The program ends as after Ctrl-C, so that the terminal is restored.
static void catch_ends(void)
{
    struct sigaction action;
    if (sigaction(SIGINT, NULL, &action) != 0)
        return;
    catch_end(SIGQUIT, &action);
    catch_end(SIGHUP, &action);
}

void cn_status_view_open(struct cn_status_view *view)
{
    view->live = cn_screen_is_live(stdout);
    if (!view->live)
        return;
    catch_ends();
    view->keyed = cn_keys_open(&view->keys);
}

void cn_status_view_close(struct cn_status_view *view)
{
    cn_keys_close(&view->keys);
    if (view->page)
        fclose(view->page);
    free(view->text);
    *view = (struct cn_status_view){0};
}

// --- the page ---

cn_err cn_status_view_begin(struct cn_status_view *view)
{
    free(view->text);
    view->text = NULL;
    view->count = 0;
    view->columns = cn_screen_columns(stdout);
    view->rows = cn_screen_rows(stdout);
    view->page = open_memstream(&view->text, &view->size);
    return view->page ? CN_OK : CN_ENOMEM;
}

void cn_status_view_add(struct cn_status_view *view, int color, const char *line)
{
    int mark = color == CN_STATUS_PLAIN ? PLAIN_MARK : '0' + color;
    fprintf(view->page, "%c%.*s\n", mark, cn_screen_fit(line, view->columns), line);
    view->count++;
}

// Returns a line of the page: its mark, its text and a newline. NULL: there are not so many.
static char *find_line(const struct cn_status_view *view, unsigned number)
{
    char *line = view->text;
    for (unsigned i = 0; line && i < number; i++) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return line && *line ? line : NULL;
}

// Prints lines from number first on.
static void print_lines(const struct cn_status_view *view, unsigned first, unsigned most)
{
    char *line = find_line(view, first);
    for (unsigned i = 0; line && i < most; i++) {
        char *end = strchr(line, '\n');
        *end = '\0';
        if (*line == PLAIN_MARK)
            fputs(line + 1, stdout);
        else
            cn_screen_paint(stdout, (enum cn_screen_color)(*line - '0'), line + 1);
        putchar('\n');
        *end = '\n';
        line = end[1] ? end + 1 : NULL;
    }
}

// --- what of it is shown ---

// Returns the number of lines that fit above the last one, which says what keys do.
static unsigned height(const struct cn_status_view *view)
{
    return view->rows > 1 ? view->rows - 1 : 1;
}

static void scroll(struct cn_status_view *view, int lines)
{
    unsigned most = view->count > height(view) ? view->count - height(view) : 0;
    int64_t top = (int64_t)view->top + lines;
    view->top = top < 0 ? 0 : top > most ? most : (unsigned)top;
}

static void print_footer(const struct cn_status_view *view)
{
    char footer[160], part[48] = "";
    unsigned end = view->top + height(view) < view->count ? view->top + height(view) : view->count;
    if (view->count > height(view))
        snprintf(part, sizeof(part), "; j k scroll, %u-%u of %u", view->top + 1, end, view->count);
    snprintf(footer, sizeof(footer), "q ends this view, not the run; %s%s",
             view->paused ? "PAUSED, space goes on" : "space pauses it", part);
    printf("%.*s", cn_screen_fit(footer, view->columns - 1), footer);
}

static void draw(struct cn_status_view *view, bool last)
{
    if (view->live)
        fputs("\033[H\033[J", stdout); // ECMA-48: to the upper left, erase all behind
    if (!view->keyed || last) {
        print_lines(view, 0, view->count);
    } else {
        scroll(view, 0); // the page may be shorter now
        print_lines(view, view->top, height(view));
        print_footer(view);
    }
    fflush(stdout);
}

void cn_status_view_show(struct cn_status_view *view, bool last)
{
    bool made = fclose(view->page) == 0;
    view->page = NULL;
    if (made)
        draw(view, last);
}

// --- keys ---

// Returns false when a person ends the view.
static bool follow(struct cn_status_view *view, enum cn_key key)
{
    int page = (int)height(view);
    switch (key) {
    case CN_KEY_NONE:
        return true;
    case CN_KEY_QUIT:
        return false;
    case CN_KEY_PAUSE:
        view->paused = !view->paused;
        break;
    case CN_KEY_UP:
    case CN_KEY_DOWN:
        scroll(view, key == CN_KEY_UP ? -1 : 1);
        break;
    case CN_KEY_PAGE_UP:
    case CN_KEY_PAGE_DOWN:
        scroll(view, key == CN_KEY_PAGE_UP ? -page : page);
        break;
    default:
        break;
    }
    view->rows = cn_screen_rows(stdout);
    draw(view, false);
    return true;
}

// Waits for a key, or without keys for the same time.
static enum cn_key wait_for_key(struct cn_status_view *view)
{
    if (view->keyed)
        return cn_keys_wait(&view->keys, STEP_MS);
    cn_platform_sleep_ms(STEP_MS);
    return CN_KEY_NONE;
}

bool cn_status_view_wait(struct cn_status_view *view, uint32_t wait_ms, const atomic_bool *stop)
{
    uint64_t end_ms = cn_platform_now_ms() + wait_ms;
    bool goes_on = true;
    while (goes_on && (view->paused || cn_platform_now_ms() < end_ms))
        goes_on = follow(view, wait_for_key(view)) && !atomic_load(stop);
    if (!goes_on && view->keyed)
        putchar('\n'); // what comes next begins below the last line
    return goes_on;
}
