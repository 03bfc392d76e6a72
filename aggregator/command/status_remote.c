#include "aggregator/command/status_remote.h"

#include <stdio.h>

#include "runtime/command/command.h"
#include "runtime/command/terminal/wrap.h"

#define LINE 1024

static const char *text_of(const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text ? text : "";
}

static double number_of(const cJSON *object, const char *name)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(number) ? number->valuedouble : 0;
}

static void print_run(const cJSON *run)
{
    char line[LINE];
    const char *paused = text_of(run, "paused");
    snprintf(line, sizeof(line), "run of job %s: version %.0f of %.0f%s%s", text_of(run, "job"),
             number_of(run, "version"), number_of(run, "rounds"), paused[0] ? "; paused: " : "",
             paused);
    cn_wrap_print(line, CN_WRAP_INDENT);
    snprintf(line, sizeof(line), "round %.0f: %s; %.0f of %.0f updates, %.0f groups invited",
             number_of(run, "round"), text_of(run, "phase"), number_of(run, "accepted"),
             number_of(run, "quorum"), number_of(run, "invited"));
    cn_wrap_print(line, CN_WRAP_INDENT);
}

static void print_alert(const cJSON *alert)
{
    char line[LINE];
    const char *about = text_of(alert, "board");
    if (!about[0])
        about = text_of(alert, "group");
    snprintf(line, sizeof(line), "%s: %s%s%s", text_of(alert, "level"), about, about[0] ? ": " : "",
             text_of(alert, "text"));
    cn_wrap_print(line, CN_WRAP_INDENT);
}

static void print_board(const cJSON *board)
{
    char line[LINE];
    snprintf(line, sizeof(line), "board %s in group %s: %s%s%s", text_of(board, "name"),
             text_of(board, "group"), text_of(board, "state"), text_of(board, "why")[0] ? "; " : "",
             text_of(board, "why"));
    cn_wrap_print(line, CN_WRAP_INDENT);
}

static void print_state(const cJSON *state)
{
    const cJSON *item;
    print_run(cJSON_GetObjectItemCaseSensitive(state, "run"));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(state, "alerts"))
    {
        print_alert(item);
    }
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(state, "boards"))
    {
        print_board(item);
    }
}

static int print_answer(const cJSON *answer, bool json)
{
    const cJSON *state = cJSON_GetObjectItemCaseSensitive(answer, "state");
    if (!state) {
        fprintf(stderr, "error: the aggregator's answer cannot be read\n");
        return CN_EXIT_FAILED;
    }
    char *text = json ? cJSON_PrintUnformatted(state) : NULL;
    if (text)
        printf("%s\n", text);
    else
        print_state(state);
    cJSON_free(text);
    return CN_EXIT_DONE;
}

int cn_status_remote_print(struct cn_steer *steer, const char *profile, bool json)
{
    bool reached;
    struct cn_profile *loaded = cn_command_load_profile(profile, CN_PROFILE_GATEWAY);
    if (!loaded)
        return CN_EXIT_PROFILE;
    const struct cn_settings *settings = cn_profile_settings(loaded);
    cJSON *answer = cn_steer_ask(steer, settings, "status", &reached);
    if (!reached && steer->socket)
        fprintf(stderr, "error: %s: nobody listens there\n", steer->socket);
    else if (!reached)
        fprintf(stderr, "error: %s: this user may not read it, and no aggregator answers\n",
                settings->state);
    int result = answer ? print_answer(answer, json) : CN_EXIT_FAILED;
    cJSON_Delete(answer);
    cn_profile_free(loaded);
    return result;
}
