#include "runtime/round/checkpoint/run_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/round/checkpoint/checkpoint_private.h"

#define NAME_SIZE 128 // longer than any name of a store
#define PREFIX "run-%016" PRIx64 "."
#define RUN_AT 24  // place of the run in the header of a state
#define RUN_END 32 // place after it

struct run_store {
    struct cn_store base;
    struct cn_store_ops ops; // those of the board's store, but for the functions that take a name
    struct cn_store *board;
    char prefix[CN_RUN_PREFIX_SIZE]; // "": the files without a prefix
};

static const struct run_store *of(const struct cn_store *store)
{
    return (const struct run_store *)(const void *)store;
}

// A name that is too long stays so for the board's store, which refuses it.
static const char *full_name(const struct cn_store *store, const char *name, char full[NAME_SIZE])
{
    snprintf(full, NAME_SIZE, "%s%s", of(store)->prefix, name);
    return full;
}

static void run_close(struct cn_store *store)
{
    free(store);
}

static cn_err run_create(struct cn_store *store, const char *name, struct cn_store_file **file)
{
    char full[NAME_SIZE];
    struct cn_store *board = of(store)->board;

    return board->ops->create(board, full_name(store, name, full), file);
}

static cn_err run_open(struct cn_store *store, const char *name, struct cn_store_file **file,
                       uint64_t *size)
{
    char full[NAME_SIZE];
    struct cn_store *board = of(store)->board;

    return board->ops->open(board, full_name(store, name, full), file, size);
}

static cn_err run_load(struct cn_store *store, const char *name, size_t limit, uint8_t **data,
                       size_t *size)
{
    char full[NAME_SIZE];
    struct cn_store *board = of(store)->board;

    return board->ops->load(board, full_name(store, name, full), limit, data, size);
}

static cn_err run_remove(struct cn_store *store, const char *name)
{
    char full[NAME_SIZE];
    struct cn_store *board = of(store)->board;

    return board->ops->remove(board, full_name(store, name, full));
}

struct walk {
    const char *prefix;
    cn_err (*visit)(void *context, const char *name);
    void *context;
};

static cn_err visit_own(void *context, const char *name)
{
    const struct walk *walk = context;
    size_t length = strlen(walk->prefix);
    uint64_t run;

    if (length ? strncmp(name, walk->prefix, length) != 0 : cn_run_store_name(name, &run))
        return CN_OK;
    return walk->visit(walk->context, name + length);
}

static cn_err run_list(struct cn_store *store, cn_err (*visit)(void *context, const char *name),
                       void *context)
{
    struct walk walk = {of(store)->prefix, visit, context};
    struct cn_store *board = of(store)->board;

    return board->ops->list(board, visit_own, &walk);
}

// Reads the run of the state in a slot. Returns false when there is no state.
static bool run_of_slot(struct cn_store *board, const char *prefix, int slot, uint64_t *run)
{
    uint8_t header[RUN_END];
    char name[NAME_SIZE];
    struct cn_store_file *file;
    uint64_t size;
    cn_err err;

    snprintf(name, sizeof(name), "%s%s", prefix, cn_checkpoint_slots[slot]);
    err = board->ops->open(board, name, &file, &size);
    if (err)
        return false;
    err = board->ops->read(file, 0, header, sizeof(header));
    board->ops->abort(file);
    *run = cn_get_u64(header + RUN_AT);
    return !err && memcmp(header, cn_checkpoint_magic, sizeof(cn_checkpoint_magic) - 1) == 0;
}

// Says whether the files without a prefix hold a state of this run, and in any whether they hold
// one at all. One slot is enough: the other one may be damaged.
static bool has_plain_state(struct cn_store *board, uint64_t run, bool *any)
{
    bool own = false;

    *any = false;
    for (int slot = 0; slot < 2; slot++) {
        uint64_t found;
        bool is_state = run_of_slot(board, "", slot, &found);

        *any |= is_state;
        own |= is_state && found == run;
    }
    return own;
}

bool cn_run_store_plain(struct cn_store *board, uint64_t *run)
{
    return run_of_slot(board, "", 0, run) || run_of_slot(board, "", 1, run);
}

static bool has_prefixed_state(struct cn_store *board, uint64_t run)
{
    char prefix[CN_RUN_PREFIX_SIZE];
    uint64_t found;

    snprintf(prefix, sizeof(prefix), PREFIX, run);
    return run_of_slot(board, prefix, 0, &found) || run_of_slot(board, prefix, 1, &found);
}

cn_err cn_run_store_open(struct cn_store *board, uint64_t run, struct cn_store **store)
{
    struct run_store *opened = calloc(1, sizeof(*opened));
    bool any, plain = has_plain_state(board, run, &any);

    *store = NULL;
    if (!opened)
        return CN_ENOMEM;
    opened->ops = *board->ops;
    opened->ops.close = run_close;
    opened->ops.create = run_create;
    opened->ops.open = run_open;
    opened->ops.load = run_load;
    opened->ops.remove = run_remove;
    opened->ops.list = run_list;
    opened->base.ops = &opened->ops;
    opened->board = board;
    if (has_prefixed_state(board, run) || (!plain && any))
        snprintf(opened->prefix, sizeof(opened->prefix), PREFIX, run);
    *store = &opened->base;
    return CN_OK;
}

bool cn_run_store_name(const char *name, uint64_t *run)
{
    char prefix[CN_RUN_PREFIX_SIZE];

    if (sscanf(name, "run-%16" SCNx64 ".", run) != 1)
        return false;
    snprintf(prefix, sizeof(prefix), PREFIX, *run);
    return strncmp(name, prefix, sizeof(prefix) - 1) == 0;
}

struct search {
    struct cn_store *board;
    uint32_t *version;
    bool found;
};

// Looks at the states of the run that a file belongs to.
static cn_err look_at_file(void *context, const char *name)
{
    struct search *search = context;
    struct cn_store *files;
    uint64_t run;

    if (search->found || !cn_run_store_name(name, &run) ||
        cn_run_store_open(search->board, run, &files))
        return CN_OK;
    search->found = cn_checkpoint_find_unknown(files, search->version) == CN_OK;
    files->ops->close(files);
    return CN_OK;
}

cn_err cn_run_store_find_unknown(struct cn_store *board, uint32_t *version)
{
    struct search search = {board, version, false};

    if (cn_checkpoint_find_unknown(board, version) == CN_OK)
        return CN_OK;
    (void)board->ops->list(board, look_at_file, &search); // the first use tells the store's errors
    return search.found ? CN_OK : CN_ENOTFOUND;
}

struct removal {
    struct cn_store *board;
    uint64_t run;
};

static cn_err remove_own(void *context, const char *name)
{
    const struct removal *removal = context;
    uint64_t run;

    if (!cn_run_store_name(name, &run) || run != removal->run)
        return CN_OK;
    return removal->board->ops->remove(removal->board, name);
}

cn_err cn_run_store_remove(struct cn_store *board, uint64_t run)
{
    struct removal removal = {board, run};
    bool any;
    cn_err err = board->ops->list(board, remove_own, &removal);

    if (has_plain_state(board, run, &any))
        for (int slot = 0; slot < 2 && !err; slot++)
            err = board->ops->remove(board, cn_checkpoint_slots[slot]);
    return err;
}
