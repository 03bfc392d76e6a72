// mailbox.h - carries messages between the two threads of a node.
//
// The owner thread polls the link and the peers; the worker thread trains. Neither waits for the
// other: each puts its news here and looks for the other's news when it has time. The worker may
// sleep on the box. A pipe wakes the owner. Threading: both threads may call all functions; they
// use the fields only through these functions.
//
// An errand is a job for the link that the worker gives to the owner. Errands are numbered, and an
// answer counts only while its errand is the newest. So a late receipt never counts for another
// update.
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "runtime/base/bytes.h"
#include "runtime/group/membership.h"
#include "runtime/port/link.h"
#include "runtime/round/upkeep/progress.h"
#include "runtime/round/upkeep/slow_reason.h"

// The kinds of errands. The owner performs them and puts the answer.
enum cn_errand {
    CN_ERRAND_NONE,
    CN_ERRAND_FETCH,  // fetches the blob of .digest and .size
    CN_ERRAND_UPLOAD, // sends .upload
};

struct cn_errand_request {
    enum cn_errand kind;
    uint32_t number; // set by the mailbox
    uint8_t digest[CN_DIGEST_SIZE];
    uint64_t size;
    // cn_mailbox_request borrows and copies the frame; the caller of cn_mailbox_take_request owns
    // the copy.
    struct cn_link_upload upload;
};

struct cn_errand_answer {
    enum cn_errand kind;     // NONE: there is no answer yet
    uint32_t number;         // of the request
    bool gone;               // FETCH: the aggregator does not have the blob
    uint8_t *data;           // FETCH: the blob, of scratch.h; freed by the caller of take_answer
    size_t size;             // FETCH: bytes of the blob
    enum cn_verdict verdict; // UPLOAD
    uint8_t accepted[CN_DIGEST_SIZE]; // UPLOAD: the update that counts now; zeros: none
    char reason[CN_VERDICT_REASON];   // UPLOAD: why the verdict is not "accepted"
};

// How the worker's epoch ended.
struct cn_left {
    uint32_t lost;           // index of the member that failed, or UINT32_MAX
    bool unopened;           // the collective of the epoch could not be opened
    uint32_t waited_ms;      // time that a call waited in vain for members that answer; 0: none did
    struct cn_state_tag tag; // the state that the worker holds now
};

struct cn_mailbox {
    pthread_mutex_t lock;
    pthread_cond_t changed; // wakes the worker
    bool has_changed;       // the owner has put something since the worker last waited
    int wake[2];            // pipe that wakes the owner: read end, write end
    int stop_fd;            // eventfd, readable once stopped
    int abort_fd;           // eventfd, readable once the epoch is aborted or the worker stopped

    // From the owner.
    bool stop;
    uint32_t lost;         // index of the member whose loss aborted the epoch, or UINT32_MAX
    bool reform_requested; // a member asks to re-form the group
    bool has_news;
    struct cn_round_info news;
    uint64_t news_ms;     // when the news came
    uint64_t deadline_ms; // of the news' round
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
    struct cn_collective *collective; // the one to cancel; borrowed; NULL between epochs
    cn_err failed;                    // why the worker cannot continue; CN_OK while it can
    char fault[CN_FAULT_SIZE];        // the reason of failed, for people
    bool finished;                    // the worker ended by itself, because another run is wanted
};

// Opens the descriptors. Returns the error of the system call that failed.
cn_err cn_mailbox_init(struct cn_mailbox *box);

// Frees everything in the box, also what was put and not taken. Call it when the worker has ended.
void cn_mailbox_deinit(struct cn_mailbox *box);

// --- for the owner ---

// Both copy the newest value into the box. Only put_news wakes the worker.
void cn_mailbox_put_news(struct cn_mailbox *box, const struct cn_round_info *news);
void cn_mailbox_put_link(struct cn_mailbox *box, const struct cn_link_path_stats *link);

// Takes only the time that is left to the deadline from news of the same round. Does not wake the
// worker.
void cn_mailbox_put_remaining(struct cn_mailbox *box, const struct cn_round_info *news);

// Puts the reason why this board may be slow now.
void cn_mailbox_put_slow(struct cn_mailbox *box, struct cn_slow slow);

// Puts the view of the next epoch, and ends the abort of the one before.
void cn_mailbox_put_view(struct cn_mailbox *box, const struct cn_membership_view *view);

// Aborts the epoch of the view that was put last, because of the member lost. Ends a collective
// call that runs or follows, and the opening of a collective.
void cn_mailbox_abort(struct cn_mailbox *box, uint32_t lost);

// Puts whether a member asks to re-form the group.
void cn_mailbox_put_reform_request(struct cn_mailbox *box, bool reform_requested);

// Takes answer->data. Drops an answer to any errand except the newest.
void cn_mailbox_put_answer(struct cn_mailbox *box, const struct cn_errand_answer *answer);

// Returns true once for each new errand; of kind CN_ERRAND_NONE if the worker dropped the one
// before.
bool cn_mailbox_take_request(struct cn_mailbox *box, struct cn_errand_request *request);

// Returns true once each time that the worker has left an epoch.
bool cn_mailbox_take_left(struct cn_mailbox *box, struct cn_left *left);

// Returns the newest progress of the worker; zeros before the first.
struct cn_progress cn_mailbox_progress(struct cn_mailbox *box);

// Returns why the worker cannot continue, or CN_OK. Copies the reason for people to fault.
cn_err cn_mailbox_failed(struct cn_mailbox *box, char fault[CN_FAULT_SIZE]);

// Returns whether the worker ended by itself, because another run is wanted.
bool cn_mailbox_finished(struct cn_mailbox *box);

// Asks the worker to stop. Cancels a running collective.
void cn_mailbox_stop(struct cn_mailbox *box);

// Returns the descriptor that is readable when the worker has put something for the owner.
int cn_mailbox_descriptor(const struct cn_mailbox *box);

// Empties the pipe that wakes the owner.
void cn_mailbox_drain(struct cn_mailbox *box);

// --- for the worker ---

bool cn_mailbox_stopped(struct cn_mailbox *box);

// Returns whether a member asks to re-form the group.
bool cn_mailbox_has_reform_request(struct cn_mailbox *box);

// Copies the newest news, with the time that remains now. Returns false when there is none yet.
bool cn_mailbox_news(struct cn_mailbox *box, struct cn_round_info *news);

// As cn_mailbox_news, and says how old the news is.
bool cn_mailbox_news_age(struct cn_mailbox *box, struct cn_round_info *news, uint64_t *age_ms);

// Both copy the newest value; zeros before the first.
void cn_mailbox_link(struct cn_mailbox *box, struct cn_link_path_stats *link);
struct cn_slow cn_mailbox_slow(struct cn_mailbox *box);

// Returns true once for each new view.
bool cn_mailbox_take_view(struct cn_mailbox *box, struct cn_membership_view *view);

// Returns the descriptor that cancels a collective: readable once aborted or stopped. The box keeps
// it.
int cn_mailbox_abort_fd(const struct cn_mailbox *box);

// Returns whether the epoch was aborted, and the index of the lost member.
bool cn_mailbox_aborted(struct cn_mailbox *box, uint32_t *lost);

// Returns the descriptor that is readable once stopped. The box keeps it.
int cn_mailbox_stop_fd(const struct cn_mailbox *box);

// Waits until the owner has put something since the last wait, at most timeout_ms. Returns at once
// when stopped.
void cn_mailbox_wait(struct cn_mailbox *box, uint32_t timeout_ms);

// Gives the owner an errand in place of the one before. Copies the frame of an upload. Returns
// CN_ENOMEM.
cn_err cn_mailbox_request(struct cn_mailbox *box, const struct cn_errand_request *request);

// Returns whether the newest errand is of this kind and its answer was not taken yet.
bool cn_mailbox_requested(struct cn_mailbox *box, enum cn_errand kind);

// Takes the answer to the newest errand. Returns true once, if the errand is of this kind and
// answered.
bool cn_mailbox_take_answer(struct cn_mailbox *box, enum cn_errand kind,
                            struct cn_errand_answer *answer);

// Drops the newest errand; the owner abandons its transfer.
void cn_mailbox_drop_errand(struct cn_mailbox *box);

// put_left wakes the owner; put_progress wakes it only when the run has ended.
void cn_mailbox_put_left(struct cn_mailbox *box, const struct cn_left *left);
void cn_mailbox_put_progress(struct cn_mailbox *box, const struct cn_progress *progress);

// Sets the collective that stop and abort cancel, NULL for none. Cancels it at once if the epoch is
// aborted or the worker stopped.
void cn_mailbox_set_collective(struct cn_mailbox *box, struct cn_collective *collective);

// Notes that the worker cannot continue, with the reason for people.
void cn_mailbox_fail(struct cn_mailbox *box, cn_err why, const char *fault);

// Notes that the worker has ended by itself.
void cn_mailbox_finish(struct cn_mailbox *box);
