// mailbox.h - what the two threads of a node tell each other.
//
// The owner thread polls link and peers; the worker thread trains. Neither waits for the other:
// each puts its news here and looks for the other's when it comes by. The worker may sleep on the
// box, the owner is woken through a pipe. Threading: all functions from both threads; fields only
// through them.
//
// Errands are numbered: an answer counts only while the errand that it answers is the newest, so
// a receipt that comes late is never taken for that of another update.
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "runtime/base/bytes.h"
#include "runtime/group/membership.h"
#include "runtime/port/link.h"
#include "runtime/round/upkeep/progress.h"
#include "runtime/round/upkeep/slow_reason.h"

// What the worker wants from the link. The owner does it and puts the answer.
enum cn_errand {
    CN_ERRAND_NONE,
    CN_ERRAND_FETCH,  // .digest, .size
    CN_ERRAND_UPLOAD, // .upload
};

struct cn_errand_request {
    enum cn_errand kind;
    uint32_t number; // set by the mailbox
    uint8_t digest[CN_DIGEST_SIZE];
    uint64_t size;
    struct cn_link_upload
        upload; // its frame is borrowed by request, owned by who takes the request
};

struct cn_errand_answer {
    enum cn_errand kind; // NONE: there is no answer yet
    uint32_t number;     // of the request
    bool gone;           // FETCH: the blob is not there
    uint8_t *data;       // FETCH: owned by whoever took the answer
    size_t size;
    enum cn_verdict verdict; // UPLOAD
    uint8_t accepted[CN_DIGEST_SIZE];
    char reason[CN_VERDICT_REASON]; // UPLOAD: of a verdict other than accepted
};

// How an epoch ended.
struct cn_left {
    uint32_t lost;           // member that failed, or UINT32_MAX
    bool unopened;           // its collective did not even open
    struct cn_state_tag tag; // what is held now
};

struct cn_mailbox {
    pthread_mutex_t lock;
    pthread_cond_t changed; // for the worker
    bool has_changed;       // since the worker last waited
    int wake[2];            // pipe for the owner: read end, write end
    int stop_fd;            // readable once stopped
    int abort_fd;           // readable once the epoch is aborted, or stopped

    // From the owner.
    bool stop;
    uint32_t lost; // member for whose loss the epoch was aborted, or UINT32_MAX
    bool knocked;
    bool has_news;
    struct cn_round_info news;
    uint64_t news_ms; // when it came
    struct cn_link_path_stats link;
    struct cn_slow slow;
    bool has_view;
    struct cn_membership_view view;
    struct cn_errand_answer answer;

    // From the worker.
    struct cn_errand_request request;
    bool has_request;
    bool has_left;
    struct cn_left left;
    struct cn_progress progress;
    struct cn_collective *collective; // to cancel; NULL between epochs
    cn_err failed;                    // why the worker cannot go on; CN_OK while it can
    char fault[CN_FAULT_SIZE];        // the same for people
    bool finished;                    // the worker ended by itself: another run is wanted
};

cn_err cn_mailbox_init(struct cn_mailbox *box);
void cn_mailbox_deinit(struct cn_mailbox *box);

// For the owner.
void cn_mailbox_put_news(struct cn_mailbox *box, const struct cn_round_info *news);
void cn_mailbox_put_link(struct cn_mailbox *box, const struct cn_link_path_stats *link);
// Why this board may be slow now.
void cn_mailbox_put_slow(struct cn_mailbox *box, struct cn_slow slow);
void cn_mailbox_put_view(struct cn_mailbox *box, const struct cn_membership_view *view);
// The epoch of the view that was put last cannot go on: a collective call that runs or follows
// ends, and so does opening one.
void cn_mailbox_abort(struct cn_mailbox *box, uint32_t lost);
void cn_mailbox_put_knock(struct cn_mailbox *box, bool knocked);
void cn_mailbox_put_answer(struct cn_mailbox *box,
                           const struct cn_errand_answer *answer); // takes data
bool cn_mailbox_take_request(struct cn_mailbox *box, struct cn_errand_request *request);
bool cn_mailbox_take_left(struct cn_mailbox *box, struct cn_left *left);
struct cn_progress cn_mailbox_progress(struct cn_mailbox *box);
// Why the worker cannot go on, or CN_OK. fault: the same for people.
cn_err cn_mailbox_failed(struct cn_mailbox *box, char fault[CN_FAULT_SIZE]);
bool cn_mailbox_finished(struct cn_mailbox *box);
void cn_mailbox_stop(struct cn_mailbox *box);  // also cancels a running collective
void cn_mailbox_drain(struct cn_mailbox *box); // empties the wake pipe

// For the worker.
bool cn_mailbox_stopped(struct cn_mailbox *box);
bool cn_mailbox_knocked(struct cn_mailbox *box);
// False: none yet. Its remaining time is that of now.
bool cn_mailbox_news(struct cn_mailbox *box, struct cn_round_info *news);
void cn_mailbox_link(struct cn_mailbox *box, struct cn_link_path_stats *link);
struct cn_slow cn_mailbox_slow(struct cn_mailbox *box);
bool cn_mailbox_take_view(struct cn_mailbox *box, struct cn_membership_view *view);
int cn_mailbox_abort_fd(const struct cn_mailbox *box); // for collectives: aborted or stopped
bool cn_mailbox_aborted(struct cn_mailbox *box, uint32_t *lost);
int cn_mailbox_stop_fd(const struct cn_mailbox *box); // readable once stopped
// Returns when the owner has put something since the last wait, or after the time-out.
void cn_mailbox_wait(struct cn_mailbox *box, uint32_t timeout_ms);
cn_err cn_mailbox_request(struct cn_mailbox *box, const struct cn_errand_request *request);
bool cn_mailbox_requested(struct cn_mailbox *box, enum cn_errand kind); // under way or answered
// True once for the newest request, if it is of this kind and answered.
bool cn_mailbox_take_answer(struct cn_mailbox *box, enum cn_errand kind,
                            struct cn_errand_answer *answer);
void cn_mailbox_drop_errand(struct cn_mailbox *box);
void cn_mailbox_put_left(struct cn_mailbox *box, const struct cn_left *left);
void cn_mailbox_put_progress(struct cn_mailbox *box, const struct cn_progress *progress);
void cn_mailbox_set_collective(struct cn_mailbox *box, struct cn_collective *collective);
void cn_mailbox_fail(struct cn_mailbox *box, cn_err why, const char *fault);
void cn_mailbox_finish(struct cn_mailbox *box);
