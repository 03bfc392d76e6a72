// node_status.c - "cairn-node status": says where the node of a profile is.
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "runtime/command/command.h"
#include "runtime/port/platform.h"
#include "runtime/round/status_file.h"

#define STATUS_MAX 65536 // bytes

static const char help[] = "Usage: cairn-node status [--json] PROFILE\n"
                           "\n"
                           "Says what the node of this profile is doing, or was doing when it was "
                           "stopped: its round, its group\n"
                           "and why it is not training. --json prints one object.\n";

static void print_lines(const char *text, size_t size)
{
    cJSON *json = cJSON_ParseWithLength(text, size);
    const cJSON *item;

    cJSON_ArrayForEach(item, json)
    {
        if (cJSON_IsString(item))
            printf("%-18s %s\n", item->string, item->valuestring);
        else if (cJSON_IsNumber(item))
            printf("%-18s %.15g\n", item->string, item->valuedouble);
    }
    cJSON_Delete(json);
}

static int print_status(const struct cn_settings *settings, bool as_json)
{
    char path[CN_PATH_SIZE + 32];
    struct cn_mapping file;
    cn_err err;

    // Read beside the store: its lock belongs to the running node.
    snprintf(path, sizeof(path), "%s/%s", settings->state, CN_STATUS_FILE_NAME);
    err = cn_platform_map(path, STATUS_MAX, &file);
    if (err) {
        fprintf(stderr, "error: %s: %s\n", path,
                err == CN_ENOTFOUND ? "no node has run with this profile yet" : cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    if (as_json)
        printf("%.*s\n", (int)file.size, (const char *)file.data);
    else
        print_lines((const char *)file.data, file.size);
    cn_platform_unmap(&file);
    return CN_EXIT_DONE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    struct cn_profile *profile;
    bool as_json;
    int code;

    (void)ports;
    code = cn_command_take_profile(argc, argv, help, CN_PROFILE_NODE, &as_json, &profile);
    if (code)
        return code;
    code = print_status(cn_profile_settings(profile), as_json);
    cn_profile_free(profile);
    return code;
}

const struct cn_command cn_command_status = {
    .name = "status",
    .summary = "say what the node of a profile is doing",
    .help = help,
    .run = run,
};
