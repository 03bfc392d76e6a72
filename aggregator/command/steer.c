#include "aggregator/command/steer.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/steer_explain.h"
#include "aggregator/control/control.h"
#include "aggregator/daemon/job_place.h"
#include "runtime/base/printable.h"
#include "transport/local/local_client.h"
#include "transport/local/local_listen.h"

#define TIMEOUT_MS 600000 // a merge of a large model may come before the answer
#define ID_BYTES 12

bool cn_steer_read_option(struct cn_steer *steer, int option, const char *value)
{
    if (option == 'S')
        steer->socket = value;
    else if (option == 'I')
        steer->id = value;
    else if (option == 'J' && steer->of_run && cn_steer_set_name(value, steer->request.job))
        steer->request.members |= CN_CONTROL_JOB;
    else
        return false;
    return true;
}

bool cn_steer_set_name(const char *text, char name[CN_NAME_SIZE])
{
    if (!cn_name_valid(text)) {
        fprintf(stderr,
                "error: %s: a name has 1 to 63 of a-z 0-9 . _ - and starts with a letter or "
                "digit\n",
                text);
        return false;
    }
    snprintf(name, CN_NAME_SIZE, "%s", text);
    return true;
}

// Returns whether this user may not write to the state directory. A file in its place does not
// count: it is reported later.
static bool is_closed(const char *state, int rights)
{
    struct stat info;
    if (stat(state, &info) != 0)
        return errno == EACCES;
    return S_ISDIR(info.st_mode) && access(state, rights) != 0 && errno == EACCES;
}

bool cn_steer_is_needed(const struct cn_steer *steer, const char *profile, int rights)
{
    struct cn_profile *loaded = NULL;
    struct cn_diag diag;
    bool needed = steer->socket != NULL;
    cn_diag_init(&diag);
    cn_err err = needed ? CN_OK : cn_profile_load(profile, &diag, &loaded);
    if (!err && loaded)
        needed = is_closed(cn_profile_settings(loaded)->state, rights);
    cn_profile_free(loaded);
    return needed;
}

// --- finding the socket ---

static cn_err connect_path(const char *path, int *descriptor)
{
    char directory[CN_PATH_SIZE];
    const char *name = strrchr(path, '/');
    int length = name ? (int)(name - path) + 1 : 2;
    if ((size_t)length >= sizeof(directory))
        return CN_EINVAL;
    snprintf(directory, sizeof(directory), "%.*s", length, name ? path : "./");
    return cn_local_connect(directory, name ? name + 1 : path, descriptor);
}

// Tries the socket in the state directory, then those of the service, beginning with the one that
// permits most. The request to the service also names the state directory, because the service may
// have another one.
static cn_err connect_any(struct cn_steer *steer, const char *state, int *descriptor)
{
    if (steer->socket)
        return connect_path(steer->socket, descriptor);
    cn_err err = cn_local_connect(state, CN_CONTROL_SOCKET, descriptor);
    for (int role = CN_CONTROL_ROLES - 1; err && role >= 0; role--) {
        char name[CN_LOCAL_NAME_SIZE];
        snprintf(name, sizeof(name), "%s.sock", cn_control_role_name((enum cn_control_role)role));
        cn_err next = cn_local_connect(CN_STEER_SERVICE, name, descriptor);
        if (!next) {
            snprintf(steer->request.state, sizeof(steer->request.state), "%s", state);
            steer->request.members |= CN_CONTROL_STATE;
        }
        err = next == CN_ENOTFOUND ? err : next;
    }
    return err;
}

// Finds the gateway of the profile. If that of a submitted job was given, the request names the
// job.
static cn_err connect_gateway(struct cn_steer *steer, const struct cn_settings *settings,
                              int *descriptor)
{
    struct cn_job_place place;
    if (!steer->of_run || !cn_job_place_find(settings->state, &place))
        return connect_any(steer, settings->state, descriptor);
    if (!(steer->request.members & CN_CONTROL_JOB))
        memcpy(steer->request.job, place.job, sizeof(steer->request.job));
    steer->request.members |= CN_CONTROL_JOB;
    return connect_any(steer, place.gateway, descriptor);
}

// --- asking ---

static cn_err choose_id(struct cn_steer *steer)
{
    uint8_t bytes[ID_BYTES];
    if (steer->id) {
        snprintf(steer->request.id, sizeof(steer->request.id), "%s", steer->id);
        return strlen(steer->id) < sizeof(steer->request.id) ? CN_OK : CN_EINVAL;
    }
    cn_err err = cn_crypto_random(bytes, sizeof(bytes));
    cn_hex(steer->request.id, bytes, sizeof(bytes));
    return err;
}

// Cleans all texts of an answer: the socket may be anybody's, and they go to a terminal.
static void clean(cJSON *item)
{
    for (; item; item = item->next) {
        if (item->string)
            cn_printable_clean(item->string);
        if (item->valuestring)
            cn_printable_clean_lines(item->valuestring);
        clean(item->child); // as deep as cJSON reads, 1000 at most
    }
}

// Prints the answer, or only an error if there is one.
static int print_answer(const cJSON *root)
{
    const char *said = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "text"));
    const cJSON *state = cJSON_GetObjectItemCaseSensitive(root, "state");
    bool ok = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "ok"));
    char *shown = state ? cJSON_PrintUnformatted(state) : NULL;
    if (ok && (shown || said))
        printf("%s\n", shown ? shown : said);
    else
        fprintf(stderr, "error: %s\n", said ? said : "the aggregator's answer cannot be read");
    cJSON_free(shown);
    return ok ? CN_EXIT_DONE : CN_EXIT_FAILED;
}

// Sends the request. Returns the answer, or NULL after it printed why there is none.
static cJSON *ask(struct cn_steer *steer, int descriptor)
{
    struct cn_buffer answer;
    cJSON *root = NULL;
    char *line = cn_control_request_print(&steer->request);
    cn_buffer_init(&answer, CN_LOCAL_ANSWER_MAX + 1);
    cn_err err = line ? cn_local_ask(descriptor, line, TIMEOUT_MS, &answer) : CN_ENOMEM;
    if (!err)
        root = cJSON_Parse((const char *)answer.data);
    clean(root);
    steer->unanswered =
        line && !cJSON_HasObjectItem(root, "text") && !cJSON_HasObjectItem(root, "state");
    if (err)
        fprintf(stderr,
                "error: the aggregator gave no answer: %s; whether it did what was asked, the same "
                "command with --id %s finds out\n",
                cn_err_text(err), steer->request.id);
    else if (!root)
        fprintf(stderr, "error: the aggregator's answer cannot be read\n");
    if (line)
        cn_crypto_wipe(line, strlen(line));
    cJSON_free(line);
    cn_buffer_deinit(&answer);
    return root;
}

static bool prepare(struct cn_steer *steer, const char *command)
{
    snprintf(steer->request.command, sizeof(steer->request.command), "%s", command);
    cn_err err = choose_id(steer);
    if (err)
        fprintf(stderr, "error: --id: %s\n",
                err == CN_EINVAL ? "expected at most 64 characters" : cn_err_text(err));
    return !err;
}

// Connects and sends the request. Returns the answer, or NULL after it printed why there is none;
// nothing is printed if no aggregator answers.
static cJSON *reach(struct cn_steer *steer, const struct cn_settings *settings, const char *command,
                    bool *reached, int *result)
{
    int descriptor;
    *reached = true;
    *result = CN_EXIT_USAGE;
    if (!prepare(steer, command))
        return NULL;
    *result = CN_EXIT_FAILED;
    cn_err err = connect_gateway(steer, settings, &descriptor);
    if (err == CN_ENOTFOUND) {
        *reached = false;
        return NULL;
    }
    if (err) {
        fprintf(stderr, "error: %s: %s\n",
                steer->socket ? steer->socket : "the aggregator's control socket",
                err == CN_EAUTH ? "this user may not connect to it" : cn_err_text(err));
        return NULL;
    }
    cJSON *root = ask(steer, descriptor);
    close(descriptor);
    return root;
}

int cn_steer_try(struct cn_steer *steer, const struct cn_settings *settings, const char *command,
                 bool *reached)
{
    int result;
    cJSON *root = reach(steer, settings, command, reached, &result);
    if (root)
        result = print_answer(root);
    cJSON_Delete(root);
    return result;
}

cJSON *cn_steer_ask(struct cn_steer *steer, const struct cn_settings *settings, const char *command,
                    bool *reached)
{
    int result;
    cJSON *root = reach(steer, settings, command, reached, &result);
    if (!root || cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "ok")))
        return root;
    print_answer(root);
    cJSON_Delete(root);
    return NULL;
}

// --- without a socket ---

int cn_steer_write(struct cn_steer *steer, const struct cn_setup *setup, const char *command)
{
    static struct cn_control_answer answer;
    const struct cn_control_config config = {.state = setup->settings->state, .job = &setup->job};
    if (!prepare(steer, command))
        return CN_EXIT_USAGE;
    if (cn_control_request_digest(&steer->request)) {
        fprintf(stderr, "error: %s\n", cn_err_text(CN_ENOMEM));
        return CN_EXIT_FAILED;
    }
    cn_control_alone(&config, &steer->request, &answer);
    if (answer.ok)
        printf("%s\n", answer.text);
    else
        fprintf(stderr, "error: %s\n", answer.text);
    return answer.ok ? CN_EXIT_DONE : CN_EXIT_FAILED;
}

// A command that needs the aggregator opens nothing: the lock could keep one that starts from its
// state.
static int refuse_alone(const struct cn_settings *settings, const char *command)
{
    struct cn_job_place place;
    bool of_job = cn_job_place_find(settings->state, &place);
    if (!cn_steer_explain(settings))
        fprintf(stderr,
                "error: %s: no aggregator runs with this state; %s needs one: start it with "
                "'cairn-aggregator run %s'\n",
                of_job ? place.gateway : settings->state, command,
                of_job ? "GATEWAY.yaml" : "PROFILE");
    return CN_EXIT_FAILED;
}

static int write_alone(struct cn_steer *steer, const char *profile, const char *command)
{
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, profile, CN_SETUP_ALONE);
    if (!result)
        result = cn_steer_write(steer, &setup, command);
    else if (setup.settings && !setup.store)
        (void)cn_steer_explain(setup.settings);
    cn_setup_deinit(&setup);
    return result;
}

int cn_steer_send(struct cn_steer *steer, const char *profile, const char *command)
{
    bool reached = true, alone = false;
    struct cn_profile *loaded = cn_command_load_profile(profile, CN_PROFILE_GATEWAY);
    if (!loaded)
        return CN_EXIT_PROFILE;
    const struct cn_settings *settings = cn_profile_settings(loaded);
    int result = CN_EXIT_FAILED;
    if (steer->of_run || !cn_setup_refuse_job(settings->state))
        result = cn_steer_try(steer, settings, command, &reached);
    if (!reached && steer->socket)
        fprintf(stderr, "error: %s: nobody listens there\n", steer->socket);
    else if (!reached && !(alone = cn_control_works_alone(command)))
        result = refuse_alone(settings, command);
    cn_profile_free(loaded);
    return alone ? write_alone(steer, profile, command) : result;
}

int cn_steer_group_command(int argc, char **argv, const char *command)
{
    static const struct option known[] = {CN_STEER_OPTIONS, {0}};
    struct cn_steer steer = {0};
    const char *positional[2];
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (!cn_steer_read_option(&steer, option, optarg))
            return CN_EXIT_USAGE;
    bool named = argc - optind == 2;
    if (!cn_aggregator_arguments(argc, argv, named ? 2 : 1, "PROFILE [GROUP]", positional))
        return CN_EXIT_USAGE;
    if (named && !cn_steer_set_name(positional[1], steer.request.group))
        return CN_EXIT_USAGE;
    if (named)
        steer.request.members |= CN_CONTROL_GROUP;
    return cn_steer_send(&steer, positional[0], command);
}
