#include "aggregator/control/control.h"

#include <cjson/cJSON.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/control/control_private.h"
#include "aggregator/show/json_text.h"
#include "runtime/base/log.h"
#include "transport/local/local_listen.h"

#define FRESH_MS 1000 // how long a state that was made for status is shown again

static const char *const role_names[CN_CONTROL_ROLES] = {"view", "operator", "admin"};

const char *cn_control_role_name(enum cn_control_role role)
{
    return role_names[role];
}

void cn_control_refuse(struct cn_control_answer *answer, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(answer->text, sizeof(answer->text), format, values);
    va_end(values);
    answer->ok = false;
}

void cn_control_done(struct cn_control_answer *answer, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(answer->text, sizeof(answer->text), format, values);
    va_end(values);
    answer->ok = true;
}

// --- carrying out ---

// Reads an answer as keep stores it: "+" (carried out) or "-" (refused), then the text.
static void take_kept(const char *kept, struct cn_control_answer *answer)
{
    answer->ok = kept[0] == '+';
    snprintf(answer->text, sizeof(answer->text), "%s", kept[0] ? kept + 1 : "");
}

static cn_err keep(struct cn_control *control, const struct cn_control_request *request,
                   const struct cn_control_answer *answer)
{
    char kept[CN_STEERING_ANSWER_SIZE];
    snprintf(kept, sizeof(kept), "%c%.*s", answer->ok ? '+' : '-', (int)sizeof(kept) - 2,
             answer->text);
    return cn_steering_keep_answer(control->ledger, request->id, request->digest, kept);
}

// Begins a sentence about the run of a submitted job.
static void name_job(const struct cn_control *control, struct cn_control_answer *answer)
{
    char sentence[CN_STEERING_ANSWER_SIZE];
    if (!control->job)
        return;
    memcpy(sentence, answer->text, sizeof(sentence));
    snprintf(answer->text, sizeof(answer->text), "job %s: %.*s", control->job,
             (int)sizeof(sentence) - CN_NAME_SIZE - 8, sentence);
}

// Writes what the command changes and its answer in one transaction. A refusal changes nothing.
static cn_err write(struct cn_control *control, const struct cn_control_command *command,
                    const struct cn_control_request *request, struct cn_control_answer *answer)
{
    cn_err err = cn_ledger_begin_write(control->ledger);
    if (err)
        return err;
    err = command->write(control, request, answer);
    if (!err)
        name_job(control, answer);
    if (!err && answer->ok)
        err = keep(control, request, answer);
    if (!err && !answer->ok)
        err = CN_ECANCELED; // undoes what was begun
    err = cn_ledger_end_write(control->ledger, err);
    return err == CN_ECANCELED ? CN_OK : err;
}

static cn_err carry_out(struct cn_control *control, const struct cn_control_command *command,
                        const struct cn_control_request *request, struct cn_control_answer *answer)
{
    cn_err err = command->write ? write(control, command, request, answer) : CN_OK;
    if (!err && command->apply && (answer->ok || !command->write))
        err = command->apply(control, request, answer);
    if (err) {
        cn_control_refuse(answer, "the ledger: %s", cn_err_text(err));
        return err;
    }
    // Here the effect has come, whether or not its answer can be remembered.
    cn_err kept = !command->write && answer->ok ? keep(control, request, answer) : CN_OK;
    if (kept)
        cn_log(CN_LOG_WARN, "control", "%s: its answer is not remembered: %s", request->command,
               cn_err_text(kept));
    return CN_OK;
}

// Returns the submitted job that a request names; NULL: it names none.
static const char *job_of(const struct cn_control *control,
                          const struct cn_control_request *request)
{
    if (control->job)
        return control->job;
    bool own = strcmp(request->job, control->config.job->name) == 0;
    return request->members & CN_CONTROL_JOB && !own ? request->job : NULL;
}

// --- the audit ---

static cn_err audit(struct cn_control *control, const struct cn_audit_who *who,
                    const struct cn_control_request *request, const char *result, uint64_t of,
                    uint64_t *seq)
{
    char *arguments = cn_control_request_arguments(request);
    if (!arguments)
        return CN_ENOMEM;
    const struct cn_audit_entry entry = {
        .who = *who,
        .what = request->command,
        .arguments = arguments,
        .result = result,
        .of = of,
    };
    cn_err err = cn_audit_append(control->config.state, &entry, seq);
    cJSON_free(arguments);
    return err;
}

// Tells the audit, the events and the log the first line of the answer. Only the answer to a reload
// has more lines, one for each value.
static void note_result(struct cn_control *control, const struct cn_audit_who *who,
                        const struct cn_control_request *request,
                        const struct cn_control_answer *answer, uint64_t of)
{
    char result[256];
    int length = (int)strcspn(answer->text, "\n");
    snprintf(result, sizeof(result), "%s: %.*s", answer->ok ? "done" : "refused", length,
             answer->text);
    cn_err err = audit(control, who, request, result, of, NULL);
    if (err)
        cn_log(CN_LOG_ERROR, "control", "%s: its result is not in %s: %s", request->command,
               CN_AUDIT_FILE, cn_err_text(err));
    if (control->config.note && answer->ok)
        control->config.note(control->config.noting, request->command, job_of(control, request),
                             result);
    if (control->config.run)
        cn_log(CN_LOG_INFO, "control", "%s, asked by user %u at %s: %s", request->command, who->uid,
               who->by, result);
}

// Finds the answer to a command that was carried out before. Returns false when there is none. If
// the id was that of another command, or the ledger cannot be read, refuses and returns true.
static bool was_answered(struct cn_control *control, const struct cn_control_request *request,
                         struct cn_control_answer *answer)
{
    char kept[CN_STEERING_ANSWER_SIZE];
    cn_err err = cn_steering_find_answer(control->ledger, request->id, request->digest, kept);
    if (!err)
        take_kept(kept, answer);
    else if (err == CN_ECONFLICT)
        cn_control_refuse(answer, "id: it was the id of another command");
    else if (err != CN_ENOTFOUND)
        cn_control_refuse(answer, "the ledger: %s", cn_err_text(err));
    return err != CN_ENOTFOUND;
}

static void change(struct cn_control *control, const struct cn_control_command *command,
                   const struct cn_audit_who *who, const struct cn_control_request *request,
                   struct cn_control_answer *answer)
{
    uint64_t seq = 0;
    if (was_answered(control, request, answer))
        return;
    cn_err err = audit(control, who, request, "asked", 0, &seq);
    if (err) {
        cn_control_refuse(answer, "nothing is done, because %s/%s cannot be written: %s",
                          control->config.state, CN_AUDIT_FILE, cn_err_text(err));
        return;
    }
    if (carry_out(control, command, request, answer))
        cn_log(CN_LOG_ERROR, "control", "%s: %s", request->command, answer->text);
    control->shown_ms = 0;
    if (answer->ok && control->config.refresh)
        control->config.refresh(control->config.context);
    note_result(control, who, request, answer, seq);
}

// Carries out a command about the run of a submitted job, in the ledger of that job.
static void change_job(struct cn_control *control, const struct cn_control_command *command,
                       const struct cn_audit_who *who, const struct cn_control_request *request,
                       struct cn_control_answer *answer)
{
    struct cn_control_job found;
    const struct cn_job *own_job = control->config.job;
    struct cn_run *own_run = control->config.run;
    struct cn_ledger *own_ledger = control->ledger, *ledger;
    if (!control->config.find_job ||
        !control->config.find_job(control->config.context, request->job, &found)) {
        cn_control_refuse(answer, "the run of job %s is not open now: see `job list`",
                          request->job);
        return;
    }
    cn_err err = cn_ledger_open_existing(found.state, &ledger);
    if (err) {
        cn_control_refuse(answer, "the ledger of job %s: %s", request->job, cn_err_text(err));
        return;
    }
    control->job = request->job;
    control->config.job = found.job;
    control->config.run = found.run;
    control->ledger = ledger;
    change(control, command, who, request, answer);
    control->job = NULL;
    control->config.job = own_job;
    control->config.run = own_run;
    control->ledger = own_ledger;
    cn_ledger_close(ledger);
}

void cn_control_alone(const struct cn_control_config *config,
                      const struct cn_control_request *request, struct cn_control_answer *answer)
{
    struct cn_control control = {.config = *config};
    const struct cn_control_command *command = cn_control_find(request->command);
    const struct cn_audit_who who = cn_audit_self("command");
    *answer = (struct cn_control_answer){0};
    cn_err err = cn_ledger_open_existing(config->state, &control.ledger);
    if (err || !command || !command->alone)
        cn_control_refuse(answer, "%s", err ? cn_err_text(err) : "no aggregator runs");
    else
        change(&control, command, &who, request, answer);
    cn_ledger_close(control.ledger);
}

// --- requests ---

// Returns whether a readable request may not be carried out, and writes why.
static bool is_refused(const struct cn_control *control, const struct cn_control_command *command,
                       enum cn_control_role role, const struct cn_control_request *request,
                       struct cn_control_answer *answer)
{
    unsigned known = command ? command->allowed | command->required | CN_CONTROL_STATE : 0;
    if (!command)
        cn_control_refuse(answer, "command: this program has none of this name");
    else if (role < command->role)
        cn_control_refuse(answer, "%s needs the role %s; this socket gives the role %s",
                          command->name, role_names[command->role], role_names[role]);
    else if (request->members & ~known)
        cn_control_refuse(answer, "%s: the request has a member that it does not take",
                          command->name);
    else if (command->required & ~request->members)
        cn_control_refuse(answer, "%s: the request lacks a member", command->name);
    else if (request->members & CN_CONTROL_STATE &&
             strcmp(request->state, control->config.state) != 0)
        cn_control_refuse(answer, "state: this aggregator has %s, the profile names %s",
                          control->config.state, request->state);
    else
        return false;
    return true;
}

static void write_answer(const struct cn_control_request *request,
                         const struct cn_control_answer *answer, const struct cn_buffer *state,
                         struct cn_buffer *out)
{
    struct cn_json_text json;
    cn_json_text_init(&json, out);
    cn_json_open(&json, NULL, '{');
    if (request->id[0])
        cn_json_string(&json, "id", request->id);
    cn_json_bool(&json, "ok", answer->ok);
    if (state && state->size)
        cn_json_raw(&json, "state", state->data, state->size);
    else
        cn_json_string(&json, "text", answer->text);
    cn_json_close(&json, '}');
    if (json.err)
        (void)!cn_buffer_resize(out, 0);
}

// Boards wait while the state is made, so it is made at most once in FRESH_MS.
static cn_err make_state(struct cn_control *control)
{
    cn_err err = CN_OK;
    if (control->shown_ms && control->now_ms - control->shown_ms < FRESH_MS)
        return control->shown_err;
    control->shown_ms = control->now_ms;
    cn_buffer_deinit(&control->shown);
    cn_buffer_init(&control->shown, CN_LOCAL_ANSWER_MAX / 2);
    err = control->config.show(control->config.context, &control->shown);
    if (err)
        (void)!cn_buffer_resize(&control->shown, 0);
    control->shown_err = err;
    return err;
}

static void show(struct cn_control *control, const struct cn_control_command *command,
                 const struct cn_control_request *request, struct cn_control_answer *answer,
                 struct cn_buffer *out)
{
    struct cn_buffer read;
    if (command->read) {
        cn_buffer_init(&read, CN_LOCAL_ANSWER_MAX / 2);
        if (command->read(control, request, answer, &read))
            cn_control_refuse(answer, "%s", cn_err_text(CN_ENOMEM));
        write_answer(request, answer, answer->ok ? &read : NULL, out);
        cn_buffer_deinit(&read);
        return;
    }
    cn_err err = make_state(control);
    answer->ok = !err;
    if (err)
        cn_control_refuse(answer, "%s", cn_err_text(err));
    write_answer(request, answer, err ? NULL : &control->shown, out);
}

// Counts a command of an operator. Returns whether there were too many, and refuses it then.
static bool is_too_often(struct cn_control *control, enum cn_control_role role,
                         const struct cn_local_peer *peer, struct cn_control_answer *answer)
{
    if (role >= CN_CONTROL_ADMIN)
        return false;
    uint32_t wait_s =
        cn_operator_limit_take(&control->operators, peer->uid, peer->pid, control->now_ms);
    if (wait_s)
        cn_control_refuse(answer,
                          "an operator has %d commands a minute and %d an hour: wait for %u s",
                          CN_OPERATOR_MINUTE, CN_OPERATOR_HOUR, wait_s);
    return wait_s > 0;
}

static void handle(void *context, size_t socket, const struct cn_local_peer *peer, const char *line,
                   size_t size, struct cn_buffer *out)
{
    struct cn_control *control = context;
    struct cn_control_request request;
    struct cn_control_answer answer = {0};
    char reason[CN_CONTROL_REASON], by[CN_NAME_SIZE];
    enum cn_control_role role = control->roles[socket];
    const struct cn_audit_who who = {.uid = peer->uid, .pid = peer->pid, .by = by};
    snprintf(by, sizeof(by), "%s.sock", role_names[role]);
    cn_err err = cn_control_request_parse(line, size, &request, reason);
    const struct cn_control_command *command = err ? NULL : cn_control_find(request.command);
    if (err)
        cn_control_refuse(&answer, "%s", reason);
    else if (!is_refused(control, command, role, &request, &answer) && !command->changes) {
        show(control, command, &request, &answer, out);
        return;
    } else if (!answer.text[0] && !is_too_often(control, role, peer, &answer)) {
        if (command->of_run && job_of(control, &request))
            change_job(control, command, &who, &request, &answer);
        else
            change(control, command, &who, &request, &answer);
    }
    write_answer(&request, &answer, NULL, out);
    cn_crypto_wipe(&request, sizeof(request));
}

// --- opening, closing ---

// Gives each socket of the service manager the role that its name says. Closes those with other
// names.
static size_t take_handed(struct cn_control *control, struct cn_local_config *server)
{
    struct cn_local_handed handed[CN_LOCAL_SOCKETS];
    size_t count = cn_local_take_handed(handed, CN_LOCAL_SOCKETS);
    for (size_t i = 0; i < count; i++) {
        for (int role = 0; role < CN_CONTROL_ROLES; role++) {
            if (strcmp(handed[i].name, role_names[role]) != 0)
                continue;
            control->roles[server->count] = (enum cn_control_role)role;
            server->listening[server->count++] = handed[i].descriptor;
            handed[i].descriptor = -1;
            break;
        }
        if (handed[i].descriptor >= 0)
            cn_log(CN_LOG_WARN, "control",
                   "a socket of the service manager is called '%s', not view, operator or admin: "
                   "it is not used",
                   handed[i].name);
        cn_local_drop_handed(&handed[i]);
    }
    return server->count;
}

static cn_err listen_all(struct cn_control *control)
{
    struct cn_local_config server = {
        .too_long = "{\"ok\":false,\"text\":\"a line has at most 65536 bytes\"}",
        .too_many = "{\"ok\":false,\"text\":\"too many connections: try again\"}",
        .context = control,
        .handle = handle,
    };
    if (!take_handed(control, &server)) {
        cn_err err =
            cn_local_listen(control->config.state, CN_CONTROL_SOCKET, &server.listening[0]);
        if (err) {
            cn_log(CN_LOG_WARN, "control", "%s/%s: cannot listen: %s; signals steer the run",
                   control->config.state, CN_CONTROL_SOCKET, cn_err_reason(err));
            return CN_OK;
        }
        control->own_socket = true;
        control->roles[0] = CN_CONTROL_ADMIN;
        server.count = 1;
    }
    return cn_local_server_open(&server, &control->server);
}

cn_err cn_control_open(const struct cn_control_config *config, struct cn_control **control)
{
    *control = calloc(1, sizeof(**control));
    if (!*control)
        return CN_ENOMEM;
    (*control)->config = *config;
    cn_err err = cn_ledger_open_existing(config->state, &(*control)->ledger);
    if (!err)
        err = listen_all(*control);
    if (err) {
        cn_control_close(*control);
        *control = NULL;
    }
    return err;
}

void cn_control_close(struct cn_control *control)
{
    if (!control)
        return;
    if (control->own_socket)
        cn_local_unlisten(control->config.state, CN_CONTROL_SOCKET);
    cn_local_server_close(control->server);
    cn_buffer_deinit(&control->shown);
    cn_ledger_close(control->ledger);
    free(control);
}

void cn_control_step(struct cn_control *control, uint64_t now_ms)
{
    control->now_ms = now_ms;
    if (control->server)
        cn_local_server_step(control->server, now_ms);
}
