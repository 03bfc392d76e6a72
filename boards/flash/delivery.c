#include "boards/flash/delivery.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "boards/flash/board/enrol.h"
#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "runtime/command/command.h"

#define GATEWAY_SIZE 1024 // of --gateway in a note, with a path or with a host before it
#define PROFILE_SIZE 512  // of such a path

static int unless_stopped(int code)
{
    if (!cn_process_interrupted())
        return code;
    cn_console_error(NULL, "interrupted");
    return CN_EXIT_INTERRUPTED;
}

// Notes in the draft the name and the gateway of a board that may be enrolled.
static int note_enrolment(void *context, bool enrolled)
{
    const struct cn_delivery *delivery = context;
    const char *gateway = delivery->order.gateway;
    // The next program may start in another folder. Links stay: they may be part of the path from
    // which the profile's own paths begin.
    bool here = gateway[0] != '/' && !cn_enrol_is_remote(gateway);
    char folder[PROFILE_SIZE] = "", text[GATEWAY_SIZE + CN_NAME_SIZE];

    if (!enrolled) {
        cn_draft_settle(&delivery->draft);
        return CN_EXIT_DONE;
    }
    if ((here && (!getcwd(folder, sizeof(folder)) ||
                  strlen(folder) + 1 + strlen(gateway) >= PROFILE_SIZE)) ||
        strchr(folder, '\n') || strchr(gateway, '\n')) {
        cn_console_error(NULL, "--gateway '%s': its path cannot be noted", gateway);
        return CN_EXIT_FAILED;
    }
    snprintf(text, sizeof(text), "%s\n%s%s%s\n", delivery->order.name, folder, here ? "/" : "",
             gateway);
    return cn_draft_note(&delivery->draft, CN_DRAFT_DEBT, text);
}

static bool read_line(FILE *file, char *line, int size)
{
    if (!fgets(line, size, file) || !strchr(line, '\n'))
        return false;
    *strchr(line, '\n') = '\0';
    return true;
}

int cn_delivery_take_over(struct cn_delivery *delivery)
{
    char path[CN_DRAFT_PATH], name[CN_NAME_SIZE], gateway[GATEWAY_SIZE];
    struct cn_target_options order = {.name = name, .gateway = gateway};
    bool heard = false, noted;
    int code = CN_EXIT_DONE;
    FILE *file;

    if (!cn_draft_owes(&delivery->draft))
        return cn_draft_clear(&delivery->draft);
    cn_draft_path(&delivery->draft, CN_DRAFT_DEBT, path);
    file = fopen(path, "re");
    // A note that is cut off was not durable: the board was not yet enrolled.
    noted = file && read_line(file, name, sizeof(name)) && cn_name_valid(name) &&
            read_line(file, gateway, sizeof(gateway));
    if (file)
        fclose(file);
    if (noted)
        code = cn_enrol_settle(&order, &heard);
    if (!code) {
        cn_draft_settle(&delivery->draft);
        return cn_draft_clear(&delivery->draft);
    }
    cn_console_error("run this again when the aggregator can be asked, or remove the folder",
                     "a killed cairn-flash left %s and may have enrolled %s",
                     delivery->draft.folder, name);
    cn_draft_leave(&delivery->draft);
    return code;
}

static int deliver(const struct cn_delivery_target *target, struct cn_delivery *delivery)
{
    char key[512];
    int code = cn_enrol_make(&delivery->order, &delivery->space,
                             delivery->draft.folder[0] ? note_enrolment : NULL, delivery, key,
                             sizeof(key));

    if (code)
        return unless_stopped(code);
    code =
        unless_stopped(cn_payload_add(&delivery->payload, key, CN_PAYLOAD_ETC "/node.key", 0600));
    if (!code)
        code = target->write(delivery);
    if (code && !delivery->delivered && !cn_enrol_revoke(&delivery->order))
        cn_draft_settle(&delivery->draft);
    return code ? unless_stopped(code) : CN_EXIT_DONE;
}

static int carry_out(const struct cn_delivery_target *target, struct cn_delivery *delivery)
{
    int code = cn_payload_make(&delivery->order, &delivery->space, &delivery->payload);

    if (code)
        return code;
    cn_payload_print(&delivery->payload);
    code = unless_stopped(target->check(delivery));
    return code || delivery->order.dry_run || !target->write ? code : deliver(target, delivery);
}

static int check_operand(const struct cn_delivery_target *target,
                         const struct cn_target_options *order)
{
    bool given = order->positional && order->positional[0] != '-';
    const char *missing = target->operand && !given           ? target->operand
                          : target->operand || !target->write ? NULL
                          : !order->base                      ? "--base"
                          : !order->out                       ? "-o OUT"
                                                              : NULL;

    if (missing)
        cn_console_error("--help describes the options", "%s is missing", missing);
    else if (!target->operand && order->positional)
        cn_console_error("an image is given with --base", "'%s' is not an option",
                         order->positional);
    else
        return CN_EXIT_DONE;
    return CN_EXIT_USAGE;
}

int cn_delivery_run(const struct cn_delivery_target *target, int argc, char **argv)
{
    struct cn_delivery delivery = {0};
    int code = cn_target_options_parse(argc, argv, target->help, &delivery.order);

    if (!code)
        code = check_operand(target, &delivery.order);
    if (code)
        return code;
    cn_process_catch_signals();
    if (cn_workspace_open(&delivery.space)) {
        cn_console_error(NULL, "no folder for the key could be made in /dev/shm or /tmp");
        return CN_EXIT_FAILED;
    }
    code = carry_out(target, &delivery);
    cn_draft_close(&delivery.draft);
    cn_workspace_close(&delivery.space);
    return code;
}
