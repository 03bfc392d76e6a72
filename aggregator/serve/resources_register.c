// resources_register.c - POST reg: what a board says of itself, and the manifest in return.
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/roster/fault.h"
#include "aggregator/serve/resources_private.h"
#include "runtime/base/log.h"
#include "runtime/update/local_tensors.h"
#include "transport/coap/address.h"
#include "transport/message/message.h"

// Returns the highest version that both sides know, or 0 if there is none.
static uint32_t pick(struct cn_version_range board, uint32_t min, uint32_t max)
{
    uint32_t highest = board.max < max ? board.max : max;
    return highest >= min && highest >= board.min ? highest : 0;
}

// The job says which versions of updates and of the graph operators a board must know at least.
static bool pick_versions(const struct cn_register_request *request, const struct cn_job *job,
                          struct cn_register_reply *manifest, struct cn_coap_reply *reply)
{
    const struct {
        const char *what;
        struct cn_version_range board;
        uint32_t min, max;
        uint32_t *picked;
    } rows[] = {
        {"protocol", request->protocol, CN_PROTOCOL_MIN, CN_PROTOCOL_MAX, &manifest->protocol},
        {"update format", request->update_format, cn_message_update_format(job),
         CN_UPDATE_FORMAT_MAX, &manifest->update_format},
        {"graph ops", request->graph_ops, cn_message_graph_ops(job), CN_GRAPH_OPS_MAX,
         &manifest->graph_ops},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        *rows[i].picked = pick(rows[i].board, rows[i].min, rows[i].max);
        if (*rows[i].picked)
            continue;
        cn_coap_reply_error(reply, CN_COAP_FORBIDDEN,
                            "%s: the board speaks %u to %u, the aggregator %u to %u", rows[i].what,
                            rows[i].board.min, rows[i].board.max, rows[i].min, rows[i].max);
        return false;
    }
    return true;
}

// A board of an older release may take part as long as the keys of its group were never changed.
static bool follows_keys(const struct cn_roster_group *group, uint32_t protocol,
                         struct cn_coap_reply *reply)
{
    if (!group->key_epoch || protocol >= CN_PROTOCOL_KEY_EPOCHS)
        return true;
    cn_coap_reply_error(reply, CN_COAP_FORBIDDEN,
                        "group %s changed its keys, update Cairn here: protocol %u, wanted %u",
                        group->name, protocol, CN_PROTOCOL_KEY_EPOCHS);
    return false;
}

// Writes the address that the board's packets have here, such as "10.0.0.7:41234".
static void name_origin(const struct cn_address *address, char text[CN_ADDRESS_SIZE])
{
    const struct sockaddr *socket = (const struct sockaddr *)&address->storage;
    const void *storage = &address->storage;
    char port[16];
    uint16_t number = socket->sa_family == AF_INET6
                          ? ((const struct sockaddr_in6 *)storage)->sin6_port
                          : ((const struct sockaddr_in *)storage)->sin_port;
    snprintf(port, sizeof(port), ":%u", ntohs(number));
    if (cn_address_print(address, port, text, CN_ADDRESS_SIZE) != CN_OK)
        snprintf(text, CN_ADDRESS_SIZE, "an unknown address");
}

// Replaces what must not be printed in a text that a board told of itself. This makes no text
// longer.
static void clean(char *text)
{
    char cleaned[CN_FAULT_SIZE];
    cn_fault_clean(cleaned, text);
    memcpy(text, cleaned, strlen(cleaned) + 1);
}

// Says whether the error of a registration is about another run than the one that the board's group
// serves: the group was given to another job meanwhile.
static bool is_of_other_run(const struct cn_resources *resources,
                            const struct cn_registration *registration)
{
    return registration->fault[0] && registration->fault_run &&
           registration->fault_run != cn_ledger_identity(resources->ledger)->run;
}

// Notes a registration for another job than the roster's. The board registers again before it
// serves the roster's job. Only the gateway's roster shows the error.
static void note_elsewhere(struct cn_resources *resources, struct cn_roster *roster,
                           const char *board, const struct cn_registration *registration,
                           struct cn_roster_facts *facts)
{
    facts->settings = CN_ROSTER_ELSEWHERE;
    facts->ahead_lineage = facts->ahead_version = 0;
    cn_roster_note(roster, board, facts);
    if (roster == cn_resources_gateway(resources)->roster)
        cn_roster_blame(roster, board, registration->fault, registration->fault_code,
                        resources->now_ms());
}

static void note_facts(struct cn_resources *resources, const struct cn_coap_request *request,
                       uint32_t protocol, const struct cn_registration *registration)
{
    const char *board = request->board;
    char origin[CN_ADDRESS_SIZE] = "an unknown address";
    struct cn_roster_facts facts = {
        .protocol = protocol,
        .settings = cn_resources_settings(resources),
        .cpu_count = registration->cpu_count,
        .memory = registration->memory,
        .power_mw = registration->power_mw,
        .gpu = registration->gpu,
        .inventory = registration->inventory,
    };
    memcpy(facts.type, registration->board_type, sizeof(facts.type));
    memcpy(facts.data_sets, registration->data_sets, sizeof(facts.data_sets));
    clean(facts.data_sets);
    clean(facts.inventory.build);
    clean(facts.inventory.system);
    clean(facts.inventory.slot);
    clean(facts.inventory.slot_version);
    clean(facts.inventory.update);
    clean(facts.inventory.update_version);
    cn_resources_note_ahead(resources, board, registration, &facts);
    if (is_of_other_run(resources, registration)) {
        note_elsewhere(resources, resources->roster, board, registration, &facts);
    } else {
        cn_roster_note(resources->roster, board, &facts);
        cn_roster_blame(resources->roster, board, registration->fault, registration->fault_code,
                        resources->now_ms());
        if (registration->fault[0] && registration->fault_run)
            cn_roster_fail(resources->roster, board, resources->now_ms());
    }
    if (resources->gateway)
        note_elsewhere(resources, resources->gateway->roster, board, registration, &facts);
    if (request->from)
        name_origin(request->from, origin);
    cn_roster_meet(cn_resources_gateway(resources)->roster, board, registration->instance, origin,
                   resources->now_ms());
}

// Returns the name of the tensors that never change. It is computed once, from the newest version:
// these tensors are the same in every version.
static struct cn_base_name base_name(struct cn_resources *resources)
{
    const struct cn_layout *layout = cn_model_store_layout(resources->models);
    if (resources->has_base)
        return resources->base;
    resources->has_base = true;
    if (resources->job->options.frozen == CN_FROZEN_LOCAL)
        cn_local_tensors_digest(layout, cn_model_store_graph_digest(resources->models),
                                cn_model_weights(cn_model_store_newest(resources->models)),
                                resources->base.digest);
    return resources->base;
}

static bool is_over(struct cn_resources *resources)
{
    struct cn_run_state state;
    cn_run_get_state(resources->run, resources->now_ms(), &state);
    return state.phase == CN_RUN_ENDED;
}

// Decides again which job each group serves, unless the board caused that less than a second ago.
static enum cn_replan replan_for(const struct cn_resources *gateway, const char *board)
{
    uint64_t now_ms = gateway->now_ms();
    if (!cn_roster_may_replan(gateway->roster, board, now_ms))
        return CN_REPLAN_LATER;
    enum cn_replan made = gateway->replan(gateway->context);
    if (made != CN_REPLAN_LATER)
        cn_roster_note_replan(gateway->roster, board, now_ms);
    return made;
}

// A board that cannot train its job, or whose run is over, may have another job at once. Returns
// the resources of the job that its group serves from now on. Returns NULL, and asks the board to
// come back, when that is not decided yet. A board that runs until the end would leave when it is
// told a run that is over.
static struct cn_resources *serve_next(struct cn_resources *resources,
                                       const struct cn_roster_board *board,
                                       const struct cn_registration *registration,
                                       struct cn_coap_reply *reply)
{
    const struct cn_resources *gateway = cn_resources_gateway(resources);
    bool gives_up = registration->fault[0] && registration->fault_run;
    if (!gateway->replan || (!gives_up && !is_over(resources)))
        return resources;
    enum cn_replan made = replan_for(gateway, board->enrolled.name);
    struct cn_resources *next = gateway->serving(gateway->context, board->enrolled.group);
    if (made == CN_REPLAN_DONE || next != resources || (gives_up && made == CN_REPLAN_OPENING))
        return next;
    cn_coap_reply_error(reply, CN_COAP_UNAVAILABLE, "the next job is not decided yet");
    reply->max_age_s = 1;
    return NULL;
}

void cn_resources_register(void *context, const struct cn_coap_request *request,
                           struct cn_coap_reply *reply)
{
    struct cn_resources *resources = context;
    struct cn_register_request message;
    struct cn_register_reply answer = {
        .chunk_size = CN_RESOURCES_CHUNK_SIZE,
        .window = CN_RESOURCES_WINDOW,
    };
    const struct cn_roster_board *board = cn_resources_identify(&resources, request, reply);
    if (!board)
        return;
    if (cn_message_get_register(request->body, request->size, &message) != CN_OK) {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "malformed registration");
        return;
    }
    if (!pick_versions(&message, resources->job, &answer, reply) ||
        !follows_keys(cn_resources_group(resources, board), answer.protocol, reply))
        return;
    note_facts(resources, request, answer.protocol, &message.facts);
    resources = serve_next(resources, board, &message.facts, reply);
    if (!resources)
        return;
    if (!pick_versions(&message, resources->job, &answer, reply))
        return; // another job may need newer ones
    const struct cn_ledger_identity *identity = cn_ledger_identity(resources->ledger);
    answer.manifest.run = identity->run;
    answer.manifest.lineage = identity->lineage;
    answer.manifest.graph_size = cn_model_store_graph_size(resources->models);
    answer.manifest.base = base_name(resources);
    answer.manifest.job = resources->live ? resources->live->told : *resources->job;
    memcpy(answer.manifest.graph, cn_model_store_graph_digest(resources->models), CN_DIGEST_SIZE);
    memcpy(answer.manifest.group, board->enrolled.group, CN_NAME_SIZE);
    answer.manifest.key_epoch = cn_resources_group(resources, board)->key_epoch;
    answer.manifest.group_boards = cn_resources_group(resources, board)->boards;
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size = 0;
    if (cn_message_put_manifest(&answer, bytes, &size) == CN_OK)
        cn_resources_reply(reply, CN_COAP_CONTENT, bytes, size);
}
