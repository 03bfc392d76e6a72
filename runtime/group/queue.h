// queue.h - a group's calls in the background: handed over in order, run in that order by a thread
// of its own, so that data travels while this board computes.
//
// After a call has failed, the collective is dead: the calls behind it end with the same error and
// are not tried. Threading: post, wait and close by one thread; cancel by any.
#pragma once

#include <stdbool.h>

#include "runtime/port/collective.h"

#define CN_QUEUE_SIZE 64 // calls that are posted and not waited for

struct cn_queue;

struct cn_work {
    uint64_t number; // of the call in its queue, from 1
};

// collective is borrowed until close, and used by nobody else until then.
cn_err cn_queue_open(struct cn_collective *collective, struct cn_queue **queue);

// Ends the thread after the call that it is in: cancel the collective to make that soon. Calls that
// have not begun are dropped. NULL is accepted.
void cn_queue_close(struct cn_queue *queue);

// Copies call; its set and data are borrowed until the work is done. CN_EAGAIN when the queue is
// full: wait for an older one first.
cn_err cn_queue_post(struct cn_queue *queue, const struct cn_collective_call *call,
                     struct cn_work *work);

// Waits until this call and all before it are done, and returns how this one ended. CN_ETIMEOUT
// after timeout_ms: the call goes on, and its data may not be touched.
cn_err cn_queue_wait(struct cn_queue *queue, struct cn_work work, uint32_t timeout_ms);

// True when a wait would not block.
bool cn_queue_test(struct cn_queue *queue, struct cn_work work);

// When a call that is over began and ended, in microseconds of the platform's clock. Known until
// CN_QUEUE_SIZE further calls were posted.
void cn_queue_times(struct cn_queue *queue, struct cn_work work, uint64_t *begin_us,
                    uint64_t *end_us);
