#include "boards/flash/board/enrol.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "boards/flash/tool/remote.h"
#include "runtime/command/command.h"
#include "runtime/port/crypto.h"

#define SSH "ssh://"
#define PROGRAM "cairn-aggregator"
#define NO_RUN "no run was ever started here" // cairn-aggregator without a ledger says this
#define KEY_MAX 512
#define LIMIT_MS 120000 // for an answer of the aggregator; ssh alone bounds only a dead connection

struct place {
    char host[256]; // "" when the gateway is this machine
    char profile[512];
};

// Tells whether a remote shell passes text on unchanged.
static bool is_word(const char *text)
{
    return text[0] && text[0] != '-' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._@:+-") ==
               strlen(text);
}

bool cn_enrol_is_remote(const char *gateway)
{
    return strncmp(gateway, SSH, strlen(SSH)) == 0;
}

static bool find_place(const char *gateway, struct place *place)
{
    const char *rest, *slash;

    *place = (struct place){0};
    if (!cn_enrol_is_remote(gateway))
        return (size_t)snprintf(place->profile, sizeof(place->profile), "%s", gateway) <
               sizeof(place->profile);
    rest = gateway + strlen(SSH);
    slash = strchr(rest, '/');
    if (slash && (size_t)(slash - rest) < sizeof(place->host) &&
        strlen(slash) < sizeof(place->profile)) {
        snprintf(place->host, sizeof(place->host), "%.*s", (int)(slash - rest), rest);
        snprintf(place->profile, sizeof(place->profile), "%s", slash);
    }
    if (is_word(place->host) && is_word(place->profile))
        return true;
    cn_console_error(NULL, "--gateway '%s': expected a profile, or ssh://HOST/PATH", gateway);
    return false;
}

static cn_err ask_there(const struct place *place, const char *script,
                        struct cn_process_result *result)
{
    char host[sizeof(SSH) + sizeof(place->host)]; // an ssh URI, because it may contain a port
    const char *const argv[] = CN_REMOTE_COMMAND(host, script);

    snprintf(host, sizeof(host), SSH "%s", place->host);
    return cn_process_run_within(argv, -1, LIMIT_MS, result);
}

static void explain(struct cn_process_result *result, const struct place *place, const char *what)
{
    cn_console_error(result->code == 127 && !place->host[0]
                         ? "install cairn-aggregator, or give ssh://HOST/PATH"
                         : NULL,
                     "%s: the aggregator%s%s: %s", what, place->host[0] ? " on " : "", place->host,
                     cn_process_complaint(result));
}

static int keep_key(struct cn_process_result *result, const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool kept = file >= 0 && result->out.size > 0 && result->out.size < KEY_MAX &&
                write(file, result->out.data, result->out.size) == (ssize_t)result->out.size;

    if (file >= 0)
        close(file);
    if (!kept)
        cn_console_error(NULL, "the key that the aggregator sent cannot be kept");
    return kept ? CN_EXIT_DONE : CN_EXIT_FAILED;
}

// Enrols the board on the gateway over ssh: the key is made in a temporary folder there, printed
// and wiped.
static cn_err enrol_there(const struct cn_target_options *order, const struct place *place,
                          struct cn_process_result *result)
{
    char script[2048], group[160] = "";

    if (order->group)
        snprintf(group, sizeof(group), "--group %s", order->group);
    snprintf(script, sizeof(script),
             "d=$(mktemp -d) && " PROGRAM " enroll %s %s %s -o $d/key >&2 && cat $d/key; c=$?; "
             "shred -u $d/key 2>/dev/null; rm -rf $d; exit $c",
             place->profile, order->name, group);
    return ask_there(place, script, result);
}

static cn_err enrol_here(const struct cn_target_options *order, const struct place *place,
                         const char *path, struct cn_process_result *result)
{
    const char *argv[] = {PROGRAM,
                          "enroll",
                          place->profile,
                          order->name,
                          "-o",
                          path,
                          order->group ? "--group" : NULL,
                          order->group,
                          NULL};

    return cn_process_run_within(argv, -1, LIMIT_MS, result);
}

// Runs "cairn-aggregator COMMAND" with PROFILE and one more argument on the gateway. An option that
// begins with '-' goes before the profile, any other argument after it: "revoke PROFILE NAME", but
// "status --json PROFILE". Deinitialise result after CN_OK. Returns CN_EINVAL, after printing why,
// when gateway is malformed.
static cn_err ask_gateway(const char *gateway, const char *command, const char *option,
                          struct cn_process_result *result)
{
    struct place place;
    char script[2048];
    bool leads = option[0] == '-';

    if (!find_place(gateway, &place))
        return CN_EINVAL;
    if (place.host[0]) {
        snprintf(script, sizeof(script), PROGRAM " %s %s %s", command,
                 leads ? option : place.profile, leads ? place.profile : option);
        return ask_there(&place, script, result);
    }
    const char *const argv[] = {PROGRAM, command, leads ? option : place.profile,
                                leads ? place.profile : option, NULL};
    return cn_process_run_within(argv, -1, LIMIT_MS, result);
}

static void explain_unknown(const struct cn_target_options *order)
{
    cn_console_error("'cairn-aggregator status' there lists it, if it is; 'revoke' takes it back",
                     "whether %s is enrolled is not known", order->name);
}

static bool is_enrolled(const struct cn_enrolment *found)
{
    return found->enrolled && !found->revoked;
}

// Revokes the board, or finds that there is nothing to revoke. Returns whether it is not enrolled.
static bool take_back(const struct cn_target_options *order)
{
    struct cn_process_result answer;
    struct cn_enrolment found;
    bool revoked = false;

    if (ask_gateway(order->gateway, "revoke", order->name, &answer) == CN_OK) {
        revoked = answer.code == 0;
        cn_process_deinit(&answer);
    }
    if (revoked)
        cn_console_step("revoked", "the enrolment of %s is taken back", order->name);
    return revoked || (cn_enrol_look(order->gateway, order->name, true, &found) == CN_EXIT_DONE &&
                       !is_enrolled(&found));
}

// Revokes the board if it may have been enrolled although the program failed: it was ended by a
// signal or lost its connection (255, ssh(1)). known: `before` holds the board's state before
// enrolling. A board that was enrolled before stays enrolled. Returns whether nothing is left to be
// taken back.
static bool settle(const struct cn_target_options *order, const struct cn_process_result *result,
                   bool known, const struct cn_enrolment *before)
{
    if (result->code <= 128)
        return true;
    if (is_enrolled(before)) {
        cn_console_step("kept", "%s was enrolled before and stays so", order->name);
        return true;
    }
    if (known && take_back(order))
        return true;
    explain_unknown(order);
    return false;
}

// Enrols the board. before holds its state before that if known. After a failure, *settled says
// whether nothing is left to be taken back.
static int enrol(const struct cn_target_options *order, const struct place *place, const char *path,
                 bool known, const struct cn_enrolment *before, bool *settled)
{
    struct cn_process_result result;
    cn_err err = place->host[0] ? enrol_there(order, place, &result)
                                : enrol_here(order, place, path, &result);
    int code = !err && result.code == 0 ? CN_EXIT_DONE : CN_EXIT_FAILED;
    if (code) {
        explain(&result, place, "not enrolled");
        *settled = settle(order, &result, known, before);
    } else if (place->host[0]) {
        code = keep_key(&result, path);
        *settled = code && cn_enrol_revoke(order) == CN_EXIT_DONE;
    }
    if (result.out.data)
        cn_crypto_wipe(result.out.data, result.out.size);
    cn_process_deinit(&result);
    if (!code)
        cn_console_step("enrolled", "%s is enrolled in group %s", order->name,
                        order->group ? order->group : order->name);
    return code;
}

int cn_enrol_make(const struct cn_target_options *order, const struct cn_workspace *space,
                  cn_enrol_note *note, void *context, char *path, size_t size)
{
    struct cn_enrolment before;
    struct place place;
    bool known, noted = false, settled = false;
    int code = CN_EXIT_DONE;

    if (order->key) {
        snprintf(path, size, "%s", order->key);
        return CN_EXIT_DONE;
    }
    if (!find_place(order->gateway, &place))
        return CN_EXIT_USAGE;
    if (order->group && !cn_name_valid(order->group)) {
        cn_console_error(NULL, "--group '%s' is not a name", order->group);
        return CN_EXIT_USAGE;
    }
    snprintf(path, size, "%s/node.key", space->path);
    known = cn_enrol_look(order->gateway, order->name, true, &before) == CN_EXIT_DONE;
    if (note && !known) {
        cn_console_error(before.missing && !place.host[0]
                             ? "install cairn-aggregator, or give ssh://HOST/PATH"
                             : NULL,
                         "not enrolled: the aggregator%s%s: %s", place.host[0] ? " on " : "",
                         place.host, before.reason);
        return CN_EXIT_FAILED;
    }
    noted = note && !is_enrolled(&before);
    if (noted)
        code = note(context, true);
    if (code)
        return code;
    code = enrol(order, &place, path, known, &before, &settled);
    return code && noted && settled && note(context, false) ? CN_EXIT_FAILED : code;
}

int cn_enrol_revoke(const struct cn_target_options *order)
{
    struct cn_process_result result;
    int code;

    if (!order->gateway)
        return CN_EXIT_DONE;
    if (ask_gateway(order->gateway, "revoke", order->name, &result))
        return CN_EXIT_FAILED;
    code = result.code == 0 ? CN_EXIT_DONE : CN_EXIT_FAILED;
    if (!code)
        cn_console_step("revoked", "the enrolment of %s is taken back", order->name);
    else
        cn_console_error("revoke it by hand: cairn-aggregator revoke",
                         "the enrolment of %s stays, its key is on no card", order->name);
    cn_process_deinit(&result);
    return code;
}

// Calls take for each line of a status.
static void take_lines(const struct cn_buffer *out, void (*take)(void *, const cJSON *),
                       void *context)
{
    for (size_t at = 0; at < out->size;) {
        const char *line = (const char *)out->data + at;
        const char *end = memchr(line, '\n', out->size - at);
        size_t size = end ? (size_t)(end - line) : out->size - at;
        cJSON *object = cJSON_ParseWithLength(line, size);

        if (object)
            take(context, object);
        cJSON_Delete(object);
        at += size + 1;
    }
}

// Tells whether a status that ended with this code may succeed later. A missing program or profile
// stays missing.
static bool may_pass(int code)
{
    return code != 127 && code != CN_EXIT_USAGE && code != CN_EXIT_PROFILE;
}

// Reads the status, quietly. After CN_EXIT_FAILED, fault says why.
static int read_status(const char *gateway, void (*take)(void *, const cJSON *), void *context,
                       struct cn_enrolment *fault)
{
    struct cn_process_result result;
    bool good;

    if (ask_gateway(gateway, "status", "--json", &result))
        return CN_EXIT_USAGE;
    good = result.code == 0;
    if (good) {
        take_lines(&result.out, take, context);
    } else {
        fault->away = may_pass(result.code);
        fault->missing = result.code == 127;
        snprintf(fault->reason, sizeof(fault->reason), "%s", cn_process_complaint(&result));
    }
    cn_process_deinit(&result);
    return good ? CN_EXIT_DONE : CN_EXIT_FAILED;
}

int cn_enrol_list(const char *gateway, bool quiet, void (*take)(void *, const cJSON *),
                  void *context)
{
    struct cn_enrolment fault = {0};
    int code = read_status(gateway, take, context, &fault);

    if (code == CN_EXIT_FAILED && !quiet)
        cn_console_error(NULL, "the aggregator's status: %s", fault.reason);
    return code;
}

struct look {
    const char *name;
    struct cn_enrolment *found;
};

static void look_at(void *context, const cJSON *object)
{
    const struct look *look = context;
    const cJSON *board = cJSON_GetObjectItemCaseSensitive(object, "board");

    if (!cJSON_IsString(board) || strcmp(board->valuestring, look->name) != 0)
        return;
    look->found->enrolled = true;
    look->found->revoked = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, "revoked"));
    look->found->heard = cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(object, "silent_s"));
}

int cn_enrol_look(const char *gateway, const char *name, bool quiet, struct cn_enrolment *found)
{
    struct look look = {name, found};
    int code;

    *found = (struct cn_enrolment){0};
    code = read_status(gateway, look_at, &look, found);
    // A gateway whose first run is still to come has enrolled nobody.
    if (code == CN_EXIT_FAILED && strstr(found->reason, NO_RUN)) {
        *found = (struct cn_enrolment){0};
        return CN_EXIT_DONE;
    }
    if (code == CN_EXIT_FAILED && !quiet)
        cn_console_error(NULL, "the aggregator's status: %s", found->reason);
    return code;
}

int cn_enrol_settle(const struct cn_target_options *order, bool *heard)
{
    struct cn_enrolment found;
    int code = cn_enrol_look(order->gateway, order->name, false, &found);

    *heard = false;
    if (code || !found.enrolled || found.revoked)
        return code;
    *heard = found.heard;
    return found.heard ? CN_EXIT_DONE : cn_enrol_revoke(order);
}
