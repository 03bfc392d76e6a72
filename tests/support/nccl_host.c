// libnccl.so.2 without a GPU, for programs that are started with LD_LIBRARY_PATH: what ports/nccl
// calls, between processes of one machine. The device's memory is the host's (cuda_host.h).
//
// A communicator is a folder, whose path is the id. A message is a file in it: written aside and
// renamed, and taken by its receiver, which polls until it is there. Each communicator has a thread
// that does what it was told, call after call, as the real one does for communicators that do not
// block; until then its state is "in progress". With CAIRN_NCCL_NO_SPLIT=1 in the environment none
// is split. With CAIRN_NCCL_HOST=FILE in the environment each communicator adds a line to the file
// when it ends: its rank, its size, and the number of elements of 32 and more bits, and of 16 bits,
// that its rank gave to calls. Calls of one element, the warm-ups, are left out.
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ports/nccl/library.h"
#include "runtime/group/reduce.h"

#define RANKS 16
#define CALLS 64       // most calls of a group
#define POLL_US 200    // time between two looks for a message
#define FAILED 3       // ncclInternalError
#define INVALID 4      // ncclInvalidArgument
#define PATH_ROOM 256  // bytes for the path of a communicator's folder
#define FILE_ROOM 320  // bytes for the path of a file in it
#define ROOT_BYTES 100 // bytes of an id

enum kind { ALL_REDUCE, REDUCE, BROADCAST, SEND, RECEIVE };

struct call {
    enum kind kind;
    const void *from;
    void *to;
    size_t count;
    int type, peer; // peer: the root, or the other end
};

struct nccl_comm {
    char folder[PATH_ROOM];
    int rank, size;
    int splits;                          // number of splits that were made of it
    int parent_size, number, color, key; // of a split: its number, and what this rank asked for
    uint64_t sent[RANKS], taken[RANKS], wide, narrow;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t told;
    struct call calls[CALLS];
    int count, state; // number of calls to do; enum nccl_result
    bool ends;
    atomic_bool aborted;
};

// The library's own names.
int get_version(int *version) __asm__("ncclGetVersion");
int get_unique_id(struct nccl_id *id) __asm__("ncclGetUniqueId");
int comm_init(struct nccl_comm **made, int size, struct nccl_id id, int rank,
              struct nccl_config *config) __asm__("ncclCommInitRankConfig");
int comm_split(struct nccl_comm *parent, int color, int key, struct nccl_comm **made,
               struct nccl_config *config) __asm__("ncclCommSplit");
int comm_error(struct nccl_comm *comm, int *state) __asm__("ncclCommGetAsyncError");
int comm_finalize(struct nccl_comm *comm) __asm__("ncclCommFinalize");
int comm_destroy(struct nccl_comm *comm) __asm__("ncclCommDestroy");
int comm_abort(struct nccl_comm *comm) __asm__("ncclCommAbort");
int all_reduce(const void *from, void *to, size_t count, int type, int how, struct nccl_comm *comm,
               struct cuda_stream *stream) __asm__("ncclAllReduce");
int reduce(const void *from, void *to, size_t count, int type, int how, int root,
           struct nccl_comm *comm, struct cuda_stream *stream) __asm__("ncclReduce");
int broadcast(const void *from, void *to, size_t count, int type, int root, struct nccl_comm *comm,
              struct cuda_stream *stream) __asm__("ncclBroadcast");
int send_to(const void *from, size_t count, int type, int to, struct nccl_comm *comm,
            struct cuda_stream *stream) __asm__("ncclSend");
int receive_from(void *to, size_t count, int type, int from, struct nccl_comm *comm,
                 struct cuda_stream *stream) __asm__("ncclRecv");
int group_start(void) __asm__("ncclGroupStart");
int group_end(void) __asm__("ncclGroupEnd");

static _Thread_local bool in_group;
static _Thread_local struct nccl_comm *grouped;

int get_version(int *version)
{
    *version = 22809;
    return NCCL_SUCCESS;
}

int get_unique_id(struct nccl_id *id)
{
    const char *folder = getenv("TMPDIR");

    memset(id, 0, sizeof(*id));
    if (snprintf(id->bytes, ROOT_BYTES, "%s/nccl-XXXXXX", folder ? folder : "/tmp") >= ROOT_BYTES)
        return FAILED;
    return mkdtemp(id->bytes) ? NCCL_SUCCESS : FAILED;
}

// --- messages ---

static bool put_file(const struct nccl_comm *comm, const char *name, const void *data, size_t size)
{
    char aside[FILE_ROOM], path[FILE_ROOM];
    FILE *file;
    bool good;

    snprintf(path, sizeof(path), "%s/%s", comm->folder, name);
    snprintf(aside, sizeof(aside), "%s/.%s", comm->folder, name);
    file = fopen(aside, "wb");
    if (!file)
        return false;
    good = fwrite(data, 1, size, file) == size;
    good = fclose(file) == 0 && good;
    return good && rename(aside, path) == 0;
}

// Waits for a message. Returns false after an abort, and when it has another size.
static bool get_file(struct nccl_comm *comm, const char *name, void *data, size_t size, bool keep)
{
    char path[FILE_ROOM];
    FILE *file;
    bool good;

    snprintf(path, sizeof(path), "%s/%s", comm->folder, name);
    while (!(file = fopen(path, "rb"))) {
        if (atomic_load(&comm->aborted))
            return false;
        usleep(POLL_US);
    }
    good = fread(data, 1, size, file) == size && fgetc(file) == EOF;
    fclose(file);
    return keep ? good : unlink(path) == 0 && good;
}

static bool send_bytes(struct nccl_comm *comm, int to, const void *data, size_t size)
{
    char name[64];

    snprintf(name, sizeof(name), "%d.%d.%llu", comm->rank, to,
             (unsigned long long)comm->sent[to]++);
    return put_file(comm, name, data, size);
}

static bool receive_bytes(struct nccl_comm *comm, int from, void *data, size_t size)
{
    char name[64];

    snprintf(name, sizeof(name), "%d.%d.%llu", from, comm->rank,
             (unsigned long long)comm->taken[from]++);
    return get_file(comm, name, data, size, false);
}

// --- calls ---

static enum cn_number number_of(int type)
{
    return type == NCCL_FLOAT32    ? CN_FLOAT32
           : type == NCCL_BFLOAT16 ? CN_BFLOAT16
           : type == NCCL_FLOAT16  ? CN_FLOAT16
                                   : CN_INT64;
}

static bool broadcast_from(struct nccl_comm *comm, int root, void *data, size_t size)
{
    bool good = true;

    if (comm->rank != root)
        return receive_bytes(comm, root, data, size);
    for (int r = 0; r < comm->size && good; r++)
        good = r == root || send_bytes(comm, r, data, size);
    return good;
}

// The root adds in the order of the ranks.
static bool reduce_to(struct nccl_comm *comm, int root, const struct call *call, size_t size)
{
    void *other;
    bool good = true;

    if (comm->rank != root)
        return send_bytes(comm, root, call->to, size);
    other = malloc(size);
    for (int r = 0; r < comm->size && good; r++) {
        if (r == root)
            continue;
        good = other && receive_bytes(comm, r, other, size);
        if (good)
            cn_reduce_into(number_of(call->type), CN_REDUCE_SUM, call->to, other, call->count);
    }
    free(other);
    return good;
}

static bool do_call(struct nccl_comm *comm, const struct call *call)
{
    size_t size = call->count * cn_number_size(number_of(call->type));

    switch (call->kind) {
    case ALL_REDUCE:
        return reduce_to(comm, 0, call, size) && broadcast_from(comm, 0, call->to, size);
    case REDUCE:
        return reduce_to(comm, call->peer, call, size);
    case BROADCAST:
        return broadcast_from(comm, call->peer, call->to, size);
    case SEND:
        return send_bytes(comm, call->peer, call->from, size);
    default:
        return receive_bytes(comm, call->peer, call->to, size);
    }
}

// Sends come first, because they wait for no other rank.
static bool do_calls(struct nccl_comm *comm, const struct call *calls, int count)
{
    bool good = true;

    for (int i = 0; i < count && good; i++)
        good = calls[i].kind != SEND || do_call(comm, &calls[i]);
    for (int i = 0; i < count && good; i++)
        good = calls[i].kind == SEND || do_call(comm, &calls[i]);
    return good;
}

// --- forming ---

// Waits until each rank has said that it is there.
static bool meet(struct nccl_comm *comm)
{
    char name[64], byte = 1;
    bool good;

    snprintf(name, sizeof(name), "here.%d", comm->rank);
    good = put_file(comm, name, &byte, 1);
    for (int r = 0; r < comm->size && good; r++) {
        snprintf(name, sizeof(name), "here.%d", r);
        good = get_file(comm, name, &byte, 1, true);
    }
    return good;
}

// Reads what each rank of the parent said when it split. The ranks of one color make the child, in
// the order of their keys. folder is still the parent's.
static bool split(struct nccl_comm *comm)
{
    int other[2], number = comm->number;
    char name[64], folder[PATH_ROOM];
    bool good = true;

    for (int r = 0; r < comm->parent_size && good; r++) {
        snprintf(name, sizeof(name), "split.%d.%d", number, r);
        good = get_file(comm, name, other, sizeof(other), true);
        comm->size += good && other[0] == comm->color;
        comm->rank += good && other[0] == comm->color && other[1] < comm->key;
    }
    snprintf(folder, sizeof(folder), "%.200s/set.%d.%d", comm->folder, number, comm->color);
    memcpy(comm->folder, folder, sizeof(folder));
    (void)mkdir(folder, 0700); // another rank may have made it
    return good && meet(comm);
}

static void finish(struct nccl_comm *comm, bool good)
{
    pthread_mutex_lock(&comm->mutex);
    comm->state = good ? NCCL_SUCCESS : FAILED;
    pthread_mutex_unlock(&comm->mutex);
}

static void *comm_main(void *context)
{
    struct nccl_comm *comm = context;

    finish(comm, comm->parent_size ? split(comm) : meet(comm));
    for (;;) {
        struct call calls[CALLS];
        int count;

        pthread_mutex_lock(&comm->mutex);
        while (!comm->ends && comm->state != NCCL_IN_PROGRESS)
            pthread_cond_wait(&comm->told, &comm->mutex);
        count = comm->count;
        memcpy(calls, comm->calls, (size_t)count * sizeof(calls[0]));
        comm->count = 0;
        pthread_mutex_unlock(&comm->mutex);
        if (comm->ends)
            return NULL;
        finish(comm, do_calls(comm, calls, count));
    }
}

static int start(struct nccl_comm *comm, struct nccl_comm **made)
{
    comm->state = NCCL_IN_PROGRESS;
    pthread_mutex_init(&comm->mutex, NULL);
    pthread_cond_init(&comm->told, NULL);
    if (pthread_create(&comm->thread, NULL, comm_main, comm)) {
        free(comm);
        return FAILED;
    }
    *made = comm;
    return NCCL_IN_PROGRESS;
}

int comm_init(struct nccl_comm **made, int size, struct nccl_id id, int rank,
              struct nccl_config *config)
{
    struct nccl_comm *comm = calloc(1, sizeof(*comm));

    if (!comm || config->blocking != 0 || size > RANKS || memchr(id.bytes, 0, ROOT_BYTES) == NULL) {
        free(comm);
        return INVALID;
    }
    memcpy(comm->folder, id.bytes, ROOT_BYTES);
    comm->size = size;
    comm->rank = rank;
    return start(comm, made);
}

int comm_split(struct nccl_comm *parent, int color, int key, struct nccl_comm **made,
               struct nccl_config *config)
{
    int said[2] = {color, key}, number = parent->splits++;
    struct nccl_comm *comm;
    char name[64];

    (void)config;
    *made = NULL;
    if (getenv("CAIRN_NCCL_NO_SPLIT"))
        return FAILED;
    snprintf(name, sizeof(name), "split.%d.%d", number, parent->rank);
    if (!put_file(parent, name, said, sizeof(said)))
        return FAILED;
    if (color == NCCL_NO_COLOR)
        return NCCL_SUCCESS;
    comm = calloc(1, sizeof(*comm));
    if (!comm)
        return FAILED;
    memcpy(comm->folder, parent->folder, sizeof(comm->folder));
    comm->parent_size = parent->size;
    comm->number = number;
    comm->color = color;
    comm->key = key;
    return start(comm, made);
}

int comm_error(struct nccl_comm *comm, int *state)
{
    pthread_mutex_lock(&comm->mutex);
    *state = comm->state;
    pthread_mutex_unlock(&comm->mutex);
    return NCCL_SUCCESS;
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about;
    (void)kind;
    (void)place;
    return remove(path);
}

static void note_end(const struct nccl_comm *comm)
{
    const char *path = getenv("CAIRN_NCCL_HOST");
    FILE *file = path ? fopen(path, "a") : NULL;

    if (!file)
        return;
    fprintf(file, "rank %d of %d: %llu wide, %llu narrow\n", comm->rank, comm->size,
            (unsigned long long)comm->wide, (unsigned long long)comm->narrow);
    fclose(file);
}

int comm_abort(struct nccl_comm *comm)
{
    atomic_store(&comm->aborted, true);
    pthread_mutex_lock(&comm->mutex);
    comm->ends = true;
    pthread_cond_signal(&comm->told);
    pthread_mutex_unlock(&comm->mutex);
    pthread_join(comm->thread, NULL);
    note_end(comm);
    if (comm->rank == 0)
        (void)nftw(comm->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    pthread_cond_destroy(&comm->told);
    pthread_mutex_destroy(&comm->mutex);
    free(comm);
    return NCCL_SUCCESS;
}

// All calls of a communicator that is finalized are done, because their results were taken.
int comm_finalize(struct nccl_comm *comm)
{
    int state;

    (void)comm_error(comm, &state);
    return state;
}

int comm_destroy(struct nccl_comm *comm)
{
    return comm_abort(comm);
}

// --- what a rank tells a communicator ---

static int begin_work(struct nccl_comm *comm)
{
    pthread_mutex_lock(&comm->mutex);
    comm->state = NCCL_IN_PROGRESS;
    pthread_cond_signal(&comm->told);
    pthread_mutex_unlock(&comm->mutex);
    return NCCL_IN_PROGRESS;
}

static int tell(struct nccl_comm *comm, struct call call)
{
    int state;

    (void)comm_error(comm, &state);
    if (state != NCCL_SUCCESS || comm->count == CALLS)
        return INVALID;
    if (call.count == 1)
        ;
    else if (cn_number_size(number_of(call.type)) > 2)
        comm->wide += call.count;
    else
        comm->narrow += call.count;
    comm->calls[comm->count++] = call;
    if (!in_group)
        return begin_work(comm);
    grouped = comm;
    return NCCL_SUCCESS;
}

int all_reduce(const void *from, void *to, size_t count, int type, int how, struct nccl_comm *comm,
               struct cuda_stream *stream)
{
    (void)stream;
    if (from != to || how != NCCL_SUM)
        return INVALID;
    return tell(comm, (struct call){.kind = ALL_REDUCE, .to = to, .count = count, .type = type});
}

int reduce(const void *from, void *to, size_t count, int type, int how, int root,
           struct nccl_comm *comm, struct cuda_stream *stream)
{
    (void)stream;
    if (from != to || how != NCCL_SUM)
        return INVALID;
    return tell(
        comm, (struct call){.kind = REDUCE, .to = to, .count = count, .type = type, .peer = root});
}

int broadcast(const void *from, void *to, size_t count, int type, int root, struct nccl_comm *comm,
              struct cuda_stream *stream)
{
    (void)stream;
    if (from != to)
        return INVALID;
    return tell(comm, (struct call){
                          .kind = BROADCAST, .to = to, .count = count, .type = type, .peer = root});
}

int send_to(const void *from, size_t count, int type, int to, struct nccl_comm *comm,
            struct cuda_stream *stream)
{
    (void)stream;
    return tell(
        comm, (struct call){.kind = SEND, .from = from, .count = count, .type = type, .peer = to});
}

int receive_from(void *to, size_t count, int type, int from, struct nccl_comm *comm,
                 struct cuda_stream *stream)
{
    (void)stream;
    return tell(
        comm, (struct call){.kind = RECEIVE, .to = to, .count = count, .type = type, .peer = from});
}

int group_start(void)
{
    in_group = true;
    grouped = NULL;
    return NCCL_SUCCESS;
}

int group_end(void)
{
    struct nccl_comm *comm = grouped;

    in_group = false;
    grouped = NULL;
    return comm ? begin_work(comm) : NCCL_SUCCESS;
}
