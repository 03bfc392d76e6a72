#include "aggregator/trial/trial_data.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/engine/data/data_files.h"

#define NPY_PREFIX 10 // bytes before the header's text: magic, version, length
#define NPY_ALIGN 64

static const struct cn_npy *array_of(const struct cn_trial_piece *piece, bool labels)
{
    return labels ? &piece->labels.array : &piece->inputs.array;
}

// --- opening ---

static cn_err open_piece(struct cn_trial_piece *piece, const char *inputs, const char *labels,
                         struct cn_diag *diag)
{
    cn_err err = cn_source_open(inputs, false, diag, &piece->inputs);
    if (err)
        return err;
    err = cn_source_open(labels, true, diag, &piece->labels);
    if (err) {
        cn_source_deinit(&piece->inputs);
        return err;
    }
    const struct cn_npy *x = &piece->inputs.array, *y = &piece->labels.array;
    piece->rows = x->rank ? (size_t)x->dims[0] : 0;
    if (x->rank && y->rank && x->dims[0] == y->dims[0] && x->count && y->count)
        return CN_OK;
    if (!x->rank || !y->rank || !x->count || !y->count)
        cn_diag_add(diag, "%s: has no rows", x->rank && x->count ? labels : inputs);
    else
        cn_diag_add(diag, "%s has %" PRIu64 " rows and %s has %" PRIu64 "; expected equal numbers",
                    inputs, x->dims[0], labels, y->dims[0]);
    cn_source_deinit(&piece->inputs);
    cn_source_deinit(&piece->labels);
    return CN_EINVAL;
}

static bool rows_alike(const struct cn_npy *a, const struct cn_npy *b)
{
    return a->kind == b->kind && a->element_size == b->element_size && a->rank == b->rank &&
           memcmp(a->dims + 1, b->dims + 1, (a->rank - 1) * sizeof(a->dims[0])) == 0;
}

static bool pieces_alike(const struct cn_trial_piece *a, const struct cn_trial_piece *b)
{
    return rows_alike(&a->inputs.array, &b->inputs.array) &&
           rows_alike(&a->labels.array, &b->labels.array);
}

static cn_err open_named(struct cn_trial_data *data, const char *inputs, const char *labels,
                         const char *name, struct cn_diag *diag)
{
    char x[CN_DATA_FILE_PATH_SIZE], y[CN_DATA_FILE_PATH_SIZE];
    if (cn_data_files_path(inputs, name, x) || cn_data_files_path(labels, name, y)) {
        cn_diag_add(diag, "--data: a path is longer than %d bytes", CN_DATA_FILE_PATH_SIZE - 1);
        return CN_ERANGE;
    }
    struct cn_trial_piece *piece = &data->pieces[data->count];
    cn_err err = open_piece(piece, x, y, diag);
    if (err)
        return err;
    data->rows += piece->rows;
    data->count++;
    if (pieces_alike(&data->pieces[0], piece))
        return CN_OK;
    cn_diag_add(diag, "%s, %s: its rows have another shape or type than those of the first files",
                x, y);
    return CN_EINVAL;
}

cn_err cn_trial_data_open(struct cn_trial_data *data, const char *inputs, const char *labels,
                          struct cn_diag *diag)
{
    struct cn_data_files files = {0};
    const struct cn_data_file plain = {0};
    cn_err err;
    *data = (struct cn_trial_data){0};
    if (cn_data_files_is_pattern(inputs) != cn_data_files_is_pattern(labels)) {
        cn_diag_add(diag, "%s, %s: expected a * in both or in none", inputs, labels);
        return CN_EINVAL;
    }
    if (cn_data_files_is_pattern(inputs))
        err = cn_data_files_find(inputs, false, &files);
    else
        err = cn_data_files_add(&files, &plain);
    if (!err && files.count == 0)
        err = CN_ENOTFOUND;
    if (err)
        cn_diag_add(diag, "%s: %s", inputs, cn_err_text(err));
    data->pieces = calloc(files.count + 1, sizeof(*data->pieces));
    if (!err && !data->pieces)
        err = CN_ENOMEM;
    for (size_t i = 0; i < files.count && !err; i++)
        err = open_named(data, inputs, labels, files.items[i].name, diag);
    cn_data_files_deinit(&files);
    return err;
}

void cn_trial_data_deinit(struct cn_trial_data *data)
{
    for (size_t i = 0; i < data->count; i++) {
        cn_source_deinit(&data->pieces[i].inputs);
        cn_source_deinit(&data->pieces[i].labels);
    }
    free(data->pieces);
    *data = (struct cn_trial_data){0};
}

cn_err cn_trial_data_compare(const struct cn_trial_data *data, const struct cn_trial_data *other,
                             struct cn_diag *diag)
{
    if (pieces_alike(&data->pieces[0], &other->pieces[0]))
        return CN_OK;
    cn_diag_add(diag, "--test: its rows have another shape or type than those of --data");
    return CN_EINVAL;
}

// --- labels ---

bool cn_trial_data_has_integers(const struct cn_trial_data *data)
{
    return data->pieces[0].labels.array.kind != CN_NPY_FLOAT;
}

bool cn_trial_data_has_classes(const struct cn_trial_data *data)
{
    const struct cn_npy *array = &data->pieces[0].labels.array;
    size_t each = 1;
    for (uint32_t i = 1; i < array->rank; i++)
        each *= (size_t)array->dims[i];
    return cn_trial_data_has_integers(data) && each == 1;
}

cn_err cn_trial_data_labels(const struct cn_trial_data *data, int64_t **labels)
{
    size_t at = 0;
    *labels = malloc((data->rows + 1) * sizeof(**labels));
    if (!*labels)
        return CN_ENOMEM;
    for (size_t i = 0; i < data->count; i++)
        for (size_t row = 0; row < data->pieces[i].rows; row++)
            (*labels)[at++] = cn_npy_int(&data->pieces[i].labels.array, row);
    return CN_OK;
}

// --- writing ---

// Writes the header of a .npy file (NEP 1) for count rows like those of array.
static bool write_header(FILE *file, const struct cn_npy *array, size_t count)
{
    static const char letters[] = {[CN_NPY_FLOAT] = 'f', [CN_NPY_INT] = 'i', [CN_NPY_UINT] = 'u'};
    char text[512];
    int at = snprintf(
        text, sizeof(text), "{'descr': '%c%c%u', 'fortran_order': False, 'shape': (%zu,",
        array->element_size == 1 ? '|' : '<', letters[array->kind], array->element_size, count);
    for (uint32_t i = 1; i < array->rank; i++)
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%" PRIu64, i > 1 ? ", " : " ",
                       array->dims[i]);
    at += snprintf(text + at, sizeof(text) - (size_t)at, "), }");
    while ((at + NPY_PREFIX + 1) % NPY_ALIGN)
        text[at++] = ' ';
    text[at++] = '\n';
    uint8_t prefix[NPY_PREFIX] = "\x93NUMPY\x01";
    cn_put_u16(prefix + 8, (uint16_t)at);
    return fwrite(prefix, sizeof(prefix), 1, file) == 1 && fwrite(text, (size_t)at, 1, file) == 1;
}

static bool write_rows(FILE *file, const struct cn_trial_data *data, bool labels,
                       const uint32_t *owners, uint32_t owner)
{
    size_t at = 0;
    for (size_t i = 0; i < data->count; i++) {
        const struct cn_npy *array = array_of(&data->pieces[i], labels);
        size_t size = array->count / data->pieces[i].rows * array->element_size;
        for (size_t row = 0; row < data->pieces[i].rows; row++, at++) {
            bool wanted = !owners || owners[at] == owner;
            if (wanted && fwrite(array->data + row * size, size, 1, file) != 1)
                return false;
        }
    }
    return true;
}

static cn_err write_file(const struct cn_trial_data *data, bool labels, const uint32_t *owners,
                         uint32_t owner, const char *path, struct cn_diag *diag)
{
    size_t count = 0;
    for (size_t i = 0; i < data->rows; i++)
        count += !owners || owners[i] == owner;
    FILE *file = fopen(path, "wbe");
    bool done = file && write_header(file, array_of(&data->pieces[0], labels), count) &&
                write_rows(file, data, labels, owners, owner);
    if (file && fclose(file) != 0)
        done = false;
    if (!done)
        cn_diag_add(diag, "%s: %s", path, strerror(errno));
    return done ? CN_OK : CN_EIO;
}

cn_err cn_trial_data_write(const struct cn_trial_data *data, const uint32_t *owners, uint32_t owner,
                           const char *path, struct cn_diag *diag)
{
    char name[CN_DATA_FILE_PATH_SIZE + 16];
    snprintf(name, sizeof(name), "%s-inputs.npy", path);
    cn_err err = write_file(data, false, owners, owner, name, diag);
    snprintf(name, sizeof(name), "%s-labels.npy", path);
    return err ? err : write_file(data, true, owners, owner, name, diag);
}
