#include "runtime/engine/data/reader.h"

#include <pthread.h>
#include <stdlib.h>

enum state {
    IDLE,   // no batch is wanted
    WANTED, // the thread reads batch number next, or is about to
    READY,  // batch number next has been read
};

struct cn_reader {
    const struct cn_dataset *dataset;
    uint32_t size;
    struct cn_batch batches[2]; // the caller uses [current], the thread the other one
    int current;
    pthread_t thread;
    bool running; // the thread was started
    pthread_mutex_t lock;
    pthread_cond_t changed;
    // Members below are used under the lock.
    enum state state;
    uint64_t next;
    bool closing;
};

static void *read_ahead(void *argument)
{
    struct cn_reader *reader = argument;

    pthread_mutex_lock(&reader->lock);
    for (;;) {
        while (reader->state != WANTED && !reader->closing)
            pthread_cond_wait(&reader->changed, &reader->lock);
        if (reader->closing)
            break;
        pthread_mutex_unlock(&reader->lock);
        cn_dataset_train_batch(reader->dataset, reader->next, reader->size,
                               &reader->batches[!reader->current]);
        pthread_mutex_lock(&reader->lock);
        reader->state = READY;
        pthread_cond_broadcast(&reader->changed);
    }
    pthread_mutex_unlock(&reader->lock);
    return NULL;
}

cn_err cn_reader_open(const struct cn_dataset *dataset, const struct cn_sample_shape *shape,
                      uint32_t size, struct cn_reader **reader)
{
    struct cn_reader *opened = calloc(1, sizeof(*opened));
    cn_err err;

    *reader = NULL;
    if (!opened)
        return CN_ENOMEM;
    opened->dataset = dataset;
    opened->size = size;
    pthread_mutex_init(&opened->lock, NULL);
    pthread_cond_init(&opened->changed, NULL);
    err = cn_batch_init(shape, size, &opened->batches[0]);
    if (!err)
        err = cn_batch_init(shape, size, &opened->batches[1]);
    if (err) {
        cn_reader_close(opened);
        return err;
    }
    *reader = opened;
    return CN_OK;
}

void cn_reader_close(struct cn_reader *reader)
{
    if (!reader)
        return;
    pthread_mutex_lock(&reader->lock);
    reader->closing = true;
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
    if (reader->running)
        pthread_join(reader->thread, NULL);
    pthread_cond_destroy(&reader->changed);
    pthread_mutex_destroy(&reader->lock);
    cn_batch_deinit(&reader->batches[0]);
    cn_batch_deinit(&reader->batches[1]);
    free(reader);
}

// Waits until the thread reads nothing. Returns true when it has read batch number index.
static bool wait_for(struct cn_reader *reader, uint64_t index)
{
    bool there;

    pthread_mutex_lock(&reader->lock);
    while (reader->state == WANTED)
        pthread_cond_wait(&reader->changed, &reader->lock);
    there = reader->state == READY && reader->next == index;
    reader->state = IDLE;
    pthread_mutex_unlock(&reader->lock);
    return there;
}

static void ask_for(struct cn_reader *reader, uint64_t index)
{
    if (!reader->running)
        reader->running = !pthread_create(&reader->thread, NULL, read_ahead, reader);
    if (!reader->running) // without a thread each batch is read when it is taken
        return;
    pthread_mutex_lock(&reader->lock);
    reader->state = WANTED;
    reader->next = index;
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
}

const struct cn_batch *cn_reader_take(struct cn_reader *reader, uint64_t index)
{
    if (wait_for(reader, index))
        reader->current = !reader->current;
    else
        cn_dataset_train_batch(reader->dataset, index, reader->size,
                               &reader->batches[reader->current]);
    ask_for(reader, index + 1);
    return &reader->batches[reader->current];
}

void cn_reader_stop(struct cn_reader *reader)
{
    (void)wait_for(reader, UINT64_MAX);
}
