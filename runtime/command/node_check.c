// node_check.c - "cairn-node check": what a profile or a model means to this program.
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/command/board_find.h"
#include "runtime/command/check_contents.h"
#include "runtime/command/check_ending.h"
#include "runtime/command/check_export.h"
#include "runtime/command/check_memory.h"
#include "runtime/command/check_weights.h"
#include "runtime/command/command.h"
#include "runtime/engine/data/data_files.h"
#include "runtime/engine/data/source.h"
#include "runtime/engine/import/import.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/engine/trainer/trainer_shards.h"
#include "runtime/profile/notation/quantity.h"
#include "runtime/round/session/session.h"

#define CHECK_BATCH 32 // a model is planned for this batch without --batch

static const char help[] =
    "Usage: cairn-node check [--origin] [--profile-only] FILE\n"
    "       cairn-node check [--batch N] [--memory SIZE] MODEL.onnx\n"
    "       cairn-node check --ops\n"
    "       cairn-node check --board auto [--boards DIR] [--sysroot DIR]\n"
    "\n"
    "FILE is a profile (.yaml): prints the effective profile, or everything that is\n"
    "wrong with it, and exits with 3 then. Opens the model, all data and the key\n"
    "that it names, as train and run do; what cannot be used is said, and it exits\n"
    "with 1, as for a memory.train_max of more than this machine has. The last line\n"
    "is \"ok\" when nothing is wrong, and \"FILE: not ok\" otherwise. On another machine\n"
    "than the board: --profile-only. For a gateway: cairn-aggregator check.\n"
    "\n"
    "FILE is a model (.onnx): prints its tensors, the shape of its samples and the\n"
    "memory training needs, or the list of what is not supported.\n"
    "\n"
    "  --origin           the file and line that set each value\n"
    "  --profile-only     open nothing; a file that is missing is a warning\n"
    "  --batch N          plan for this batch; default: 32\n"
    "  --memory SIZE      say what would be given up to stay within it (\"64 MiB\")\n"
    "  --ops              list the ONNX operators that are supported\n"
    "  --board auto       recognise this board, or say what its firmware calls\n"
    "                     itself\n"
    "  --boards DIR       folder of the types of boards; default: the installed ones\n"
    "  --sysroot DIR      read the firmware's names below DIR: in a container, or a\n"
    "                     record\n";

// Returns whether the file that a key names is missing, or may not be read; prints so, as a warning
// or an error, unless kind is NULL.
static bool misses_file(const char *profile, const char *kind, const char *key, const char *path)
{
    char file[CN_PATH_SIZE];

    snprintf(file, sizeof(file), "%s", path);
    (void)cn_source_cut_member(file);
    if (!file[0] || cn_data_files_is_pattern(file) || !access(file, R_OK))
        return false;
    if (kind)
        fprintf(stderr, "%s: %s: %s: %s: %s\n", profile, kind, key, file, strerror(errno));
    return true;
}

// Counts the files that a job names and that cannot be read. kind as in misses_file.
static size_t missing_files(const char *path, const char *kind, const struct cn_settings *settings)
{
    const char *sets[] = {settings->job.data_set, settings->job.central_set};
    bool gateway = settings->gateway.listen_count > 0;
    const struct cn_data_paths *data = cn_profile_data(settings, sets[gateway]);
    size_t count = misses_file(path, kind, "job.model", settings->model);

    if (!data)
        return count;
    if (!data->file_count)
        count += misses_file(path, kind, "data", data->inputs);
    for (uint32_t i = 0; i < data->file_count; i++)
        count += misses_file(path, kind, "data", data->files[i].path);
    return count + misses_file(path, kind, "data", data->labels);
}

// Opens the model, all data and the key of a profile. Only the first file that is missing would be
// named by what opens them, so several are listed before.
static int check_contents(const struct cn_ports *ports, const char *path,
                          const struct cn_settings *settings)
{
    if (settings->has_job && missing_files(path, NULL, settings) > 1) {
        (void)missing_files(path, "error", settings);
        return CN_EXIT_FAILED;
    }
    return cn_check_contents(ports, settings);
}

// Checks that a profile with a job and a state directory has all keys that training alone, or a
// gateway, needs. Another profile may be only a part of one, so it is not checked.
static cn_err check_whole(const char *path, const struct cn_profile *profile, bool profile_only,
                          struct cn_diag *diag)
{
    const struct cn_settings *settings = cn_profile_settings(profile);
    bool gateway = settings->gateway.listen_count > 0;

    if (!settings->has_job || !settings->state[0])
        return CN_OK;
    if (profile_only)
        (void)missing_files(path, "warning", settings);
    return cn_profile_require(profile, gateway ? CN_PROFILE_GATEWAY : CN_PROFILE_TRAIN, diag);
}

// Prints the last line about a profile. Returns code.
static int tell_result(const char *path, int code)
{
    if (code)
        printf("%s: not ok: mend what the error lines above say\n", path);
    else
        printf("ok\n");
    return code;
}

// Checks a profile. With ports it also opens the model, the data and the key. machine is the
// sysroot of the machine that the profile is for, "" for this one; NULL: for another machine.
static int check_profile(const struct cn_ports *ports, const char *path, bool origin,
                         const char *machine)
{
    static struct cn_diag diag;
    struct cn_profile *profile = NULL;
    int code = CN_EXIT_DONE;
    cn_err err;

    cn_diag_init(&diag);
    err = cn_profile_load(path, &diag, &profile);
    if (!err)
        err = check_whole(path, profile, !ports, &diag);
    cn_command_print_diag(&diag);
    if (err) {
        cn_profile_free(profile);
        if (diag.count == 0)
            fprintf(stderr, "%s: error: %s\n", path, cn_err_text(err));
        return ports ? tell_result(path, CN_EXIT_PROFILE) : CN_EXIT_PROFILE;
    }
    cn_profile_print(profile, origin, stdout);
    fflush(stdout); // so that errors follow the profile
    if (machine && !cn_check_memory(path, cn_profile_settings(profile), machine))
        code = CN_EXIT_FAILED;
    if (ports)
        code |= check_contents(ports, path, cn_profile_settings(profile));
    cn_profile_free(profile);
    return ports ? tell_result(path, code) : code;
}

static void print_tensors(const struct cn_layout *layout)
{
    for (size_t i = 0; i < layout->tensor_count; i++) {
        const struct cn_tensor_info *tensor = &layout->tensors[i];

        printf("%-10s %-32s ", tensor->class == CN_TENSOR_STAT ? "statistic" : "parameter",
               tensor->name);
        for (uint32_t d = 0; d < tensor->rank; d++)
            printf("%s%" PRIu64, d ? "x" : "", tensor->dims[d]);
        printf("\n");
    }
    printf("%zu values in %zu tensors\n", layout->total, layout->tensor_count);
}

// Prints the shape that the samples of a data set must have for this model.
static void print_sample(const struct cn_trainer *trainer)
{
    struct cn_sample_shape shape;

    cn_trainer_sample_shape(trainer, &shape);
    for (uint32_t i = 0; i < shape.input_count; i++) {
        const struct cn_input_shape *input = &shape.inputs[i];

        if (shape.input_count > 1)
            printf("%s: ", input->name);
        printf("a sample has the shape (");
        for (uint32_t d = 0; d < input->rank; d++)
            printf("%s%" PRIu64, d ? ", " : "", input->dims[d]);
        printf("%s)%s", input->rank == 1 ? "," : "", i + 1 < shape.input_count ? "\n" : "");
    }
    printf(", an output %zu values\n", shape.outputs);
}

// The command's options.
struct wishes {
    bool origin, ops, profile_only;
    uint32_t batch;
    uint64_t memory; // bytes, 0: no limit
    const char *board, *boards, *sysroot;
};

// Prints the memory that training takes, the batches and the model file included.
static void print_plan(const struct cn_trainer *trainer, const struct cn_onnx_file *file,
                       uint32_t batch)
{
    const struct cn_job sgd = {.rules.optimizer = CN_OPTIMIZER_SGD};
    const struct cn_job adam = {.rules.optimizer = CN_OPTIMIZER_ADAM};
    const struct cn_layout *layout = cn_trainer_layout(trainer);
    const struct cn_trainer_plan *plan = cn_trainer_plan(trainer);
    struct cn_sample_shape shape;
    uint64_t bytes = plan->bytes + cn_onnx_file_memory(file);

    cn_trainer_sample_shape(trainer, &shape);
    bytes += CN_SESSION_BATCHES * cn_batch_memory(&shape, batch);
    printf("%.2f MiB to train with batches of %u", (double)bytes / 1048576, batch);
    if (!cn_trainer_capability(trainer))
        printf(" on %u threads", cn_platform_cpu_count());
    printf(" (%.2f with Adam): %s", (double)(bytes + cn_trainer_state_memory(trainer)) / 1048576,
           cn_recompute_text(plan->recompute));
    if (plan->batch < batch)
        printf(", %u samples at a time", plan->batch);
    printf("\n%.2f MiB more in a run with a gateway (%.2f with Adam)\n",
           (double)cn_session_most_copies(&sgd, layout, false) / 1048576,
           (double)cn_session_most_copies(&adam, layout, false) / 1048576);
}

// Prints the operators of the file with their counts, and the floating-point operations of a
// sample.
static void print_work(const struct cn_onnx *onnx, const struct cn_trainer *trainer)
{
    double forward, step;

    printf("operators:");
    for (size_t i = 0; i < onnx->node_count; i++) {
        struct cn_text op = onnx->nodes[i].op;
        size_t count = 0, before = 0;

        for (size_t j = 0; j < onnx->node_count; j++) {
            struct cn_text other = onnx->nodes[j].op;
            bool same = other.size == op.size && memcmp(other.data, op.data, op.size) == 0;

            count += same;
            before += same && j < i;
        }
        if (!before)
            printf(" %.*s %zu", (int)op.size, op.data, count);
    }
    cn_trainer_flops(trainer, &forward, &step);
    printf("\n%.3f MFLOP forward, %.3f MFLOP with the backward pass, for each sample\n",
           forward / 1e6, step / 1e6);
}

// Treats an output of one number for the whole batch as the loss.
static void take_loss(const struct cn_onnx *onnx, struct cn_trainer_config *config,
                      struct cn_rules *rules)
{
    for (size_t i = 0; i < onnx->output_count; i++) {
        struct cn_text name = onnx->outputs[i].name;

        if (onnx->outputs[i].rank)
            continue;
        config->loss = CN_LOSS_OUTPUT;
        config->rules = rules;
        snprintf(rules->output, sizeof(rules->output), "%.*s", (int)name.size, name.data);
        return;
    }
}

static cn_err plan_model(const struct cn_ports *ports, const struct cn_onnx_file *file,
                         const struct cn_onnx *onnx, const struct wishes *wishes,
                         struct cn_diag *diag)
{
    static const struct cn_settings any; // names no device, so the first that works is taken
    struct cn_trainer_config config = {
        .compute = cn_command_compute(ports, &any, NULL),
        .threads = cn_platform_cpu_count(),
        .batch = wishes->batch,
        .loss = CN_LOSS_MSE, // takes an output of any shape
        .memory_limit = wishes->memory,
    };
    struct cn_rules rules = {0};
    struct cn_trainer *trainer = NULL;
    cn_err err;

    take_loss(onnx, &config, &rules);
    err = cn_trainer_open(onnx, &config, diag, &trainer);
    if (err)
        return err;
    print_tensors(cn_trainer_layout(trainer));
    print_sample(trainer);
    print_work(onnx, trainer);
    print_plan(trainer, file, wishes->batch);
    cn_check_export(onnx, CN_BATCH_NORM_MODEL, diag);
    cn_check_weights(onnx, cn_trainer_layout(trainer), diag);
    cn_check_names(onnx, cn_trainer_layout(trainer), diag);
    cn_check_ending(onnx, NULL, diag);
    cn_trainer_close(trainer);
    return CN_OK;
}

// Says where the operators are listed, if one of the model is not among them.
static void tell_ops(const struct cn_diag *diag)
{
    for (size_t i = 0; i < diag->count && i < CN_DIAG_LINES; i++) {
        if (!strstr(diag->lines[i], CN_IMPORT_NO_OP))
            continue;
        fprintf(stderr, "'cairn-node check --ops' lists the operators that are supported\n");
        return;
    }
}

static int check_model(const struct cn_ports *ports, const char *path, const struct wishes *wishes)
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
        err = plan_model(ports, &file, onnx, wishes, &diag);
    cn_onnx_close(onnx);
    cn_onnx_file_close(&file);
    cn_command_print_about(path, err, &diag);
    tell_ops(&diag);
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int usage(void)
{
    fputs(help, stderr);
    return CN_EXIT_USAGE;
}

// Prints the names of all supported operators in one line, as the README of the engine has them.
static int print_ops(void)
{
    const char *name;

    for (size_t i = 0; (name = cn_import_op_name(i)); i++)
        printf("%s%s", i ? ", " : "", name);
    printf("\n");
    return CN_EXIT_DONE;
}

// Prints the profile of a type of board: of the one that board names, or for "auto" of the one that
// this machine's firmware names. When no type has a name of the firmware, prints these names.
static int check_board(const char *board, const char *boards, const char *sysroot)
{
    static struct cn_board_identity identity;
    char directory[512], name[CN_NAME_SIZE], path[640];
    bool here = strcmp(board, "auto") == 0;

    if (!cn_board_find_directory(boards, directory, sizeof(directory))) {
        fprintf(stderr, "error: no folder of boards; --boards says where it is\n");
        return CN_EXIT_FAILED;
    }
    snprintf(name, sizeof(name), "%.63s", board);
    if (here) {
        cn_board_find_identity(sysroot ? sysroot : "", &identity);
        if (identity.count == 0) {
            fprintf(stderr,
                    "error: this machine's firmware does not say what it is (no device tree, "
                    "no DMI); name its board with --board NAME\n");
            return CN_EXIT_FAILED;
        }
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
    return check_profile(NULL, path, false, here ? (sysroot ? sysroot : "") : NULL);
}

static bool take_batch(const char *text, uint32_t *batch)
{
    uint64_t number;

    if (cn_quantity_parse(text, cn_units_none, &number) || !number || number > UINT32_MAX) {
        fprintf(stderr, "error: --batch '%s' is not a count\n", text);
        return false;
    }
    *batch = (uint32_t)number;
    return true;
}

static bool take_option(int option, struct wishes *wishes)
{
    switch (option) {
    case 'o':
        wishes->origin = true;
        return true;
    case 'p':
        wishes->profile_only = true;
        return true;
    case 'l':
        wishes->ops = true;
        return true;
    case 'b':
        wishes->board = optarg;
        return true;
    case 'd':
        wishes->boards = optarg;
        return true;
    case 'r':
        wishes->sysroot = optarg;
        return cn_command_is_sysroot(optarg);
    case 'n':
        return take_batch(optarg, &wishes->batch);
    case 'm':
        if (!cn_quantity_parse(optarg, cn_units_size, &wishes->memory))
            return true;
        fprintf(stderr, "error: --memory '%s' is not a size; expected as \"64 MiB\"\n", optarg);
        return false;
    default:
        return false; // getopt said so
    }
}

// Reads the options. Returns false, after printing why, for an unknown option or a bad number.
static bool take_options(int argc, char **argv, struct wishes *wishes)
{
    static const struct option known[] = {{"origin", no_argument, NULL, 'o'},
                                          {"batch", required_argument, NULL, 'n'},
                                          {"memory", required_argument, NULL, 'm'},
                                          {"ops", no_argument, NULL, 'l'},
                                          {"board", required_argument, NULL, 'b'},
                                          {"boards", required_argument, NULL, 'd'},
                                          {"sysroot", required_argument, NULL, 'r'},
                                          {"profile-only", no_argument, NULL, 'p'},
                                          {0}};
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (!take_option(option, wishes))
            return false;
    return true;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    struct wishes wishes = {.batch = CHECK_BATCH};
    const char *dot;

    if (!take_options(argc, argv, &wishes))
        return CN_EXIT_USAGE;
    if (wishes.ops && optind == argc)
        return print_ops();
    if (wishes.board && optind == argc)
        return check_board(wishes.board, wishes.boards, wishes.sysroot);
    if (optind + 1 != argc || wishes.ops || wishes.board)
        return usage();
    dot = strrchr(argv[optind], '.');
    if (dot && strcmp(dot, ".onnx") == 0)
        return check_model(ports, argv[optind], &wishes);
    return wishes.profile_only ? check_profile(NULL, argv[optind], wishes.origin, NULL)
                               : check_profile(ports, argv[optind], wishes.origin, "");
}

const struct cn_command cn_command_check = {
    .name = "check",
    .summary = "check a profile or a model and print what it means",
    .help = help,
    .run = run,
};
