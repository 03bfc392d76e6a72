// node_status.c - "cairn-node status": says where the node of a profile is.
#include <cjson/cJSON.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/command/command.h"
#include "runtime/command/terminal/wrap.h"
#include "runtime/port/platform.h"
#include "runtime/profile/gpus.h"
#include "runtime/round/node/status_file.h"

#define STATUS_MAX 65536 // bytes
#define FRESH_MS 120000  // a node writes its file each second; one whose file is older hangs
#define MIB 1048576.0
#define INDENT 12 // columns before the second and later lines of a value

static const char help[] =
    "Usage: cairn-node status [--json] PROFILE\n"
    "\n"
    "Says what the node of this profile is doing, or was doing when it was stopped:\n"
    "round, group, speed, link, measures, sensors, and why it is not training. Exits\n"
    "with 1 when no node ever ran.\n"
    "\n"
    "  --json             one JSON object, a line for each GPU of the profile;\n"
    "                     runtime/round/README.md has its fields\n";

// The next functions read a member of a JSON object. A missing member reads as 0, "" or NULL.

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static bool has(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name) != NULL;
}

static const char *text(const cJSON *object, const char *name)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

    return value ? value : "";
}

static const cJSON *part(const cJSON *json, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(json, name);
}

// Returns whether the node that writes the file runs, and has written it lately.
static bool is_running(const cJSON *json)
{
    double pid = number(json, "pid"), age_ms;

    age_ms = (double)cn_platform_now_ms() - number(json, "written_ms");
    return pid >= 1 && pid < 4194304 + 1 && age_ms >= 0 && age_ms < FRESH_MS &&
           (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

static void print_chain(FILE *out, const cJSON *chain)
{
    const cJSON *bytes;
    const char *separator = "";

    if (!chain)
        return;
    fprintf(out, "            holds part %.0f of %.0f, ", number(chain, "part"),
            number(chain, "parts"));
    if (has(chain, "shares"))
        fprintf(out, "share %.0f of %.0f, ", number(chain, "share"), number(chain, "shares"));
    fprintf(out, "chain %.0f of %.0f; %.0f micro-batches a step, bubble %.1f %% by formula",
            number(chain, "chain"), number(chain, "chains"), number(chain, "micro_batches"),
            100 * number(chain, "bubble"));
    if (has(chain, "slowest"))
        fprintf(out,
                ", %.1f %% for parts of these times, %.1f %% measured; part %.0f computes longest "
                "(%s, %.3g ms a step)",
                100 * number(chain, "bubble_parts"), 100 * number(chain, "bubble_measured"),
                number(chain, "slowest_part"), text(chain, "slowest"), number(chain, "slowest_ms"));
    fprintf(out, "\n            over its cuts a chain sends in a step ");
    cJSON_ArrayForEach(bytes, part(chain, "cut_bytes"))
    {
        fprintf(out, "%s%.0f", separator, bytes->valuedouble);
        separator = ", ";
    }
    fprintf(out, " bytes\n");
    if (has(chain, "slow_link"))
        fprintf(out, "            %s\n", text(chain, "slow_link"));
}

static void print_group(FILE *out, const cJSON *group)
{
    if (!group)
        return;
    fprintf(out, "  group     %s", text(group, "name"));
    if (has(group, "epoch"))
        fprintf(out, ": epoch %.0f, rank %.0f of %.0f", number(group, "epoch"),
                number(group, "rank"), number(group, "size"));
    if (has(group, "leader"))
        fprintf(out, ", %s leads", text(group, "leader"));
    fprintf(out, "\n");
    if (has(group, "members"))
        fprintf(out, "            %s\n", text(group, "members"));
    if (has(group, "backend"))
        fprintf(out, "            sums over %s, %s%s%s\n", text(group, "backend"),
                cJSON_IsTrue(part(group, "encrypted")) ? "encrypted" : "NOT encrypted",
                has(group, "backend_why") ? "; no faster way although lan is trusted: " : "",
                has(group, "backend_why") ? text(group, "backend_why") : "");
    if (has(group, "auto"))
        fprintf(out, "            parallel: auto: %s\n", text(group, "auto"));
    print_chain(out, part(group, "chain"));
    if (has(group, "slowest"))
        fprintf(out, "            %s is slow: it %s\n", text(group, "slowest"),
                text(group, "slowest_why"));
}

// Returns milliseconds of a step; what cannot be measured is 0.
static double milliseconds(const cJSON *round, const char *name)
{
    double ms = number(round, name);

    return ms < 0.001 ? 0 : ms;
}

static void print_round(FILE *out, const cJSON *json, const cJSON *round)
{
    fprintf(out, "  round     %.0f", number(round, "number"));
    if (has(json, "rounds"))
        fprintf(out, " of %.0f", number(json, "rounds"));
    fprintf(out, ", step %.0f of %.0f, from version %.0f", number(round, "step"),
            number(round, "steps"), number(json, "version"));
    if (has(round, "step_ms"))
        fprintf(out, "; %.3g ms a step, %.4g samples/s", number(round, "step_ms"),
                number(round, "samples_per_s"));
    if (number(part(json, "group"), "size") > 1 && has(round, "wire_ms"))
        fprintf(out,
                "\n            of a step %.3g ms compute, %.3g ms wait for others, %.3g ms wire",
                milliseconds(round, "compute_ms"), milliseconds(round, "wait_ms"),
                milliseconds(round, "wire_ms"));
    fprintf(out, "\n");
}

static void print_measure(FILE *out, const cJSON *object, const char *name, const char *title)
{
    if (has(object, name))
        fprintf(out, ", %s %.4g", title, number(object, name));
}

static void print_scores(FILE *out, const cJSON *scores)
{
    if (!scores)
        return;
    fprintf(out, "  held out  version %.0f: loss %.4g", number(scores, "version"),
            number(scores, "loss"));
    print_measure(out, scores, "accuracy", "accuracy");
    print_measure(out, scores, "top5", "top-5");
    print_measure(out, scores, "f1", "F1");
    print_measure(out, scores, "mae", "MAE");
    print_measure(out, scores, "perplexity", "perplexity");
    fprintf(out, " (%.0f samples)\n", number(scores, "samples"));
}

static void print_update(FILE *out, const cJSON *update)
{
    double bytes = number(update, "bytes");

    if (bytes > 0)
        fprintf(out, "  update    %.0f bytes, %.1f times less than float32\n", bytes,
                number(update, "float32_bytes") / bytes);
}

static void print_link(FILE *out, const cJSON *link)
{
    if (!link)
        return;
    fprintf(out, "  link      %s, %s; on the wire %.0f bytes sent, %.0f received",
            text(link, "state"), text(link, "encryption"), number(link, "wire_up"),
            number(link, "wire_down"));
    if (has(link, "day_max"))
        fprintf(out, "; today %.0f of %.0f", number(link, "bytes_today"), number(link, "day_max"));
    if (has(link, "rtt_ms"))
        fprintf(out, "; round trip %.3g ms, loss %.2g %%", number(link, "rtt_ms"),
                number(link, "loss") * 100);
    if (has(link, "up_bps"))
        fprintf(out, ", up %.3g Mbit/s", number(link, "up_bps") / 1e6);
    if (has(link, "down_bps"))
        fprintf(out, ", down %.3g Mbit/s", number(link, "down_bps") / 1e6);
    fprintf(out, "\n");
}

static void print_sensors(FILE *out, const cJSON *sensors)
{
    const char *separator = "  sensors   ";

    if (has(sensors, "temperature_c")) {
        fprintf(out, "%s%.1f C (%s)", separator, number(sensors, "temperature_c"),
                text(sensors, "zone"));
        separator = ", ";
    }
    if (has(sensors, "power_w")) {
        fprintf(out, "%s%.1f W", separator, number(sensors, "power_w"));
        separator = ", ";
    }
    if (has(sensors, "power_mode")) {
        fprintf(out, "%spower mode %s", separator, text(sensors, "power_mode"));
        separator = ", ";
    }
    if (has(sensors, "last_round_j")) {
        fprintf(out, "%s%.4g J in the round before", separator, number(sensors, "last_round_j"));
        separator = ", ";
    }
    if (cJSON_IsTrue(part(sensors, "throttled"))) {
        fprintf(out, "%sTHROTTLED", separator);
        separator = ", ";
    }
    if (has(sensors, "wear_budget")) {
        fprintf(out, "%s%.1f of %.1f MiB written today", separator,
                number(sensors, "written_today") / MIB, number(sensors, "wear_budget") / MIB);
        separator = ", ";
    }
    if (separator[0] == ',')
        fprintf(out, "\n");
}

static void print_memory(FILE *out, const cJSON *memory)
{
    if (!memory)
        return;
    fprintf(out, "  memory    %.1f MiB resident at most", number(memory, "peak_resident") / MIB);
    if (has(memory, "planned"))
        fprintf(out, ", %.1f MiB planned for training", number(memory, "planned") / MIB);
    if (has(memory, "copies"))
        fprintf(out, " (%.1f of it for copies of the model)", number(memory, "copies") / MIB);
    if (has(memory, "train_max"))
        fprintf(out, " of %.1f MiB", number(memory, "train_max") / MIB);
    fprintf(out, "\n");
}

static void print_lines(FILE *out, const cJSON *json)
{
    bool running = is_running(json);

    // A profile for training alone may have no name.
    fprintf(out, "%s%s%s", text(json, "board"), text(json, "board")[0] ? ": " : "",
            text(json, "state"));
    if (has(json, "paused_s"))
        fprintf(out, ", paused for %.0f s", number(json, "paused_s"));
    fprintf(out, "%s\n", running ? "" : " - when it was last heard of; no node is running now");
    if (has(json, "job"))
        fprintf(out, "  job       %s, run %s\n", text(json, "job"), text(json, "run"));
    print_group(out, part(json, "group"));
    print_round(out, json, part(json, "round"));
    print_scores(out, part(json, "held_out"));
    print_update(out, part(json, "update"));
    print_link(out, part(json, "link"));
    print_sensors(out, part(json, "sensors"));
    print_memory(out, part(json, "memory"));
    if (number(json, "residuals_lost") > 0)
        fprintf(out, "  residuals lost and started from zero: %.0f\n",
                number(json, "residuals_lost"));
}

// Prints lines that are wrapped at the width of the terminal.
static cn_err print_wrapped(const cJSON *json)
{
    char *all = NULL;
    size_t size;
    FILE *out = open_memstream(&all, &size);

    if (!out)
        return CN_ENOMEM;
    print_lines(out, json);
    if (fclose(out))
        return CN_ENOMEM;
    cn_wrap_print_all(all, INDENT);
    free(all);
    return CN_OK;
}

static int print_status(const struct cn_settings *settings, bool as_json)
{
    char path[CN_PATH_SIZE + 32];
    struct cn_mapping file;
    cJSON *json = NULL;
    cn_err err;

    // Read without opening the store, whose lock belongs to the running node.
    snprintf(path, sizeof(path), "%s/%s", settings->state, CN_STATUS_FILE_NAME);
    err = cn_platform_map(path, STATUS_MAX, &file);
    if (!err) {
        json = cJSON_ParseWithLength((const char *)file.data, file.size);
        cn_platform_unmap(&file);
        err = cJSON_IsObject(json) ? CN_OK : CN_EFORMAT;
    }
    if (err) {
        fprintf(stderr, "error: %s: %s\n", path,
                err == CN_ENOTFOUND ? "no node has run with this profile yet" : cn_err_reason(err));
        cJSON_Delete(json);
        return CN_EXIT_FAILED;
    }
    if (as_json) {
        char *line;

        cJSON_AddBoolToObject(json, "running", is_running(json));
        line = cJSON_PrintUnformatted(json);
        puts(line ? line : "{}");
        cJSON_free(line);
    } else {
        err = print_wrapped(json);
    }
    cJSON_Delete(json);
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static struct cn_settings member; // large
    const struct cn_settings *settings;
    struct cn_profile *profile;
    uint32_t gpus[CN_GROUP_MAX], count;
    bool as_json;
    int code;

    (void)ports;
    code = cn_command_take_profile(argc, argv, help, CN_PROFILE_LOOK, &as_json, &profile);
    if (code)
        return code;
    settings = cn_profile_settings(profile);
    count = cn_gpus_list(settings, gpus);
    if (count < 2)
        code = print_status(settings, as_json);
    for (uint32_t i = 0; count > 1 && i < count; i++) {
        member = *settings;
        if (cn_gpus_narrow(&member, i) || print_status(&member, as_json))
            code = CN_EXIT_FAILED;
    }
    cn_profile_free(profile);
    return code;
}

const struct cn_command cn_command_status = {
    .name = "status",
    .summary = "say what the node of a profile is doing",
    .help = help,
    .run = run,
};
