// queue.h - runs a group's collective calls in the background, in the order in which they are
// posted, on a thread of its own. So data travels while this board computes.
//
// After a call has failed, the collective is dead: the calls behind it end with the same error and
// are not tried. Threading: one thread calls these functions. Any thread may call cancel of the
// collective.
#pragma once

#include <stdbool.h>

#include "runtime/port/collective.h"

#define CN_QUEUE_SIZE 64 // calls that are posted and not waited for

struct cn_queue;

struct cn_work {
    uint64_t number; // number of the call in its queue, from 1
};

// Starts the thread. collective is borrowed until close; make no other calls on it until then.
cn_err cn_queue_open(struct cn_collective *collective, struct cn_queue **queue);

// Blocks until the running call has ended and ends the thread. Cancel the collective before to
// shorten that. Calls that have not begun are dropped. NULL is accepted.
void cn_queue_close(struct cn_queue *queue);

// Copies call and returns at once. Its set and data are borrowed until the work is done. Returns
// CN_EAGAIN when the queue is full: wait for older work first.
cn_err cn_queue_post(struct cn_queue *queue, const struct cn_collective_call *call,
                     struct cn_work *work);

// Blocks until this call and all before it are done, and returns the result of this one. Returns
// CN_ETIMEOUT after timeout_ms; the call then continues, and its data must not be touched.
cn_err cn_queue_wait(struct cn_queue *queue, struct cn_work work, uint32_t timeout_ms);

// Returns true when a wait would not block.
bool cn_queue_test(struct cn_queue *queue, struct cn_work work);

// Sets when a finished call began and ended, in microseconds of the platform's clock. The times are
// kept until CN_QUEUE_SIZE further calls are posted.
void cn_queue_times(struct cn_queue *queue, struct cn_work work, uint64_t *begin_us,
                    uint64_t *end_us);
