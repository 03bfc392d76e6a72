#include "runtime/group/queue.h"

#include <pthread.h>
#include <stdlib.h>

#include "runtime/base/deadline.h"
#include "runtime/port/platform.h"

struct cn_queue {
    struct cn_collective *collective;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t posted, ended;
    bool stop;
    uint64_t last_posted, last_ended; // numbers of calls
    cn_err failure;                   // error of the first failed call; all later calls return it
    uint64_t failed_at;               // number of the first failed call
    struct cn_collective_call calls[CN_QUEUE_SIZE]; // call n is at n % CN_QUEUE_SIZE
    struct times {
        uint64_t begin_us, end_us;
    } times[CN_QUEUE_SIZE]; // times of call n are at n % CN_QUEUE_SIZE
};

// Runs one call. Releases the lock for the time of the call.
static void run_next(struct cn_queue *queue)
{
    struct cn_collective_call call = queue->calls[(queue->last_ended + 1) % CN_QUEUE_SIZE];
    struct times times;
    cn_err err;

    pthread_mutex_unlock(&queue->mutex);
    times.begin_us = cn_platform_now_us();
    err = queue->collective->ops->run(queue->collective, &call);
    times.end_us = cn_platform_now_us();
    pthread_mutex_lock(&queue->mutex);
    queue->last_ended++;
    queue->times[queue->last_ended % CN_QUEUE_SIZE] = times;
    if (err) {
        queue->failure = err;
        queue->failed_at = queue->last_ended;
    }
    pthread_cond_broadcast(&queue->ended);
}

static void *queue_main(void *context)
{
    struct cn_queue *queue = context;

    pthread_mutex_lock(&queue->mutex);
    while (!queue->stop) {
        if (queue->last_ended == queue->last_posted || queue->failure)
            pthread_cond_wait(&queue->posted, &queue->mutex);
        else
            run_next(queue);
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

static void release(struct cn_queue *queue)
{
    pthread_cond_destroy(&queue->posted);
    pthread_cond_destroy(&queue->ended);
    pthread_mutex_destroy(&queue->mutex);
    free(queue);
}

cn_err cn_queue_open(struct cn_collective *collective, struct cn_queue **opened)
{
    struct cn_queue *queue = calloc(1, sizeof(*queue));

    if (!queue)
        return CN_ENOMEM;
    queue->collective = collective;
    pthread_mutex_init(&queue->mutex, NULL);
    cn_deadline_init_condition(&queue->posted);
    cn_deadline_init_condition(&queue->ended);
    if (pthread_create(&queue->thread, NULL, queue_main, queue)) {
        release(queue);
        return CN_ENOMEM;
    }
    *opened = queue;
    return CN_OK;
}

void cn_queue_close(struct cn_queue *queue)
{
    if (!queue)
        return;
    pthread_mutex_lock(&queue->mutex);
    queue->stop = true;
    pthread_cond_broadcast(&queue->posted);
    pthread_mutex_unlock(&queue->mutex);
    pthread_join(queue->thread, NULL);
    release(queue);
}

cn_err cn_queue_post(struct cn_queue *queue, const struct cn_collective_call *call,
                     struct cn_work *work)
{
    cn_err err = CN_OK;

    pthread_mutex_lock(&queue->mutex);
    if (queue->last_posted - queue->last_ended == CN_QUEUE_SIZE && !queue->failure) {
        err = CN_EAGAIN;
    } else {
        // After a failure nothing is read any more, so nothing is overwritten that matters.
        queue->last_posted++;
        queue->calls[queue->last_posted % CN_QUEUE_SIZE] = *call;
        *work = (struct cn_work){queue->last_posted};
        pthread_cond_signal(&queue->posted);
    }
    pthread_mutex_unlock(&queue->mutex);
    return err;
}

static bool is_over(const struct cn_queue *queue, uint64_t number)
{
    return queue->last_ended >= number || queue->failure;
}

cn_err cn_queue_wait(struct cn_queue *queue, struct cn_work work, uint32_t timeout_ms)
{
    struct timespec until = cn_deadline_after(timeout_ms);
    cn_err err = CN_OK;

    pthread_mutex_lock(&queue->mutex);
    while (!is_over(queue, work.number) && !err)
        if (pthread_cond_timedwait(&queue->ended, &queue->mutex, &until))
            err = is_over(queue, work.number) ? CN_OK : CN_ETIMEOUT;
    if (!err && queue->failure && work.number >= queue->failed_at)
        err = queue->failure;
    pthread_mutex_unlock(&queue->mutex);
    return err;
}

bool cn_queue_test(struct cn_queue *queue, struct cn_work work)
{
    bool over;

    pthread_mutex_lock(&queue->mutex);
    over = is_over(queue, work.number);
    pthread_mutex_unlock(&queue->mutex);
    return over;
}

void cn_queue_times(struct cn_queue *queue, struct cn_work work, uint64_t *begin_us,
                    uint64_t *end_us)
{
    pthread_mutex_lock(&queue->mutex);
    *begin_us = queue->times[work.number % CN_QUEUE_SIZE].begin_us;
    *end_us = queue->times[work.number % CN_QUEUE_SIZE].end_us;
    pthread_mutex_unlock(&queue->mutex);
}
