// node_selftest.c - "cairn-node selftest": a report of this board that a user can send.
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "runtime/command/board_find.h"
#include "runtime/command/command.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/port/sensors.h"
#include "runtime/port/store.h"

#define BLOCK ((size_t)1 << 20)
#define BLOCKS 16

static const char help[] =
    "Usage: cairn-node selftest [--boards DIR] [--state DIR]\n"
    "\n"
    "Prints what this board is and how fast it is: hardware, drivers, sensors, memory, storage. "
    "The\n"
    "report holds no keys, data or addresses. Exits with 1 when something that Cairn needs fails.\n"
    "\n"
    "  --boards DIR       folder of the types of boards; default: the installed ones\n"
    "  --state DIR        where storage is measured (16 MiB, removed again); default: not "
    "measured\n";

static void print_system(const char *boards)
{
    static struct cn_board_identity identity;
    char directory[512], board[CN_NAME_SIZE];
    struct utsname system;

    printf("%-12s %s\n", "cairn-node", CAIRN_VERSION);
    if (uname(&system) == 0)
        printf("%-12s %s %s %s\n", "system", system.sysname, system.release, system.machine);
    cn_board_find_identity("", &identity);
    if (!cn_board_find_directory(boards, directory, sizeof(directory)))
        printf("%-12s no folder of boards is installed\n", "board");
    else if (cn_board_find(directory, &identity, board))
        printf("%-12s %s\n", "board", board);
    else
        printf("%-12s not known\n", "board");
    for (size_t i = 0; i < identity.count; i++)
        printf("%-12s %s\n", i ? "" : "firmware", identity.names[i]);
    printf("%-12s %u usable\n", "processors", cn_platform_cpu_count());
    printf("%-12s %.1f GiB\n", "memory",
           (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1u << 30));
}

static void print_file(const char *title, const char *path)
{
    char line[160] = "not there";
    FILE *file = fopen(path, "re");

    if (file && !fgets(line, sizeof(line), file))
        snprintf(line, sizeof(line), "cannot be read");
    if (file)
        fclose(file);
    line[strcspn(line, "\n")] = '\0';
    printf("%-12s %s\n", title, line);
}

// Where the libraries of the GPU lie; they are loaded when it is used, so here only found.
static void print_library(const char *title, const char *name)
{
    static const char *const folders[] = {
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu/tegra",
        "/usr/lib/aarch64-linux-gnu/nvidia",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/local/cuda/lib64",
        "/usr/lib64",
    };
    char path[256];

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folders[i], name);
        if (access(path, R_OK) == 0) {
            printf("%-12s %s\n", title, path);
            return;
        }
    }
    printf("%-12s not there\n", title);
}

static void print_sensors(void)
{
    struct cn_sensors *sensors;
    struct cn_reading reading;

    if (cn_sensors_open("", "", "VDD_IN VIN VIN_SYS_5V0 ina238", &sensors))
        return;
    cn_sensors_read(sensors, &reading);
    cn_sensors_close(sensors);
    if (reading.has_temperature)
        printf("%-12s %.1f C (%s)%s\n", "temperature", reading.temperature_mc / 1000.0,
               reading.zone, reading.throttled ? ", throttled" : "");
    else
        printf("%-12s no sensor\n", "temperature");
    if (reading.has_power)
        printf("%-12s %.1f W\n", "power", (double)reading.power_mw / 1000);
    else
        printf("%-12s no sensor\n", "power");
}

static void print_rate(const char *title, uint64_t bytes, uint64_t spent_us)
{
    printf("%-12s %.0f MB/s\n", title, (double)bytes / (spent_us ? (double)spent_us : 1));
}

static cn_err measure_memory(void)
{
    uint8_t *from = calloc(BLOCKS, BLOCK), *to = calloc(BLOCKS, BLOCK);
    uint8_t digest[CN_DIGEST_SIZE];
    uint64_t begun_us;

    if (from && to) {
        memset(from, 1, BLOCKS * BLOCK);
        memset(to, 2, BLOCKS * BLOCK);
        begun_us = cn_platform_now_us();
        memcpy(to, from, BLOCKS * BLOCK);
        print_rate("copying", BLOCKS * BLOCK, cn_platform_now_us() - begun_us);
        begun_us = cn_platform_now_us();
        cn_crypto_digest(to, BLOCKS * BLOCK, digest);
        print_rate("SHA-256", BLOCKS * BLOCK, cn_platform_now_us() - begun_us);
    }
    free(to);
    free(from);
    return from && to ? CN_OK : CN_ENOMEM;
}

// A durable file as checkpoints are: written aside, synced, renamed.
static cn_err write_durable(struct cn_store *store)
{
    uint8_t *content = calloc(BLOCKS, BLOCK);
    uint64_t begun_us;
    cn_err err = content ? CN_OK : CN_ENOMEM;

    if (content)
        memset(content, 7, BLOCKS * BLOCK);
    begun_us = cn_platform_now_us();
    if (!err)
        err = cn_store_replace(store, "selftest", content, BLOCKS * BLOCK);
    if (!err)
        print_rate("storage", BLOCKS * BLOCK, cn_platform_now_us() - begun_us);
    begun_us = cn_platform_now_us();
    if (!err)
        err = cn_store_replace(store, "selftest", content, 1);
    if (!err)
        printf("%-12s %.1f ms\n", "small write", (double)(cn_platform_now_us() - begun_us) / 1000);
    if (!err)
        err = store->ops->remove(store, "selftest");
    free(content);
    return err;
}

static cn_err measure_storage(const char *state)
{
    struct cn_store *store;
    uint64_t available;
    cn_err err;

    if (!state)
        return CN_OK;
    err = cn_platform_open_store(state, &store);
    if (!err) {
        err = write_durable(store);
        store->ops->close(store);
    }
    if (!err && cn_platform_disk_free(state, &available) == CN_OK)
        printf("%-12s %.1f GiB free\n", "", (double)available / (1u << 30));
    if (err)
        fprintf(stderr, "error: storage in %s: %s\n", state,
                err == CN_EEXIST ? "a running cairn-node uses it" : cn_err_text(err));
    return err;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"boards", required_argument, NULL, 'b'}, {"state", required_argument, NULL, 's'}, {0}};
    const char *boards = NULL, *state = NULL;
    cn_err err;
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'b')
            boards = optarg;
        else if (option == 's')
            state = optarg;
        else
            return CN_EXIT_USAGE;
    }
    if (optind != argc) {
        fputs(help, stderr);
        return CN_EXIT_USAGE;
    }
    print_system(boards);
    for (const struct cn_compute_ops *const *ops = ports->computes; *ops; ops++)
        printf("%-12s %s\n", ops == ports->computes ? "compute" : "", (*ops)->name);
    print_file("L4T", "/etc/nv_tegra_release");
    print_file("driver", "/proc/driver/nvidia/version");
    print_library("CUDA", "libcuda.so.1");
    print_library("NCCL", "libnccl.so.2");
    print_sensors();
    err = measure_memory();
    if (!err)
        err = measure_storage(state);
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

const struct cn_command cn_command_selftest = {
    .name = "selftest",
    .summary = "print a report of this board",
    .help = help,
    .run = run,
};
