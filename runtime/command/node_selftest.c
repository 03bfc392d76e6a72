// node_selftest.c - "cairn-node selftest": a report of this board that a user can send.
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/build_version.h"
#include "runtime/command/selftest.h"

#define KEY_SIZE 256

static const char help[] =
    "Usage: cairn-node selftest [OPTIONS] [PROFILE]\n"
    "\n"
    "Prints what this board is and how fast: hardware, drivers, clock, sensors,\n"
    "memory, training on each device, storage, and with a PROFILE the link to its\n"
    "aggregator. The report holds no keys, names, addresses or samples. Exits with 1\n"
    "when something that Cairn needs fails, or the GPU of a Jetson is not found.\n"
    "\n"
    "  PROFILE            of a board in a run: its storage and link are measured,\n"
    "                     too; not while its node runs\n"
    "  --state DIR        where storage is measured (16 MiB, removed again), instead\n"
    "                     of the profile's\n"
    "  --model FILE.onnx  what is trained, a classifier; default: a small one that\n"
    "                     is built in\n"
    "  --boards DIR       folder of the types of boards; default: the installed ones\n"
    "  --sysroot DIR      read sys/, proc/ and etc/ of the board below DIR: in a\n"
    "                     container, or a record\n"
    "  --json             one JSON object\n";

// Prints a line for each value, with prefix before its name: "training.cpu.step_ms   1.2".
static void print_lines(const cJSON *object, const char *prefix)
{
    const cJSON *item;
    unsigned index = 0;

    cJSON_ArrayForEach(item, object)
    {
        char key[KEY_SIZE], *value;

        if (item->string)
            snprintf(key, sizeof(key), "%s%s%s", prefix, *prefix ? "." : "", item->string);
        else
            snprintf(key, sizeof(key), "%s.%u", prefix, index++);
        if (cJSON_IsObject(item) || cJSON_IsArray(item)) {
            print_lines(item, key);
        } else if (cJSON_IsString(item)) {
            printf("%-28s %s\n", key, item->valuestring);
        } else {
            value = cJSON_PrintUnformatted(item);
            printf("%-28s %s\n", key, value ? value : "");
            cJSON_free(value);
        }
    }
}

static cn_err examine(const struct cn_selftest *test, cJSON *report)
{
    cn_err (*const measures[])(const struct cn_selftest *, cJSON *) = {
        cn_selftest_training, cn_selftest_storage, cn_selftest_link};
    cn_err err;

    cJSON_AddStringToObject(report, "cairn_node", cn_build_version);
    cn_selftest_system(test, report);
    cn_selftest_gpu(test, report);
    cn_selftest_clock(report);
    cn_selftest_sensors(test, report);
    err = cn_selftest_memory(report);
    for (size_t i = 0; i < sizeof(measures) / sizeof(measures[0]); i++) {
        cn_err failed = measures[i](test, report);

        err = err ? err : failed;
    }
    cJSON_AddBoolToObject(report, "passed", err == CN_OK);
    return err;
}

static int print_report(const struct cn_selftest *test, bool json)
{
    cJSON *report = cJSON_CreateObject();
    cn_err err = examine(test, report);

    if (json) {
        char *text = cJSON_PrintUnformatted(report);

        puts(text ? text : "{}");
        cJSON_free(text);
    } else {
        print_lines(report, "");
    }
    cJSON_Delete(report);
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static bool take_options(int argc, char **argv, struct cn_selftest *test, bool *json)
{
    static const struct option known[] = {
        {"boards", required_argument, NULL, 'b'}, {"state", required_argument, NULL, 's'},
        {"model", required_argument, NULL, 'm'},  {"sysroot", required_argument, NULL, 'r'},
        {"json", no_argument, NULL, 'j'},         {0}};
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'b')
            test->boards = optarg;
        else if (option == 's')
            test->state = optarg;
        else if (option == 'm')
            test->model = optarg;
        else if (option == 'j')
            *json = true;
        else if (option == 'r' && cn_command_is_sysroot(optarg))
            test->sysroot = optarg;
        else
            return false;
    }
    if (optind + 1 >= argc)
        return true;
    fputs(help, stderr);
    return false;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    struct cn_selftest test = {.ports = ports, .sysroot = ""};
    struct cn_profile *profile = NULL;
    bool json = false;
    int code;

    if (!take_options(argc, argv, &test, &json))
        return CN_EXIT_USAGE;
    if (optind < argc) {
        profile = cn_command_load_profile(argv[optind], CN_PROFILE_NODE);
        if (!profile)
            return CN_EXIT_PROFILE;
        test.settings = cn_profile_settings(profile);
        test.state = test.state ? test.state : test.settings->state;
    }
    code = print_report(&test, json);
    cn_profile_free(profile);
    return code;
}

const struct cn_command cn_command_selftest = {
    .name = "selftest",
    .summary = "print a report of this board",
    .help = help,
    .run = run,
};
