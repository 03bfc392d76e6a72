#include "tests/support/fake_nccl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/group/reduce.h"
#include "runtime/port/platform.h"

#define RANKS 8
#define SPLITS 8
#define QUEUE 64
#define START_POLLS 3 // number of polls of a communicator until its work is on the stream
#define INVALID_USAGE 5

enum work_kind {
    WORK_COPY_IN,
    WORK_COPY_OUT,
    WORK_ALL_REDUCE,
    WORK_REDUCE,
    WORK_BROADCAST,
    WORK_SEND,
    WORK_RECEIVE,
};

struct work {
    enum work_kind kind;
    const void *from;
    void *to;
    size_t size; // bytes of a message, or elements of a collective
    int type, how, root;
    struct nccl_comm *comm;
    bool posted;
    uint64_t number; // number of the collective in its communicator
};

struct cuda_stream {
    struct work queue[QUEUE];
    int count, at;
    int starting; // number of communicators that will put work on this stream
};

struct cuda_event {
    struct cuda_stream *stream;
};

// The state of one collective of a communicator.
struct meeting {
    uint64_t number;
    int came, left;
    void *data[RANKS];
};

// A message on its way from one rank to another.
struct message {
    struct message *next;
    int from, to;
    size_t size;
    uint8_t data[];
};

struct world {
    struct message *messages;
    bool used;
    int size;
    struct meeting meeting;
};

struct nccl_comm {
    struct world *world;
    struct nccl_comm *parent;
    bool finalized;
    int rank, children; // children: split off and not aborted
    uint64_t number, made_ms;
    struct work told[QUEUE]; // work that is not on the stream yet
    int told_count, polls;
    struct cuda_stream *stream; // the stream for that work
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t aborts_go = PTHREAD_COND_INITIALIZER;
static bool aborts_held;
static struct fake_nccl_plan plan;
static struct fake_nccl_counts counts;
static struct world worlds[1 + SPLITS];
static int world_count; // number of splits since the last communicator of all ranks
static int splits_seen[RANKS];
static uint64_t collectives[RANKS];
static _Thread_local int this_rank = -1;
static _Thread_local bool in_group;
static _Thread_local struct nccl_comm
    *grouped; // communicator of the calls between group start and end

// Forgets all messages, and all worlds.
static void forget_messages(void)
{
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++)
        while (worlds[i].messages) {
            struct message *message = worlds[i].messages;

            worlds[i].messages = message->next;
            free(message);
        }
    memset(worlds, 0, sizeof(worlds));
}

void fake_nccl_reset(const struct fake_nccl_plan *wanted)
{
    pthread_mutex_lock(&mutex);
    plan = *wanted;
    counts = (struct fake_nccl_counts){0};
    forget_messages();
    memset(splits_seen, 0, sizeof(splits_seen));
    memset(collectives, 0, sizeof(collectives));
    world_count = 0;
    pthread_mutex_unlock(&mutex);
}

void fake_nccl_be(int rank)
{
    this_rank = rank;
}

struct fake_nccl_counts fake_nccl_counts(void)
{
    struct fake_nccl_counts copy;

    pthread_mutex_lock(&mutex);
    copy = counts;
    pthread_mutex_unlock(&mutex);
    return copy;
}

static int get_version(int *version)
{
    *version = this_rank == plan.newer_version_rank ? 22900 : 22809;
    return NCCL_SUCCESS;
}

static int get_unique_id(struct nccl_id *id)
{
    pthread_mutex_lock(&mutex);
    counts.ids++;
    forget_messages();
    memset(splits_seen, 0, sizeof(splits_seen));
    world_count = 0;
    pthread_mutex_unlock(&mutex);
    memset(id, 7, sizeof(*id));
    return NCCL_SUCCESS;
}

static struct nccl_comm *make_comm(struct world *world, int size, int rank)
{
    struct nccl_comm *comm = calloc(1, sizeof(*comm));

    if (!comm)
        abort();
    world->used = true;
    world->size = size;
    comm->world = world;
    comm->rank = rank;
    comm->made_ms = cn_platform_now_ms();
    counts.comms++;
    return comm;
}

static int comm_init(nccl_comm *comm, int size, struct nccl_id id, int rank,
                     struct nccl_config *config)
{
    if (config->magic != NCCL_MAGIC || config->blocking != 0 || id.bytes[0] != 7)
        return 4; // an invalid argument
    pthread_mutex_lock(&mutex);
    *comm = make_comm(&worlds[0], size, rank);
    pthread_mutex_unlock(&mutex);
    return NCCL_IN_PROGRESS;
}

// The n-th split of each rank makes the same communicator.
static int comm_split(nccl_comm comm, int color, int key, nccl_comm *child,
                      struct nccl_config *config)
{
    struct world *world;

    (void)config;
    pthread_mutex_lock(&mutex);
    world = &worlds[1 + splits_seen[comm->rank]++];
    *child = NULL;
    if (color != NCCL_NO_COLOR) {
        int size =
            world->size > key + 1 ? world->size : key + 1; // is known when all ranks have split

        *child = make_comm(world, size, key);
        (*child)->parent = comm;
        comm->children++;
    }
    pthread_mutex_unlock(&mutex);
    return NCCL_SUCCESS;
}

// Puts the communicator's waiting work on the stream.
static void start_work(struct nccl_comm *comm)
{
    for (int i = 0; i < comm->told_count; i++) {
        if (comm->stream->count == QUEUE)
            abort();
        comm->stream->queue[comm->stream->count++] = comm->told[i];
    }
    comm->told_count = 0;
    comm->stream->starting--;
}

static int comm_error(nccl_comm comm, int *result)
{
    pthread_mutex_lock(&mutex);
    *result = plan.init_hangs || (plan.split_hangs && comm->parent) ||
                      (plan.finalize_hangs && comm->finalized) ||
                      cn_platform_now_ms() < comm->made_ms + plan.form_ms
                  ? NCCL_IN_PROGRESS
                  : NCCL_SUCCESS;
    if (comm->polls && --comm->polls == 0)
        start_work(comm);
    if (comm->polls)
        *result = NCCL_IN_PROGRESS;
    if (plan.remote_error_at && collectives[comm->rank] >= (uint64_t)plan.remote_error_at &&
        !comm->parent)
        *result = NCCL_REMOTE_ERROR;
    pthread_mutex_unlock(&mutex);
    return NCCL_SUCCESS;
}

static int comm_finalize(nccl_comm comm)
{
    pthread_mutex_lock(&mutex);
    comm->finalized = true;
    pthread_mutex_unlock(&mutex);
    return NCCL_IN_PROGRESS;
}

// The caller holds the mutex.
static void drop_comm(struct nccl_comm *comm)
{
    if (comm->children)
        counts.child_aborted_last = true;
    if (comm->parent)
        comm->parent->children--;
    free(comm);
}

static int comm_destroy(nccl_comm comm)
{
    pthread_mutex_lock(&mutex);
    counts.destroys++;
    counts.out_of_turn |= !comm->finalized;
    drop_comm(comm);
    pthread_mutex_unlock(&mutex);
    return NCCL_SUCCESS;
}

static int comm_abort(nccl_comm comm)
{
    pthread_mutex_lock(&mutex);
    while (aborts_held)
        pthread_cond_wait(&aborts_go, &mutex);
    counts.aborts++;
    drop_comm(comm);
    pthread_mutex_unlock(&mutex);
    return NCCL_SUCCESS;
}

void fake_nccl_hold_aborts(bool hold)
{
    pthread_mutex_lock(&mutex);
    aborts_held = hold;
    pthread_cond_broadcast(&aborts_go);
    pthread_mutex_unlock(&mutex);
}

static int enqueue(cuda_stream stream, struct work work)
{
    pthread_mutex_lock(&mutex);
    if (stream->count == QUEUE)
        abort();
    for (int i = stream->at; i < stream->count && work.kind == WORK_COPY_OUT; i++)
        counts.out_of_turn |= stream->queue[i].comm != NULL;
    counts.out_of_turn |= stream->starting > 0;
    stream->queue[stream->count++] = work;
    pthread_mutex_unlock(&mutex);
    return 0;
}

// The calls of a group start together.
static int start_soon(struct nccl_comm *comm)
{
    comm->polls = START_POLLS;
    comm->stream->starting++;
    return NCCL_IN_PROGRESS;
}

static int tell(cuda_stream stream, struct work work)
{
    struct nccl_comm *comm = work.comm;
    int result = NCCL_SUCCESS;

    pthread_mutex_lock(&mutex);
    if (work.size == 1)
        counts.warm_ups++;
    else if (work.type == NCCL_FLOAT32 || work.type == NCCL_INT64)
        counts.wide += work.size;
    else
        counts.narrow += work.size;
    if (comm->polls) { // earlier work is still being started
        counts.out_of_turn = true;
        result = INVALID_USAGE;
    } else {
        if (comm->told_count == QUEUE)
            abort();
        if (work.kind != WORK_SEND && work.kind != WORK_RECEIVE)
            work.number = ++comm->number;
        comm->told[comm->told_count++] = work;
        comm->stream = stream;
        if (in_group)
            grouped = comm;
        else
            result = start_soon(comm);
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

static int all_reduce(const void *from, void *to, size_t count, int type, int how, nccl_comm comm,
                      cuda_stream stream)
{
    return tell(stream, (struct work){.kind = WORK_ALL_REDUCE,
                                      .from = from,
                                      .to = to,
                                      .size = count,
                                      .type = type,
                                      .how = how,
                                      .comm = comm});
}

static int reduce(const void *from, void *to, size_t count, int type, int how, int root,
                  nccl_comm comm, cuda_stream stream)
{
    return tell(stream, (struct work){.kind = WORK_REDUCE,
                                      .from = from,
                                      .to = to,
                                      .size = count,
                                      .type = type,
                                      .how = how,
                                      .root = root,
                                      .comm = comm});
}

static int broadcast(const void *from, void *to, size_t count, int type, int root, nccl_comm comm,
                     cuda_stream stream)
{
    return tell(stream, (struct work){.kind = WORK_BROADCAST,
                                      .from = from,
                                      .to = to,
                                      .size = count,
                                      .type = type,
                                      .root = root,
                                      .comm = comm});
}

// A send and a receive outside of a group would wait for each other.
static int send(const void *from, size_t count, int type, int to, nccl_comm comm,
                cuda_stream stream)
{
    if (!in_group)
        return INVALID_USAGE;
    return tell(stream, (struct work){.kind = WORK_SEND,
                                      .from = from,
                                      .size = count,
                                      .type = type,
                                      .root = to,
                                      .comm = comm});
}

static int receive(void *to, size_t count, int type, int from, nccl_comm comm, cuda_stream stream)
{
    if (!in_group)
        return INVALID_USAGE;
    return tell(stream, (struct work){.kind = WORK_RECEIVE,
                                      .to = to,
                                      .size = count,
                                      .type = type,
                                      .root = from,
                                      .comm = comm});
}

static int group_start(void)
{
    in_group = true;
    grouped = NULL;
    return NCCL_SUCCESS;
}

static int group_end(void)
{
    int result = NCCL_SUCCESS;

    in_group = false;
    pthread_mutex_lock(&mutex);
    if (grouped)
        result = start_soon(grouped);
    pthread_mutex_unlock(&mutex);
    return result;
}

static enum cn_number number_of(int type)
{
    return type == NCCL_FLOAT32    ? CN_FLOAT32
           : type == NCCL_BFLOAT16 ? CN_BFLOAT16
           : type == NCCL_FLOAT16  ? CN_FLOAT16
                                   : CN_INT64;
}

// The last rank to arrive does the work for all.
static void meet(struct world *world, const struct work *work)
{
    enum cn_number type = number_of(work->type);
    enum cn_reduce how = work->how == NCCL_SUM ? CN_REDUCE_SUM : CN_REDUCE_AVERAGE;
    size_t bytes = work->size * cn_number_size(type);
    void **data = world->meeting.data;
    int root = work->kind == WORK_ALL_REDUCE ? 0 : work->root;

    for (int r = 0; r < world->size && work->kind != WORK_BROADCAST; r++)
        if (r != root)
            cn_reduce_into(type, how, data[root], data[r], work->size);
    if (work->kind != WORK_BROADCAST)
        cn_reduce_finish(type, how, data[root], work->size, (uint32_t)world->size);
    for (int r = 0; r < world->size && work->kind != WORK_REDUCE; r++)
        if (r != root)
            memcpy(data[r], data[root], bytes);
}

// Returns true when the collective has ended for this rank.
static bool advance_collective(struct work *work)
{
    struct world *world = work->comm->world;
    struct meeting *meeting = &world->meeting;

    if (!work->posted) {
        if (meeting->came == world->size && meeting->left < world->size)
            return false; // the collective before has not ended on all ranks
        if (meeting->came == world->size || meeting->number != work->number) {
            if (work->number != meeting->number + 1)
                return false;
            *meeting = (struct meeting){.number = work->number};
        }
        meeting->data[work->comm->rank] = work->to;
        work->posted = true;
        if (++meeting->came == world->size)
            meet(world, work);
    }
    if (meeting->number == work->number && meeting->came < world->size)
        return false;
    meeting->left++;
    return true;
}

static void post_message(struct work *work, size_t bytes)
{
    struct message **end = &work->comm->world->messages;
    struct message *message = malloc(sizeof(*message) + bytes);

    if (!message)
        abort();
    *message = (struct message){.from = work->comm->rank, .to = work->root, .size = bytes};
    memcpy(message->data, work->from, bytes);
    while (*end)
        end = &(*end)->next;
    *end = message;
}

// Returns false while the message has not arrived.
static bool take_message(struct work *work, size_t bytes)
{
    struct message **at = &work->comm->world->messages, *message;

    while (*at && ((*at)->from != work->root || (*at)->to != work->comm->rank))
        at = &(*at)->next;
    message = *at;
    if (!message)
        return false;
    if (message->size != bytes)
        abort();
    memcpy(work->to, message->data, bytes);
    *at = message->next;
    free(message);
    return true;
}

// Returns true when the call has ended for this rank.
static bool advance_message(struct work *work)
{
    size_t bytes = work->size * cn_number_size(number_of(work->type));

    if (work->kind == WORK_RECEIVE)
        return take_message(work, bytes);
    post_message(work, bytes);
    return true;
}

static bool advance(struct work *work)
{
    bool message = work->kind == WORK_SEND || work->kind == WORK_RECEIVE;
    uint64_t number;

    if (work->kind == WORK_COPY_IN || work->kind == WORK_COPY_OUT) {
        memcpy(work->to, work->from, work->size);
        return true;
    }
    if (work->size == 1)
        return message ? advance_message(work) : advance_collective(work);
    number = collectives[this_rank] + 1;
    if (plan.stands_still_at && number >= (uint64_t)plan.stands_still_at)
        return false;
    if (plan.remote_error_at && number >= (uint64_t)plan.remote_error_at) {
        collectives[this_rank] = number;
        return false;
    }
    if (!(message ? advance_message(work) : advance_collective(work)))
        return false;
    collectives[this_rank] = number;
    return true;
}

static int event_query(cuda_event event)
{
    struct cuda_stream *stream = event->stream;
    bool moved = true;

    pthread_mutex_lock(&mutex);
    while (stream->at < stream->count && moved) {
        moved = advance(&stream->queue[stream->at]);
        stream->at += moved;
    }
    pthread_mutex_unlock(&mutex);
    if (stream->at < stream->count)
        return CUDA_NOT_READY;
    stream->at = stream->count = 0;
    return CUDA_SUCCESS;
}

static int device_enter(unsigned number)
{
    pthread_mutex_lock(&mutex);
    if (this_rank >= 0) // aborts run in a thread of their own
        counts.devices[this_rank] = number + 1;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

static void *take(size_t size, int *alive)
{
    void *thing = calloc(1, size);

    if (!thing)
        abort();
    pthread_mutex_lock(&mutex);
    ++*alive;
    pthread_mutex_unlock(&mutex);
    return thing;
}

static int give(void *thing, int *alive)
{
    free(thing);
    pthread_mutex_lock(&mutex);
    --*alive;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

static int stream_create(cuda_stream *stream, unsigned flags)
{
    (void)flags;
    *stream = take(sizeof(**stream), &counts.streams);
    return CUDA_SUCCESS;
}

static int stream_destroy(cuda_stream stream)
{
    return give(stream, &counts.streams);
}

static int event_create(cuda_event *event, unsigned flags)
{
    (void)flags;
    *event = take(sizeof(**event), &counts.events);
    return CUDA_SUCCESS;
}

static int event_record(cuda_event event, cuda_stream stream)
{
    pthread_mutex_lock(&mutex);
    counts.out_of_turn |= stream->starting > 0;
    pthread_mutex_unlock(&mutex);
    event->stream = stream;
    return CUDA_SUCCESS;
}

static int event_destroy(cuda_event event)
{
    return give(event, &counts.events);
}

static int memory_take(cuda_pointer *memory, size_t size)
{
    *memory = (cuda_pointer)(uintptr_t)take(size, &counts.memories);
    return CUDA_SUCCESS;
}

static int memory_free(cuda_pointer memory)
{
    return give((void *)(uintptr_t)memory, &counts.memories);
}

static int copy_in(cuda_pointer to, const void *from, size_t size, cuda_stream stream)
{
    if (plan.copies_fail)
        return 1;
    return enqueue(
        stream, (struct work){
                    .kind = WORK_COPY_IN, .from = from, .to = (void *)(uintptr_t)to, .size = size});
}

static int copy_out(void *to, cuda_pointer from, size_t size, cuda_stream stream)
{
    return enqueue(stream, (struct work){.kind = WORK_COPY_OUT,
                                         .from = (const void *)(uintptr_t)from,
                                         .to = to,
                                         .size = size});
}

const struct nccl_library fake_nccl = {
    .abort_ms = 60000,
    .get_version = get_version,
    .get_unique_id = get_unique_id,
    .comm_init = comm_init,
    .comm_split = comm_split,
    .comm_error = comm_error,
    .comm_finalize = comm_finalize,
    .comm_destroy = comm_destroy,
    .comm_abort = comm_abort,
    .all_reduce = all_reduce,
    .reduce = reduce,
    .broadcast = broadcast,
    .send = send,
    .receive = receive,
    .group_start = group_start,
    .group_end = group_end,
    .device_enter = device_enter,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .event_create = event_create,
    .event_record = event_record,
    .event_query = event_query,
    .event_destroy = event_destroy,
    .memory_take = memory_take,
    .memory_free = memory_free,
    .copy_in = copy_in,
    .copy_out = copy_out,
};
