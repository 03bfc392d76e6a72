#include "runtime/round/checkpoint/run_store.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/round/checkpoint/checkpoint_private.h"
#include "runtime/round/checkpoint/part_file.h"

#define NAME_SIZE 128 // longer than any name of a store
#define PREFIX "run-%016" PRIx64 "."
#define COUNTER_AT 16 // places in the header of a state
#define RUN_AT 24
#define HEADER_READ 32

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

static cn_err run_unlink(struct cn_store *store, const char *name)
{
    char full[NAME_SIZE];
    struct cn_store *board = of(store)->board;

    return board->ops->unlink(board, full_name(store, name, full));
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

// A state, as the start of its file tells.
struct slot {
    bool is_state;
    uint64_t counter, run;
};

// Reads the start of a slot. A slot that is not there is no state, and no error.
static cn_err read_slot(struct cn_store *board, const char *name, struct slot *slot)
{
    uint8_t header[HEADER_READ];
    struct cn_store_file *file;
    uint64_t size;
    cn_err err = board->ops->open(board, name, &file, &size);

    *slot = (struct slot){0};
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    err = size < sizeof(header) ? CN_ENOTFOUND : board->ops->read(file, 0, header, sizeof(header));
    board->ops->abort(file);
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    slot->is_state = memcmp(header, cn_checkpoint_magic, sizeof(cn_checkpoint_magic) - 1) == 0;
    slot->counter = cn_get_u64(header + COUNTER_AT);
    slot->run = cn_get_u64(header + RUN_AT);
    return CN_OK;
}

// Reads both slots with this prefix. A read that fails is repeated once: a state that is taken for
// missing would be overwritten.
static cn_err read_slots(struct cn_store *board, const char *prefix, struct slot slots[2])
{
    for (int i = 0; i < 2; i++) {
        char name[NAME_SIZE];

        snprintf(name, sizeof(name), "%s%s", prefix, cn_checkpoint_slots[i]);
        if (!read_slot(board, name, &slots[i]))
            continue;
        cn_err err = read_slot(board, name, &slots[i]);
        if (err)
            return err;
    }
    return CN_OK;
}

// Finds the run that the files without a prefix belong to. Returns CN_ENOTFOUND when they have no
// state. If the slots name two runs, that of the newest whole state counts.
static cn_err find_plain(struct cn_store *board, uint64_t *run)
{
    struct cn_checkpoint_file *file = NULL;
    struct cn_checkpoint numbers = {0};
    struct cn_diag diag;
    struct slot slots[2];
    cn_err err = read_slots(board, "", slots);

    if (err)
        return err;
    if (!slots[0].is_state && !slots[1].is_state)
        return CN_ENOTFOUND;
    *run = slots[slots[0].is_state ? 0 : 1].run;
    if (!slots[0].is_state || !slots[1].is_state || slots[0].run == slots[1].run)
        return CN_OK;
    cn_diag_init(&diag);
    err = cn_checkpoint_open(board, SIZE_MAX / 64, SIZE_MAX / 64, &diag, &file, &numbers);
    if (!err)
        *run = numbers.run;
    else if (slots[1].counter > slots[0].counter)
        *run = slots[1].run; // both are damaged
    cn_checkpoint_close(file);
    return CN_OK;
}

bool cn_run_store_plain(struct cn_store *board, uint64_t *run)
{
    return find_plain(board, run) == CN_OK;
}

// Says in prefix which names a run has: its own, or "" for those without a prefix.
static cn_err choose_names(struct cn_store *board, uint64_t run, char prefix[CN_RUN_PREFIX_SIZE])
{
    struct slot own[2];
    uint64_t plain;
    cn_err err;

    snprintf(prefix, CN_RUN_PREFIX_SIZE, PREFIX, run);
    err = read_slots(board, prefix, own);
    if (err || own[0].is_state || own[1].is_state)
        return err;
    err = find_plain(board, &plain);
    if (err == CN_ENOTFOUND || (!err && plain == run))
        prefix[0] = '\0';
    return err == CN_ENOTFOUND ? CN_OK : err;
}

cn_err cn_run_store_open(struct cn_store *board, uint64_t run, struct cn_store **store)
{
    struct run_store *opened = calloc(1, sizeof(*opened));
    cn_err err;

    *store = NULL;
    if (!opened)
        return CN_ENOMEM;
    err = choose_names(board, run, opened->prefix);
    if (err) {
        free(opened);
        return err;
    }
    opened->ops = *board->ops;
    opened->ops.close = run_close;
    opened->ops.create = run_create;
    opened->ops.open = run_open;
    opened->ops.load = run_load;
    opened->ops.remove = run_remove;
    opened->ops.unlink = run_unlink;
    opened->ops.list = run_list;
    opened->base.ops = &opened->ops;
    opened->board = board;
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

static cn_err remove_waiting(void *context, const char *name)
{
    struct cn_store *board = context;
    uint32_t part;
    uint64_t set;

    return cn_waiting_parse(name, &set, &part) ? board->ops->remove(board, name) : CN_OK;
}

// Removes the slots with this prefix, the older one first: whatever ends the program, no older
// state takes the place of a newer one.
static cn_err remove_slots(struct cn_store *board, const char *prefix)
{
    struct slot slots[2];
    cn_err err = read_slots(board, prefix, slots);
    int first = slots[0].counter <= slots[1].counter ? 0 : 1;

    for (int i = 0; i < 2 && !err; i++) {
        char name[NAME_SIZE];

        snprintf(name, sizeof(name), "%s%s", prefix, cn_checkpoint_slots[i ? 1 - first : first]);
        err = board->ops->remove(board, name);
    }
    return err;
}

cn_err cn_run_store_remove(struct cn_store *board, uint64_t run)
{
    struct removal removal = {board, run};
    char prefix[CN_RUN_PREFIX_SIZE];
    uint64_t plain;
    cn_err err;

    snprintf(prefix, sizeof(prefix), PREFIX, run);
    err = remove_slots(board, prefix);
    if (!err)
        err = board->ops->list(board, remove_own, &removal);
    if (!err)
        err = find_plain(board, &plain);
    for (uint32_t f = 0; !err && plain == run && f < CN_STORED_FILES * CN_STORED_SLOTS; f++)
        err = board->ops->remove(board, cn_stored_names[f / CN_STORED_SLOTS][f % CN_STORED_SLOTS]);
    if (!err && plain == run)
        err = board->ops->list(board, remove_waiting, board);
    if (!err && plain == run)
        err = remove_slots(board, "");
    return err == CN_ENOTFOUND ? CN_OK : err;
}
