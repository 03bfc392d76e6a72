// node_check.c - "cairn-node check": what a profile or a model means to this program.
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "runtime/command/board_find.h"
#include "runtime/command/command.h"
#include "runtime/engine/onnx_file.h"
#include "runtime/engine/trainer.h"

#define CHECK_BATCH 32 // a model is planned for this batch when no profile names one

static const char help[] =
    "Usage: cairn-node check [--origin] FILE\n"
    "       cairn-node check --board auto [--boards DIR]\n"
    "\n"
    "FILE is a profile (.yaml): prints the effective profile, or everything that is wrong with it, "
    "and\n"
    "exits with 3 then. --origin adds the file and line that set each value.\n"
    "FILE is a model (.onnx): prints its tensors, the shape of its samples and the memory training "
    "needs,\n"
    "or the list of what is not supported.\n"
    "\n"
    "  --origin           the file and line that set each value\n"
    "  --board auto       recognise this board, or say what its firmware calls itself\n"
    "  --boards DIR       folder of the types of boards; default: the installed ones\n";

static int check_profile(const char *path, bool origin)
{
    static struct cn_diag diag;
    struct cn_profile *profile = NULL;
    cn_err err;

    cn_diag_init(&diag);
    err = cn_profile_load(path, &diag, &profile);
    cn_command_print_diag(&diag);
    if (err) {
        if (diag.count == 0)
            fprintf(stderr, "%s: error: %s\n", path, cn_err_text(err));
        return CN_EXIT_PROFILE;
    }
    cn_profile_print(profile, origin, stdout);
    cn_profile_free(profile);
    return CN_EXIT_DONE;
}

static void print_tensors(const struct cn_layout *layout)
{
    for (size_t i = 0; i < layout->tensor_count; i++) {
        const struct cn_tensor_info *tensor = &layout->tensors[i];

        printf("%-10s %-32s ", tensor->class == CN_TENSOR_STAT ? "statistic" : "parameter",
               tensor->name);
        for (uint32_t d = 0; d < tensor->rank; d++)
            printf("%s%llu", d ? "x" : "", (unsigned long long)tensor->dims[d]);
        printf("\n");
    }
    printf("%zu values in %zu tensors\n", layout->total, layout->tensor_count);
}

// What the data sets of this model must look like.
static void print_sample(const struct cn_trainer *trainer)
{
    struct cn_sample_shape shape;

    cn_trainer_sample_shape(trainer, &shape);
    printf("a sample has the shape (");
    for (uint32_t d = 0; d < shape.rank; d++)
        printf("%s%llu", d ? ", " : "", (unsigned long long)shape.dims[d]);
    printf("%s), an output %zu values\n", shape.rank == 1 ? "," : "", shape.outputs);
}

static cn_err plan_model(const struct cn_ports *ports, const struct cn_onnx *onnx,
                         struct cn_diag *diag)
{
    struct cn_trainer_config config = {
        .compute = cn_command_compute(ports, CN_DEVICE_AUTO),
        .threads = cn_platform_cpu_count(),
        .batch = CHECK_BATCH,
        .loss = CN_LOSS_MSE, // takes an output of any shape
    };
    struct cn_trainer *trainer = NULL;
    cn_err err;

    err = cn_trainer_open(onnx, &config, diag, &trainer);
    if (err)
        return err;
    print_tensors(cn_trainer_layout(trainer));
    print_sample(trainer);
    printf("%.2f MiB to train with batches of %d\n", (double)cn_trainer_memory(trainer) / 1048576,
           CHECK_BATCH);
    cn_trainer_close(trainer);
    return CN_OK;
}

static int check_model(const struct cn_ports *ports, const char *path)
{
    static struct cn_diag diag;
    struct cn_onnx *onnx = NULL;
    struct cn_onnx_file file = {.data = NULL};
    cn_err err;

    cn_diag_init(&diag);
    err = cn_onnx_file_open(path, &diag, &file);
    if (!err)
        err = cn_onnx_open(file.data, file.size, &diag, &onnx);
    if (!err)
        err = plan_model(ports, onnx, &diag);
    cn_onnx_close(onnx);
    cn_onnx_file_close(&file);
    for (size_t i = 0; i < diag.count && i < CN_DIAG_LINES; i++)
        fprintf(stderr, "%s: %s: %s\n", path, err ? "error" : "warning", diag.lines[i]);
    if (err && diag.count == 0)
        fprintf(stderr, "%s: error: %s\n", path, cn_err_text(err));
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

// What the firmware says, the folder that knows it, and its profile.
static int check_board(const char *board, const char *boards)
{
    static struct cn_board_identity identity;
    char directory[512], name[CN_NAME_SIZE], path[640];

    if (!cn_board_find_directory(boards, directory, sizeof(directory))) {
        fprintf(stderr, "error: no folder of boards; --boards says where it is\n");
        return CN_EXIT_FAILED;
    }
    snprintf(name, sizeof(name), "%.63s", board);
    if (strcmp(board, "auto") == 0) {
        cn_board_find_identity("", &identity);
        if (!cn_board_find(directory, &identity, name)) {
            fprintf(stderr, "error: no board of %s is this one. Its firmware says:\n", directory);
            for (size_t i = 0; i < identity.count; i++)
                fprintf(stderr, "    %s\n", identity.names[i]);
            fprintf(stderr, "Copy the closest folder and put such a line into its 'compatible'.\n");
            return CN_EXIT_FAILED;
        }
    } else if (!cn_name_valid(board)) {
        fprintf(stderr, "error: --board '%s' is neither auto nor a name\n", board);
        return CN_EXIT_USAGE;
    }
    snprintf(path, sizeof(path), "%s/%s/board.yaml", directory, name);
    return check_profile(path, false);
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {{"origin", no_argument, NULL, 'o'},
                                          {"board", required_argument, NULL, 'b'},
                                          {"boards", required_argument, NULL, 'd'},
                                          {0}};
    const char *dot, *board = NULL, *boards = NULL;
    bool origin = false;
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'b')
            board = optarg;
        else if (option == 'd')
            boards = optarg;
        else if (option == 'o')
            origin = true;
        else
            return CN_EXIT_USAGE;
    }
    if (board && optind == argc)
        return check_board(board, boards);
    if (optind + 1 != argc) {
        fputs(help, stderr);
        return CN_EXIT_USAGE;
    }
    dot = strrchr(argv[optind], '.');
    if (dot && strcmp(dot, ".onnx") == 0)
        return check_model(ports, argv[optind]);
    return check_profile(argv[optind], origin);
}

const struct cn_command cn_command_check = {
    .name = "check",
    .summary = "check a profile or a model and print what it means",
    .help = help,
    .run = run,
};
