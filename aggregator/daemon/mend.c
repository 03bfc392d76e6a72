#include "aggregator/daemon/mend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/daemon/remake.h"
#include "aggregator/store/model_damage.h"
#include "runtime/base/log.h"
#include "runtime/update/tensor_rules.h"

#define LOOKS 3 // of `check`, while a running aggregator makes versions

struct mend {
    struct cn_setup *setup;
    struct cn_ledger_version newest;
    struct cn_model_damage damage; // of the newest version
    struct cn_model made;          // version that is made again; at first the one to begin with
    uint32_t base;                 // number of the version to begin with
};

// Finds the damaged files of a version.
static cn_err find_damage(struct mend *mend, const struct cn_ledger_version *version,
                          struct cn_model_damage *damage, size_t *rows)
{
    struct cn_setup *setup = mend->setup;
    struct cn_job job = setup->settings->job;
    cn_err err = version->number ? cn_remake_load_settings(setup, version->number, &job) : CN_OK;
    *damage = (struct cn_model_damage){0};
    *rows = cn_merge_state_rows(&job);
    if (err && err != CN_ECONFLICT)
        return err;
    return cn_model_damage_find(setup->store, &setup->model.layout, *rows, version, damage);
}

// --- making the version again ---

// Makes version 0 of the model's file, if the run began with that.
static cn_err begin_with_file(struct mend *mend)
{
    struct cn_setup *setup = mend->setup;
    struct cn_ledger_version first;
    float *weights = calloc(setup->model.layout.total + 1, sizeof(*weights));
    cn_err err = weights ? cn_ledger_find_version(setup->ledger, 0, &first) : CN_ENOMEM;
    mend->base = 0;
    if (!err)
        err = cn_onnx_weights(setup->model.onnx, &setup->model.layout, weights);
    if (!err)
        err = cn_model_seal(&mend->made, setup->model.digest, &setup->model.layout, weights);
    free(weights);
    if (!err && memcmp(mend->made.digest, first.digest, CN_DIGEST_SIZE) != 0)
        err = CN_ESTALE;
    return err;
}

// Loads the newest version before the damaged one that is whole.
static cn_err begin(struct mend *mend)
{
    struct cn_setup *setup = mend->setup;
    for (uint32_t number = mend->newest.number; number-- > 0;) {
        struct cn_ledger_version version;
        struct cn_model_damage damage;
        size_t rows;
        cn_err err = cn_ledger_find_version(setup->ledger, number, &version);
        if (!err)
            err = find_damage(mend, &version, &damage, &rows);
        mend->base = number;
        if (!err && !damage.text[0])
            err = cn_model_load(setup->store, setup->ledger, &setup->model.layout, rows, number,
                                &mend->made);
        if (err || !damage.text[0])
            return err;
    }
    return begin_with_file(mend);
}

static cn_err make_next(struct mend *mend)
{
    struct cn_ledger_version recorded;
    struct cn_model next = {0};
    cn_err err = cn_remake_version(mend->setup, &mend->made, &next);
    if (!err)
        err = cn_ledger_find_version(mend->setup->ledger, next.number, &recorded);
    if (!err && !cn_remake_agrees(mend->setup, &next, &recorded))
        err = CN_ECONFLICT;
    if (err) {
        cn_model_deinit(&next);
        return err;
    }
    cn_model_deinit(&mend->made);
    mend->made = next;
    return CN_OK;
}

// Says why the version cannot be made again.
static void explain(const struct mend *mend, cn_err err, char *text, size_t size)
{
    uint32_t next = mend->made.number + 1;
    if (!mend->made.bytes || (mend->newest.number == 0 && err == CN_ESTALE))
        snprintf(text, size, "no version before it is whole");
    else if (err == CN_ENOTFOUND)
        snprintf(text, size, "an update of version %u is not kept (gateway.keep_rounds)", next);
    else if (err == CN_ESTALE)
        snprintf(text, size, "the version that version %u went back to is not kept", next);
    else if (err == CN_EDIGEST)
        snprintf(text, size, "an update of version %u is damaged, too", next);
    else if (err == CN_ECONFLICT)
        snprintf(text, size, "what is made from version %u is not version %u", mend->base, next);
    else
        snprintf(text, size, "%s", cn_err_text(err));
}

static cn_err remake(struct mend *mend, char *why, size_t size)
{
    struct cn_setup *setup = mend->setup;
    cn_err err = begin(mend);
    while (!err && mend->made.number < mend->newest.number)
        err = make_next(mend);
    if (err)
        explain(mend, err, why, size);
    // Rules of earlier rounds were set meanwhile.
    cn_err back = cn_tensor_rules_set(&setup->model.layout, &setup->job, NULL);
    return err ? err : back;
}

// --- telling people ---

static cn_err tell_error(const struct mend *mend, cn_err err)
{
    fprintf(stderr, "error: %s/files/%s: %s\n", mend->setup->state_name, mend->damage.text,
            cn_err_reason(err));
    return err;
}

// Tells which version another run can begin with: the newest one whose weights are whole.
static cn_err tell_hopeless(struct mend *mend, const char *why, cn_err err)
{
    const struct cn_setup *setup = mend->setup;
    char version[16] = "none";
    for (uint32_t number = mend->newest.number + 1; number-- > 0;) {
        struct cn_ledger_version recorded;
        struct cn_model_damage full;
        if (cn_ledger_find_version(setup->ledger, number, &recorded) ||
            cn_model_damage_find_full(setup->store, &setup->model.layout, &recorded, &full) ||
            full.text[0])
            continue;
        snprintf(version, sizeof(version), "%u", number);
        break;
    }
    fprintf(stderr,
            "error: %s/files: %s and cannot be made again: %s. Restore a copy of the state, or "
            "begin the next run with what is whole: cairn-aggregator init --after %s --version %s "
            "PROFILE\n",
            setup->state_name, mend->damage.text, why, setup->state_name, version);
    return err;
}

// Says for people from what the version is made.
static const char *sources(const struct mend *mend, char text[80])
{
    if (mend->newest.number == 0)
        snprintf(text, 80, "the model's file");
    else
        snprintf(text, 80, "version %u and the updates since", mend->base);
    return text;
}

static cn_err look(struct mend *mend)
{
    size_t rows;
    cn_err err = cn_ledger_newest_version(mend->setup->ledger, &mend->newest);
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    err = find_damage(mend, &mend->newest, &mend->damage, &rows);
    cn_err back = cn_tensor_rules_set(&mend->setup->model.layout, &mend->setup->job, NULL);
    return err ? err : back;
}

static cn_err mend_files(struct mend *mend, bool write)
{
    const struct cn_setup *setup = mend->setup;
    char why[120] = "", text[80];
    cn_err err = remake(mend, why, sizeof(why));
    if (err)
        return tell_hopeless(mend, why, err);
    err =
        cn_model_damage_mend(setup->store, &setup->model.layout, &mend->made, write, &mend->damage);
    if (err)
        return tell_error(mend, err);
    if (write)
        cn_log(CN_LOG_WARN, "model_store", "%s: made again from %s, as the ledger has it",
               mend->damage.text, sources(mend, text));
    else
        fprintf(stderr, "error: %s/files: %s: run makes it again from %s\n", setup->state_name,
                mend->damage.text, sources(mend, text));
    return write ? CN_OK : CN_EDIGEST;
}

// A running aggregator may make a version and remove this one while its files are read.
static cn_err look_beside(struct mend *mend)
{
    cn_err err = look(mend);
    for (int i = 1; i < LOOKS && !err && mend->damage.text[0]; i++) {
        uint32_t before = mend->newest.number;
        err = look(mend);
        if (mend->newest.number == before)
            break;
    }
    return err;
}

static cn_err mend_newest(struct cn_setup *setup, bool write)
{
    struct mend mend = {.setup = setup};
    cn_err err = write ? look(&mend) : look_beside(&mend);
    if (err)
        return tell_error(&mend, err);
    if (mend.damage.text[0])
        err = mend_files(&mend, write);
    cn_model_deinit(&mend.made);
    return err;
}

cn_err cn_mend_newest(struct cn_setup *setup)
{
    return mend_newest(setup, true);
}

cn_err cn_mend_check(struct cn_setup *setup)
{
    return mend_newest(setup, false);
}
