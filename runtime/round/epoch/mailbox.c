#include "runtime/round/epoch/mailbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/deadline.h"
#include "runtime/port/platform.h"
#include "runtime/port/scratch.h"

static cn_err open_descriptors(struct cn_mailbox *box)
{
    box->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (box->stop_fd >= 0)
        box->abort_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (box->abort_fd < 0 || pipe2(box->wake, O_NONBLOCK | O_CLOEXEC))
        return cn_err_from_errno(errno);
    return CN_OK;
}

static void close_descriptors(struct cn_mailbox *box)
{
    const int descriptors[] = {box->wake[0], box->wake[1], box->abort_fd, box->stop_fd};

    for (size_t i = 0; i < sizeof(descriptors) / sizeof(descriptors[0]); i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
}

cn_err cn_mailbox_init(struct cn_mailbox *box)
{
    cn_err err;

    *box = (struct cn_mailbox){.wake = {-1, -1}, .abort_fd = -1, .lost = UINT32_MAX};
    err = open_descriptors(box);
    if (err) {
        close_descriptors(box);
        return err;
    }
    pthread_mutex_init(&box->lock, NULL);
    cn_deadline_init_condition(&box->changed);
    return CN_OK;
}

void cn_mailbox_deinit(struct cn_mailbox *box)
{
    cn_scratch_free(box->answer.data);
    if (box->has_request)
        free((void *)box->request.upload.frame);
    pthread_cond_destroy(&box->changed);
    pthread_mutex_destroy(&box->lock);
    close_descriptors(box);
}

// Wakes the worker; the lock is held. The flag tells a worker that is just about to wait.
static void wake_worker(struct cn_mailbox *box)
{
    box->has_changed = true;
    pthread_cond_signal(&box->changed);
}

static void wake_owner(struct cn_mailbox *box)
{
    if (write(box->wake[1], "w", 1) < 0)
        return; // the pipe is full, so the owner wakes anyway
}

static void copy(struct cn_mailbox *box, void *to, const void *from, size_t size)
{
    pthread_mutex_lock(&box->lock);
    memcpy(to, from, size);
    pthread_mutex_unlock(&box->lock);
}

static bool look(struct cn_mailbox *box, const bool *flag)
{
    bool set;

    copy(box, &set, flag, sizeof(set));
    return set;
}

// Copies a value that was put. Returns whether it was put since the last take.
static bool take(struct cn_mailbox *box, bool *flag, void *to, const void *from, size_t size)
{
    bool set;

    pthread_mutex_lock(&box->lock);
    set = *flag;
    *flag = false;
    memcpy(to, from, size);
    pthread_mutex_unlock(&box->lock);
    return set;
}

int cn_mailbox_descriptor(const struct cn_mailbox *box)
{
    return box->wake[0];
}

void cn_mailbox_drain(struct cn_mailbox *box)
{
    char bytes[64];

    while (read(box->wake[0], bytes, sizeof(bytes)) > 0)
        continue;
}

static void set_deadline(struct cn_mailbox *box, uint64_t remaining_ms)
{
    uint64_t now_ms = cn_platform_now_ms();

    box->deadline_ms = remaining_ms < UINT64_MAX - now_ms ? now_ms + remaining_ms : UINT64_MAX;
}

void cn_mailbox_put_news(struct cn_mailbox *box, const struct cn_round_info *news)
{
    pthread_mutex_lock(&box->lock);
    box->news = *news;
    box->news_ms = cn_platform_now_ms();
    set_deadline(box, news->remaining_ms);
    box->has_news = true;
    wake_worker(box);
    pthread_mutex_unlock(&box->lock);
}

void cn_mailbox_put_remaining(struct cn_mailbox *box, const struct cn_round_info *news)
{
    pthread_mutex_lock(&box->lock);
    if (box->has_news && box->news.run == news->run && box->news.lineage == news->lineage &&
        box->news.round == news->round)
        set_deadline(box, news->remaining_ms);
    pthread_mutex_unlock(&box->lock);
}

bool cn_mailbox_news_age(struct cn_mailbox *box, struct cn_round_info *news, uint64_t *age_ms)
{
    uint64_t now_ms;
    bool has_news;

    pthread_mutex_lock(&box->lock);
    now_ms = cn_platform_now_ms();
    has_news = box->has_news;
    *news = box->news;
    *age_ms = now_ms - box->news_ms;
    news->remaining_ms = box->deadline_ms > now_ms ? box->deadline_ms - now_ms : 0;
    pthread_mutex_unlock(&box->lock);
    return has_news;
}

bool cn_mailbox_news(struct cn_mailbox *box, struct cn_round_info *news)
{
    uint64_t age_ms;

    return cn_mailbox_news_age(box, news, &age_ms);
}

void cn_mailbox_put_link(struct cn_mailbox *box, const struct cn_link_path_stats *link)
{
    copy(box, &box->link, link, sizeof(*link)); // the worker need not wake for this
}

void cn_mailbox_link(struct cn_mailbox *box, struct cn_link_path_stats *link)
{
    copy(box, link, &box->link, sizeof(*link));
}

void cn_mailbox_put_slow(struct cn_mailbox *box, struct cn_slow slow)
{
    copy(box, &box->slow, &slow, sizeof(slow));
}

struct cn_slow cn_mailbox_slow(struct cn_mailbox *box)
{
    struct cn_slow slow;

    copy(box, &slow, &box->slow, sizeof(slow));
    return slow;
}

void cn_mailbox_put_view(struct cn_mailbox *box, const struct cn_membership_view *view)
{
    eventfd_t count;

    pthread_mutex_lock(&box->lock);
    box->view = *view;
    box->has_view = true;
    box->lost = UINT32_MAX;
    if (!box->stop && eventfd_read(box->abort_fd, &count))
        count = 0; // the epoch before was not aborted
    wake_worker(box);
    pthread_mutex_unlock(&box->lock);
}

// Cancels the collective and wakes the worker; the lock is held. gives_up: because of a lost
// member.
static void cancel_collective(struct cn_mailbox *box, bool gives_up)
{
    if (box->collective)
        box->collective->ops->cancel(box->collective, gives_up);
    wake_worker(box);
    (void)eventfd_write(box->abort_fd, 1); // can only fail when it is readable already
}

void cn_mailbox_abort(struct cn_mailbox *box, uint32_t lost)
{
    pthread_mutex_lock(&box->lock);
    box->lost = lost;
    cancel_collective(box, true);
    pthread_mutex_unlock(&box->lock);
}

bool cn_mailbox_aborted(struct cn_mailbox *box, uint32_t *lost)
{
    copy(box, lost, &box->lost, sizeof(*lost));
    return *lost != UINT32_MAX;
}

int cn_mailbox_abort_fd(const struct cn_mailbox *box)
{
    return box->abort_fd;
}

bool cn_mailbox_take_view(struct cn_mailbox *box, struct cn_membership_view *view)
{
    return take(box, &box->has_view, view, &box->view, sizeof(*view));
}

void cn_mailbox_put_reform_request(struct cn_mailbox *box, bool reform_requested)
{
    pthread_mutex_lock(&box->lock);
    if (box->reform_requested != reform_requested)
        wake_worker(box);
    box->reform_requested = reform_requested;
    pthread_mutex_unlock(&box->lock);
}

bool cn_mailbox_has_reform_request(struct cn_mailbox *box)
{
    return look(box, &box->reform_requested);
}

// Replaces the newest errand; the lock is held. A request that the owner has not taken still owns
// its frame.
static void replace_request(struct cn_mailbox *box, const struct cn_errand_request *request)
{
    uint32_t number = box->request.number + 1;

    if (box->has_request)
        free((void *)box->request.upload.frame);
    box->request = *request;
    box->request.number = number;
    box->has_request = true;
    cn_scratch_free(box->answer.data);
    box->answer = (struct cn_errand_answer){0};
}

cn_err cn_mailbox_request(struct cn_mailbox *box, const struct cn_errand_request *request)
{
    struct cn_errand_request own = *request;

    // The owner gets a copy of the frame, as the worker may drop its own while the owner sends.
    if (request->kind == CN_ERRAND_UPLOAD) {
        uint8_t *frame = malloc(request->upload.size ? request->upload.size : 1);

        if (!frame)
            return CN_ENOMEM;
        memcpy(frame, request->upload.frame, request->upload.size);
        own.upload.frame = frame;
    }
    pthread_mutex_lock(&box->lock);
    replace_request(box, &own);
    pthread_mutex_unlock(&box->lock);
    wake_owner(box);
    return CN_OK;
}

bool cn_mailbox_take_request(struct cn_mailbox *box, struct cn_errand_request *request)
{
    bool has_request;

    pthread_mutex_lock(&box->lock);
    has_request = box->has_request;
    *request = box->request;
    box->has_request = false;
    box->request.upload.frame = NULL; // the caller owns the frame now
    pthread_mutex_unlock(&box->lock);
    return has_request;
}

bool cn_mailbox_requested(struct cn_mailbox *box, enum cn_errand kind)
{
    bool requested;

    pthread_mutex_lock(&box->lock);
    requested = box->request.kind == kind;
    pthread_mutex_unlock(&box->lock);
    return requested;
}

void cn_mailbox_put_answer(struct cn_mailbox *box, const struct cn_errand_answer *answer)
{
    pthread_mutex_lock(&box->lock);
    if (answer->number == box->request.number && answer->kind == box->request.kind) {
        cn_scratch_free(box->answer.data);
        box->answer = *answer;
        wake_worker(box);
    } else {
        cn_scratch_free(answer->data);
    }
    pthread_mutex_unlock(&box->lock);
}

bool cn_mailbox_take_answer(struct cn_mailbox *box, enum cn_errand kind,
                            struct cn_errand_answer *answer)
{
    bool taken;

    pthread_mutex_lock(&box->lock);
    taken = kind != CN_ERRAND_NONE && box->answer.kind == kind;
    if (taken) {
        *answer = box->answer;
        box->answer = (struct cn_errand_answer){0};
        box->request.kind = CN_ERRAND_NONE;
    }
    pthread_mutex_unlock(&box->lock);
    return taken;
}

// The owner takes the empty request and abandons the link's transfer.
void cn_mailbox_drop_errand(struct cn_mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    if (box->request.kind != CN_ERRAND_NONE)
        replace_request(box, &(struct cn_errand_request){.kind = CN_ERRAND_NONE});
    pthread_mutex_unlock(&box->lock);
    wake_owner(box);
}

void cn_mailbox_put_left(struct cn_mailbox *box, const struct cn_left *left)
{
    pthread_mutex_lock(&box->lock);
    box->has_left = true;
    box->left = *left;
    pthread_mutex_unlock(&box->lock);
    wake_owner(box);
}

bool cn_mailbox_take_left(struct cn_mailbox *box, struct cn_left *left)
{
    return take(box, &box->has_left, left, &box->left, sizeof(*left));
}

void cn_mailbox_put_progress(struct cn_mailbox *box, const struct cn_progress *progress)
{
    bool ended;

    pthread_mutex_lock(&box->lock);
    ended = progress->ended && !box->progress.ended;
    box->progress = *progress;
    pthread_mutex_unlock(&box->lock);
    if (ended)
        wake_owner(box);
}

struct cn_progress cn_mailbox_progress(struct cn_mailbox *box)
{
    struct cn_progress progress;

    copy(box, &progress, &box->progress, sizeof(progress));
    return progress;
}

void cn_mailbox_set_collective(struct cn_mailbox *box, struct cn_collective *collective)
{
    pthread_mutex_lock(&box->lock);
    box->collective = collective;
    if (collective && (box->stop || box->lost != UINT32_MAX))
        collective->ops->cancel(collective, !box->stop);
    pthread_mutex_unlock(&box->lock);
}

void cn_mailbox_stop(struct cn_mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    box->stop = true;
    cancel_collective(box, false);
    pthread_mutex_unlock(&box->lock);
    (void)eventfd_write(box->stop_fd, 1); // can only fail when it is readable already
}

int cn_mailbox_stop_fd(const struct cn_mailbox *box)
{
    return box->stop_fd;
}

bool cn_mailbox_stopped(struct cn_mailbox *box)
{
    return look(box, &box->stop);
}

void cn_mailbox_fail(struct cn_mailbox *box, cn_err why, const char *fault)
{
    pthread_mutex_lock(&box->lock);
    box->failed = why;
    snprintf(box->fault, sizeof(box->fault), "%s", fault);
    pthread_mutex_unlock(&box->lock);
    wake_owner(box);
}

cn_err cn_mailbox_failed(struct cn_mailbox *box, char fault[CN_FAULT_SIZE])
{
    cn_err failed;

    pthread_mutex_lock(&box->lock);
    failed = box->failed;
    memcpy(fault, box->fault, sizeof(box->fault));
    pthread_mutex_unlock(&box->lock);
    return failed;
}

void cn_mailbox_finish(struct cn_mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    box->finished = true;
    pthread_mutex_unlock(&box->lock);
    wake_owner(box);
}

bool cn_mailbox_finished(struct cn_mailbox *box)
{
    return look(box, &box->finished);
}

void cn_mailbox_wait(struct cn_mailbox *box, uint32_t timeout_ms)
{
    struct timespec until = cn_deadline_after(timeout_ms);

    pthread_mutex_lock(&box->lock);
    while (!box->stop && !box->has_changed &&
           pthread_cond_timedwait(&box->changed, &box->lock, &until) == 0)
        continue;
    box->has_changed = false;
    pthread_mutex_unlock(&box->lock);
}
