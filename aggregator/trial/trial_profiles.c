#include "aggregator/trial/trial_profiles.h"

#include <stdio.h>

#include "runtime/port/platform.h"

static cn_err write_gateway(const struct cn_trial_ports *ports, const char *folder,
                            struct cn_diag *diag)
{
    FILE *file = cn_trial_file_create(folder, "gateway.yaml", diag);
    if (!file)
        return CN_EIO;
    fprintf(file,
            "# The gateway: runs the aggregator.\n"
            "schema: cairn/site/v1\n"
            "name: gateway\n"
            "state: state/gateway         # ledger, updates and versions\n"
            "threads: 1\n"
            "gateway: {listen: \"127.0.0.1:%u\"}\n"
            "http: {listen: \"127.0.0.1:%u\"} # a page for a browser\n"
            "data:\n"
            "  try-test: {inputs: data/test-inputs.npy, labels: data/test-labels.npy}\n"
            "job: job.yaml\n",
            ports->gateway, ports->page);
    return cn_trial_file_close(file, "gateway.yaml", diag);
}

static void write_group(const struct cn_trial_split *split, uint32_t board,
                        const struct cn_trial_ports *ports, FILE *file)
{
    uint32_t group = cn_trial_group(split, board);
    uint32_t first = cn_trial_first_board(split, group);
    uint32_t end = cn_trial_first_board(split, group + 1);
    if (end - first == 1)
        return;
    fprintf(file, "group:\n  listen: \"127.0.0.1:%u\"\n  members: {", ports->boards[board]);
    for (uint32_t i = first; i < end; i++)
        fprintf(file, "%sboard-%u: \"127.0.0.1:%u\"", i > first ? ", " : "", i + 1,
                ports->boards[i]);
    fprintf(file, "}\n");
}

static cn_err write_board(const struct cn_trial_options *options, uint32_t board,
                          const struct cn_trial_ports *ports, const char *folder,
                          struct cn_diag *diag)
{
    char name[32], owner[CN_TRIAL_OWNER_SIZE];
    const struct cn_trial_split *split = &options->split;
    uint32_t number = board + 1, threads = options->threads;
    if (!threads)
        threads = cn_platform_cpu_count() / split->boards;
    snprintf(name, sizeof(name), "board-%u.yaml", number);
    FILE *file = cn_trial_file_create(folder, name, diag);
    if (!file)
        return CN_EIO;
    fprintf(file,
            "# One board. In the field each board has its own address.\n"
            "schema: cairn/site/v1\n"
            "name: board-%u\n"
            "state: state/board-%u\n"
            "threads: %u\n"
            "aggregator: {address: \"127.0.0.1:%u\", key: keys/board-%u.key}\n",
            number, number, threads ? threads : 1, ports->gateway, number);
    write_group(split, board, ports, file);
    cn_trial_owner_name(split, cn_trial_owner(split, board), owner);
    fprintf(file, "data:\n  try: {inputs: data/%s-inputs.npy, labels: data/%s-labels.npy}\n", owner,
            owner);
    return cn_trial_file_close(file, name, diag);
}

cn_err cn_trial_profiles_write(const struct cn_trial_options *options,
                               const struct cn_trial_ports *ports, const char *folder,
                               struct cn_diag *diag)
{
    cn_err err = write_gateway(ports, folder, diag);
    for (uint32_t i = 0; i < options->split.boards && !err; i++)
        err = write_board(options, i, ports, folder, diag);
    return err;
}
