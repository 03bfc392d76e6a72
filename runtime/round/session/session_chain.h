// session_chain.h - trains a model that is cut into parts, each on a member of its own. Private to
// runtime/round/session.
//
// The members that hold the parts of one model are a chain (runtime/group/ranks.h). Chains are
// formed when an epoch begins, by the members that are there, and stay until it ends. Each member
// has the whole base version on its disk; its trainer has its part only. A whole state is stored
// once in an epoch, and then each member's part every few seconds. The steps since the whole state
// count as unsaved. After a failure all members return to it, or to a newer one that the stored
// parts make (session_store.c, session_part_store.c). At the end of a round the members make the
// update together, with the bytes of one board that trains the same micro-batches alone, and each
// keeps what waits of its part (session_chain_finish.c).
#pragma once

#include "runtime/group/layout_facts.h"
#include "runtime/round/session/session_private.h"

struct cn_metrics;

// --- session_cut.c ---

// Chooses where the model of a job with parallel.pipeline is cut, and the part that this board is
// likely to get. Sets layout_own to the layout of the whole model. Does nothing for other jobs.
// CN_EINVAL with a line in diag for a cut that is not possible.
cn_err cn_session_cut_model(struct cn_session *session, struct cn_diag *diag);

// Cuts the model where the job says, else into this many parts of equal work, before the trainer is
// opened.
cn_err cn_session_cut_into(struct cn_session *session, uint32_t parts, struct cn_diag *diag);

// Sets the part of the cut for which the trainer is opened next.
void cn_session_set_part(struct cn_session *session, uint32_t part);

// Returns the most micro-batches that a part of a cut has in flight, as far as this board's memory
// allows.
uint32_t cn_session_in_flight(const struct cn_session_cut *cut, uint32_t part);

// Imports the whole model again. The caller deinits layout and graph.
cn_err cn_session_import(const struct cn_session *session, struct cn_layout *layout,
                         struct cn_graph *graph);

// A part of the model, and the share of its state that a member holds.
struct cn_part_share {
    uint32_t part;
    uint32_t shards; // members that hold the part's state together
    uint32_t shard;  // index of the share
};

// Gives the trainer another part of the model, of another cut, or another share; without a cut the
// whole model or a share of it. Loads the held state. On an error all is as before; CN_ENOMEM: it
// does not fit; CN_EINVAL: the model cannot be cut there; CN_EWEDGED: there is no trainer that
// could go on.
cn_err cn_session_change_part(struct cn_session *session, const struct cn_cut *cut,
                              const struct cn_part_share *share);

// Sums up all values of the data set, which all members of a chain must share. CN_ENOTSUP with a
// line in diag for a set whose files may change. Does nothing if no chain is possible.
cn_err cn_session_look_at_samples(struct cn_session *session, struct cn_diag *diag);

// --- session_auto.c ---

// Returns whether "parallel: auto" may cut the model, by what the job says.
bool cn_session_may_cut(const struct cn_session *session);

// What a member knows, in numbers that travel.
enum cn_layout_word {
    CN_LAYOUT_WORD_CUTS, // 1: it can hold a part
    CN_LAYOUT_WORD_SAMPLES,
    CN_LAYOUT_WORD_LIMIT,
    CN_LAYOUT_WORD_MICRO_US,
    CN_LAYOUT_WORD_COPIES_WHOLE, // of struct cn_layout_member
    CN_LAYOUT_WORD_COPIES_DIVIDED,
    CN_LAYOUT_WORD_NEEDS,
    CN_LAYOUT_WORDS = CN_LAYOUT_WORD_NEEDS + 2 * CN_LAYOUT_STAGES
};

struct cn_layout_words {
    int64_t of[CN_GROUP_MAX][CN_LAYOUT_WORDS]; // by rank
};

// Gathers what all members know; those in train measure their speed.
cn_err cn_session_gather_words(struct cn_session *session, struct cn_collective *collective,
                               uint32_t train, struct cn_layout_words *words);

#define CN_LAYOUT_NO_CUT (~2u) // as not_parts: the model is not cut

// Chooses the layout for the members in `among`: on the leader, which tells the others. not_parts
// has a bit for each number of parts that is not to be tried; bit 1 is the model without a cut. If
// none is left, layout.parts is 0. CN_EFORMAT for a layout that does not make sense.
cn_err cn_session_search_layout(struct cn_session *session, struct cn_collective *collective,
                                const struct cn_layout_words *words, uint32_t among,
                                uint32_t not_parts);

// --- session_sets.c ---

// Removes members with another number of samples: with a shared scope all members must have the
// same.
uint32_t cn_session_without_other_samples(const struct cn_session *session, uint32_t ranks);

// --- session_opened.c ---

// Tells all members whether this board's trainer could be opened, and what it lacks memory for.
// Sets *lacking to those of the ranks whose trainer could not, and says who lacks which memory.
cn_err cn_session_agree_opened(struct cn_session *session, struct cn_collective *collective,
                               uint32_t ranks, cn_err own, uint32_t *lacking);

// --- session_layout.c ---

// With "parallel: auto", when an epoch begins: chooses the layout, with a cut or without, on all
// members alike, and opens the trainer for it. If no layout fits, the session waits.
cn_err cn_session_form_layout(struct cn_session *session, struct cn_collective *collective);

// --- session_replan.c ---

// Notes the computing times of a step. Call it after each.
void cn_session_note_speeds(struct cn_session *session);

// --- session_waits.c ---

// Returns the time of a step of parts whose passes take these times in it, if they wait for nothing
// but each other: the first micro-batch passes all parts, each later one waits for the slowest.
double cn_session_pipeline_ms(const double *part_ms, uint32_t parts, uint32_t micro);

// Notes how long the members of a chain waited for messages in a step, and tells people when it is
// long or has grown. Call it after each step.
void cn_session_note_waits(struct cn_session *session);

// Returns whether members wait clearly longer than when the chain formed.
bool cn_session_has_slow_link(const struct cn_session *session);

// --- session_chain.c ---

// Returns how many micro-batches this board has in flight, as all members agreed.
uint32_t cn_session_slots_used(const struct cn_session *session);

// Returns the chains that the job wants.
struct cn_chain_wish cn_session_chain_wish(const struct cn_session *session);

// Returns the lowest rank whose samples, by their fingerprint, the most ranks have.
uint32_t cn_session_most_frequent(const int64_t *samples, uint32_t size);

// Returns the ranks that have the most frequent samples, and tells of the others.
uint32_t cn_session_find_alike(struct cn_session *session, const int64_t *samples);

// Forms as many chains as there are members for, the same on all members, and gives this board's
// trainer its part of the held state. Members with other samples than most do not train. With too
// few members, or if one cannot hold the larger share of a part that has fewer members, it logs who
// is missing, and the session waits.
cn_err cn_session_form_chains(struct cn_session *session, struct cn_collective *collective);

// Lets the members train in the chains of a place, whose part the trainer holds.
cn_err cn_session_begin_chains(struct cn_session *session, struct cn_collective *collective,
                               const struct cn_chain_place *place);

// Forgets what this board waited for or lacked, before a layout is chosen again.
void cn_session_wait_no_more(struct cn_session *session);

// Nobody trains in this epoch, since `what` is not possible with the members of these ranks: says
// who is missing, or if nobody is, that it waits for something else.
void cn_session_wait_for_members(struct cn_session *session, uint32_t ranks, const char *what,
                                 const char *otherwise);

// --- session_chain_rows.c ---

// Sets *part to the values of a row of the whole model that this board's part has. The caller frees
// it. NULL without a cut.
cn_err cn_session_copy_part(const struct cn_session *session, const float *row, float **part);

// Passes a row to put, a function of the trainer. row is that of the whole model, or NULL; the
// trainer gets the part that it holds.
cn_err cn_session_put_row(struct cn_session *session,
                          cn_err (*put)(struct cn_trainer *trainer, const float *row),
                          const float *row);

// Gathers one row of the state: each part from its shares, then all parts of the chain.
cn_err cn_session_gather_parts(struct cn_session *session, struct cn_collective *collective,
                               enum cn_session_row what, float *row);

// As cn_session_gather_parts, but passes the values to put, a piece at a time.
cn_err cn_session_gather_pieces(struct cn_session *session, struct cn_collective *collective,
                                enum cn_session_row what, cn_checkpoint_put *put, void *to);

// Passes one row of this board's part to put, a piece at a time, in the order of the part's layout.
// With shards the members that hold the part together call it, and each gets the whole row of the
// part.
cn_err cn_session_read_own(struct cn_session *session, struct cn_collective *collective,
                           enum cn_session_row what, cn_checkpoint_put *put, void *to);

// --- session_part_store.c ---
//
// Between two stores of the whole state the members of a chain store their parts only. A part that
// one member holds is stored by the member of the next part as well; of one that several members
// hold each stores it. So one member that is lost takes no part with it.

// Returns whether this board needs the whole state to be stored in place of its part: it does not
// follow from the version where no step of the round was stored yet, the disk was full or lacks
// room, or stored parts made no state.
bool cn_session_wants_whole_store(struct cn_session *session);

// Stores the parts of the state, on all members that train. The held state stays as it was. A disk
// that fails is no error. The parts of the store before stay until every member has stored these.
cn_err cn_session_store_parts(struct cn_session *session, struct cn_collective *collective);

// Removes the stored parts, which the round does not need any more.
void cn_session_forget_parts(struct cn_session *session);

// --- session_chain_samples.c ---

// Notes which parts read which inputs, after the graph was cut.
void cn_session_note_inputs(struct cn_session *session, const struct cn_graph *graph);

// Returns the words of a sample that travel behind the activations from this part on: labels, and
// inputs that later parts read. 0 when each member has all samples itself.
size_t cn_session_sample_words(const struct cn_session *session, uint32_t part);

// Copy the samples of a message that part `part` sends. put writes them to the message; get reads
// `count` samples into batch, in which inputs that did not travel are zeros.
void cn_session_put_samples(const struct cn_session *session, uint32_t part,
                            const struct cn_batch *batch, float *message);
void cn_session_get_samples(const struct cn_session *session, uint32_t part, const float *message,
                            uint32_t count, struct cn_batch *batch);

// Sets *count to the number of held-out samples on which the board measures: its own, or with turns
// those of the chain's first member, which tells it.
cn_err cn_session_count_held_out(const struct cn_session *session, struct cn_collective *collective,
                                 uint64_t *count);

// Returns the round that decides whose turn it is: that of the held state.
uint32_t cn_session_turn_round(const struct cn_session *session);

// Lists the members of these ranks in the order of their places, and returns their number. With
// turns the order begins with those that have a turn in this round.
uint32_t cn_session_order_members(const struct cn_session *session, uint32_t ranks,
                                  uint32_t order[CN_GROUP_MAX]);

// cn_session_first_of_turn returns the number of a step's first micro-batch among those that the
// chain's first member has had in its turns; random draws follow from it. cn_session_first_read
// returns the number by which this board's reader knows it.
uint64_t cn_session_first_of_turn(const struct cn_session *session);
uint64_t cn_session_first_read(const struct cn_session *session, uint64_t first);

// Logs whose samples the chain trains on.
void cn_session_tell_turn(const struct cn_session *session);

// --- session_pipeline.c ---

// Fills in the number of messages of each kind for which a part has buffers.
void cn_session_count_messages(const struct cn_session *session,
                               uint32_t counts[CN_BOUNDARY_COUNT]);

// Returns the bytes of the samples in the message buffers.
uint64_t cn_session_sample_bytes(const struct cn_session *session);

// Allocates the message buffers of the trainer's part and frees those of the part before. Their
// bytes are counted in the trainer's memory plan. Does nothing without a cut.
cn_err cn_session_take_lanes(struct cn_session *session);
void cn_session_free_lanes(struct cn_session *session);

// Trains the micro-batches of a step on this board's part, from number `first` on. Only the last
// part adds to metrics. CN_EDIVERGED, after all micro-batches, when a loss was not finite.
cn_err cn_session_run_chain(struct cn_session *session, uint64_t first, struct cn_metrics *metrics);

// --- session_chain_sums.c ---

// Adds up the gradients of the members with the same part, then those of a tensor that several
// parts hold. With shards a member then has the sums of its share. Sets *finite to false if a
// number of this board's sums is not finite.
cn_err cn_session_reduce_chain(struct cn_session *session, struct cn_collective *collective,
                               bool *finite);

// Clips the gradient by the norm of the whole model's. Call it after the vote.
cn_err cn_session_clip_chain(struct cn_session *session, struct cn_collective *collective,
                             double weight);

// --- session_chain_trace.c ---

#define CN_CHAIN_EVENTS 768    // most passes, messages and exchanges of a step in a timeline
#define CN_CHAIN_EXCHANGES 384 // most of these that are exchanges
#define CN_CHAIN_EVENT_WORDS 4

enum cn_chain_act {
    CN_CHAIN_FORWARD,
    CN_CHAIN_BACKWARD,
    CN_CHAIN_SEND_F, // activations
    CN_CHAIN_SEND_B, // gradients of activations
    CN_CHAIN_RECEIVE_F,
    CN_CHAIN_RECEIVE_B,
    // Exchanges within a pass, from stage 2 on, between the members that hold a part together:
    CN_CHAIN_FETCH,  // a bucket of weights
    CN_CHAIN_REDUCE, // a bucket of gradients
    CN_CHAIN_ADD,    // a share of such a bucket, with the members of other replicas
    // Acts after the last pass; these have no micro-batch:
    CN_CHAIN_SUM,    // gradients of the members with the same part, and of tied tensors
    CN_CHAIN_GATHER, // weights of all shares of the part
};

// Allocates the memory for the notes of a step, once.
cn_err cn_session_open_chain_log(struct cn_session *session);

// Drops the notes of the step before.
void cn_session_begin_chain_log(struct cn_session *session);

// Notes an act that has ended. bytes 0: nothing travelled.
void cn_session_note_act(struct cn_session *session, enum cn_chain_act act, uint32_t batch,
                         uint64_t begin_us, uint64_t end_us, size_t bytes);

// Notes a message that is posted. Its times are noted by the next cn_session_note_ended after its
// end. Call that before each post.
void cn_session_note_call(struct cn_session *session, enum cn_chain_act act, uint32_t batch,
                          struct cn_work work, size_t bytes);
void cn_session_note_ended(struct cn_session *session);

// Gathers the notes of all members, and writes them if this board has a timeline. If one member has
// a timeline, all members call this after each step.
cn_err cn_session_trace_chain(struct cn_session *session);

// --- session_pipeline.c, evaluation ---

// Evaluates a batch, part after part. Only the last part adds to metrics. With turns the members
// behind the first one give session->data.batch, with the number of samples, and get the samples.
cn_err cn_session_evaluate_chain(struct cn_session *session, struct cn_collective *collective,
                                 const struct cn_batch *batch, struct cn_metrics *metrics);
