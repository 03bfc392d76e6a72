#include "aggregator/trial/trial.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "aggregator/ledger/ledger.h"
#include "aggregator/store/model_file.h"
#include "aggregator/trial/trial_data.h"
#include "aggregator/trial/trial_job.h"
#include "aggregator/trial/trial_profiles.h"
#include "transport/coap/security.h"

const char *cn_trial_split_name(enum cn_trial_split_kind kind)
{
    static const char *const names[] = {
        [CN_TRIAL_IID] = "iid", [CN_TRIAL_LABELS] = "labels", [CN_TRIAL_DIRICHLET] = "dirichlet"};
    return names[kind];
}

static cn_err make_folders(const char *folder, struct cn_diag *diag)
{
    static const char *const names[] = {"data", "keys", "logs", "state"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        if (mkdir(path, strcmp(names[i], "keys") == 0 ? 0700 : 0777) != 0) {
            cn_diag_add(diag, "%s: %s", path, strerror(errno));
            return CN_EIO;
        }
    }
    return CN_OK;
}

// Copies the model into the folder, in one file even if it has data in others.
static cn_err copy_model(const char *model, const char *folder, struct cn_diag *diag)
{
    char path[PATH_MAX];
    struct cn_model_file file;
    struct cn_diag problems;
    cn_diag_init(&problems);
    cn_err err = cn_model_file_init(&file, model, &problems);
    cn_diag_add_about(diag, model, &problems);
    snprintf(path, sizeof(path), "%s/model.onnx", folder);
    FILE *copy = err ? NULL : fopen(path, "wbxe");
    bool done = copy && fwrite(file.file.data, file.file.size, 1, copy) == 1;
    if (copy && fclose(copy) != 0)
        done = false;
    if (!err && !done) {
        cn_diag_add(diag, "%s: %s", path, strerror(errno));
        err = CN_EIO;
    }
    cn_model_file_deinit(&file);
    return err;
}

// --- data ---

static cn_err write_owners(const struct cn_trial_split *split, const struct cn_trial_data *data,
                           const uint32_t *owners, const char *folder, struct cn_diag *diag)
{
    char path[PATH_MAX], name[CN_TRIAL_OWNER_SIZE];
    cn_err err = CN_OK;
    for (uint32_t i = 0; i < cn_trial_owners(split) && !err; i++) {
        cn_trial_owner_name(split, i, name);
        snprintf(path, sizeof(path), "%s/data/%s", folder, name);
        err = cn_trial_data_write(data, owners, i, path, diag);
    }
    return err;
}

// Opens and writes the gateway's own rows: those of --test, or those held out of the boards'.
static cn_err write_test(const struct cn_trial_options *options, const struct cn_trial_data *data,
                         const uint32_t *owners, const char *folder, struct cn_diag *diag)
{
    char path[PATH_MAX];
    struct cn_trial_data test;
    snprintf(path, sizeof(path), "%s/data/test", folder);
    if (!options->test_inputs)
        return cn_trial_data_write(data, owners, CN_TRIAL_CENTRAL, path, diag);
    cn_err err = cn_trial_data_open(&test, options->test_inputs, options->test_labels, diag);
    if (!err)
        err = cn_trial_data_compare(data, &test, diag);
    if (!err)
        err = cn_trial_data_write(&test, NULL, 0, path, diag);
    cn_trial_data_deinit(&test);
    return err;
}

static cn_err divide(const struct cn_trial_options *options, const struct cn_trial_data *data,
                     uint32_t *owners, struct cn_diag *diag)
{
    const struct cn_trial_split *split = &options->split;
    int64_t *labels = NULL;
    cn_err err = CN_OK;
    if (split->kind != CN_TRIAL_IID && !cn_trial_data_has_classes(data)) {
        cn_diag_add(diag, "--split %s: %s has no whole number for each row; --split iid needs none",
                    cn_trial_split_name(split->kind), options->labels);
        return CN_EINVAL;
    }
    if (!options->test_inputs && data->rows < 20) {
        cn_diag_add(diag, "%s has %zu rows; expected at least 20, of which a tenth measures",
                    options->inputs, data->rows);
        return CN_EINVAL;
    }
    if (split->kind != CN_TRIAL_IID)
        err = cn_trial_data_labels(data, &labels);
    cn_trial_hold_out(split->seed, !options->test_inputs, data->rows, owners);
    if (!err)
        err = cn_trial_divide(split, labels, data->rows, owners, diag);
    free(labels);
    return err;
}

// Writes the job, has it checked with the user's own files, and divides their rows.
static cn_err write_data(const struct cn_trial_options *options,
                         const struct cn_trial_programs *programs, const char *folder,
                         struct cn_diag *diag)
{
    struct cn_trial_data data;
    uint32_t *owners = NULL;
    cn_err err = cn_trial_data_open(&data, options->inputs, options->labels, diag);
    if (!err)
        err = cn_trial_job_write(options, !cn_trial_data_has_integers(&data), folder, diag);
    if (!err)
        err = cn_trial_check_sources(programs, options, folder, diag);
    if (!err) {
        owners = malloc(data.rows * sizeof(*owners));
        err = owners ? divide(options, &data, owners, diag) : CN_ENOMEM;
    }
    if (!err)
        err = write_owners(&options->split, &data, owners, folder, diag);
    if (!err)
        err = write_test(options, &data, owners, folder, diag);
    free(owners);
    cn_trial_data_deinit(&data);
    return err;
}

// --- keys ---

static cn_err enroll_board(struct cn_ledger *ledger, const struct cn_trial_split *split,
                           uint32_t number, const char *folder, struct cn_diag *diag)
{
    char path[PATH_MAX];
    struct cn_ledger_board board = {0};
    struct cn_board_key key;
    snprintf(board.name, sizeof(board.name), "board-%u", number + 1);
    snprintf(board.group, sizeof(board.group), "group-%u", cn_trial_group(split, number) + 1);
    snprintf(path, sizeof(path), "%s/keys/%s.key", folder, board.name);
    cn_err err = cn_security_make_key(path, board.name, diag, &key);
    if (err)
        return err;
    memcpy(board.secret, key.secret, sizeof(board.secret));
    err = cn_ledger_enroll(ledger, &board);
    cn_crypto_wipe(&key, sizeof(key));
    cn_crypto_wipe(board.secret, sizeof(board.secret));
    return err;
}

static cn_err enroll_boards(const struct cn_trial_split *split, const char *folder,
                            struct cn_diag *diag)
{
    char path[PATH_MAX];
    struct cn_ledger *ledger;
    snprintf(path, sizeof(path), "%s/state/gateway", folder);
    cn_err err = cn_ledger_open(path, &ledger);
    if (err)
        return err;
    for (uint32_t i = 0; i < split->boards && !err; i++)
        err = enroll_board(ledger, split, i, folder, diag);
    cn_ledger_close(ledger);
    return err;
}

cn_err cn_trial_prepare(const struct cn_trial_options *options,
                        const struct cn_trial_programs *programs,
                        const struct cn_trial_folder *folder, struct cn_diag *diag)
{
    struct cn_trial_ports ports;
    const char *path = folder->path;
    cn_err err = make_folders(path, diag);
    if (!err)
        err = copy_model(options->model, path, diag);
    if (!err)
        err = write_data(options, programs, path, diag);
    if (!err)
        err = cn_trial_ports_choose(&ports, options->split.boards, (uint16_t)options->port, diag);
    if (!err)
        err = cn_trial_profiles_write(options, &ports, path, diag);
    if (!err)
        err = enroll_boards(&options->split, path, diag);
    if (err && err != CN_ECANCELED && diag->count == 0)
        cn_diag_add(diag, "%s: %s", path, cn_err_text(err));
    return err;
}
