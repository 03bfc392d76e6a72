// purpose.h - what the collective calls of a group are for: all values of cn_collective_call's
// fingerprint.
//
// A call of one member never has the fingerprint of a call of another kind, so a port sees at once
// when members no longer do the same. Two purposes with the same first value do not compile, and
// tests/unit/test_purpose.c fails where two share any other. Members of a group are of one release,
// so a value may change where that is needed.
// Threading: none; pure.
#pragma once

#include <stdint.h>

// PURPOSE(name, first, count, step): its values are first + i * step for all i below count. With
// one value: count 1, step 1. The value 0 belongs to calls of the whole group without a fingerprint
// (runtime/port/collective.h).
// clang-format off
#define CN_PURPOSES(PURPOSE)                                                                       \
    /* Sums of gradients, by their bucket */                                                       \
    PURPOSE(BUCKET, 0x00000001, 0x00ffffff, 1)                                                     \
    /* A member takes over the state of others (epoch_heal.c) */                                   \
    PURPOSE(HEAL_ROWS, 0x6865616c, 1, 1)                                                           \
    PURPOSE(HEAL_SIZE, 0x6865616d, 1, 1)                                                           \
    PURPOSE(HEAL_DIGESTS, 0x6865616e, 1, 1)                                                        \
    PURPOSE(HEAL_WANTED, 0x6865616f, 1, 1)                                                         \
    PURPOSE(HEAL_PIECE, 0x68656170, 1, 1)                                                          \
    /* A member takes over stored parts (session_part_heal.c) */                                   \
    PURPOSE(PART_OFFERS, 0x70680001, 1, 1)                                                         \
    PURPOSE(PART_ROOM, 0x70680002, 1, 1)                                                           \
    PURPOSE(PART_HEADER, 0x70680003, 1, 1)                                                         \
    PURPOSE(PART_VALUES, 0x70680004, 1, 1)                                                         \
    /* What members of a chain have (session_chain.c) */                                           \
    PURPOSE(CHAIN_SAMPLES, 0x70690001, 1, 1)                                                       \
    PURPOSE(CHAIN_IN_FLIGHT, 0x70690003, 1, 1)                                                     \
    /* Rows of a chain's state (session_chain_rows.c): pieces by row, values by owner and row */   \
    PURPOSE(ROW_PIECES, 0x70690002, 256, 256)                                                      \
    PURPOSE(ROW_VALUES, 0x706a0000, 0x10000, 1)                                                    \
    /* A pipeline's passes, by micro-batch (session_pipeline.c) */                                 \
    PURPOSE(ACTIVATIONS, 0x70700001, 256, 256)                                                     \
    PURPOSE(ACTIVATION_GRADIENTS, 0x70700002, 256, 256)                                            \
    PURPOSE(CHAIN_EVALUATION, 0x70700003, 1, 1)                                                    \
    /* Sums of a chain (session_chain_sums.c) */                                                   \
    PURPOSE(CHAIN_SUM, 0x70710001, 1, 1)                                                           \
    PURPOSE(CHAIN_TIED, 0x70710002, 1, 1)                                                          \
    PURPOSE(CHAIN_SQUARES, 0x70710003, 1, 1)                                                       \
    PURPOSE(CHAIN_PIECES, 0x70710004, 1, 1)                                                        \
    PURPOSE(CHAIN_HANDED, 0x70710005, 1, 1)                                                        \
    /* Held-out samples of a chain (session_chain_samples.c) */                                    \
    PURPOSE(CHAIN_HELD_OUT, 0x70720001, 1, 1)                                                      \
    /* A part on its way to another disk (session_part_store.c) */                                 \
    PURPOSE(STORE_HEADER, 0x70730001, 1, 1)                                                        \
    PURPOSE(STORE_VALUES, 0x70730002, 1, 1)                                                        \
    PURPOSE(STORE_DONE, 0x70730003, 1, 1)                                                          \
    /* What waits to be sent, on its way to disks (session_waiting_*.c) */                         \
    PURPOSE(WAITING_ROWS, 0x70770001, 1, 1)                                                        \
    PURPOSE(WAITING_STORED, 0x70770002, 1, 1)                                                      \
    PURPOSE(WAITING_HOLDERS, 0x70770003, 1, 1)                                                     \
    PURPOSE(WAITING_DIGESTS, 0x70770004, 1, 1)                                                     \
    PURPOSE(WAITING_OFFERS, 0x70780001, 1, 1)                                                      \
    PURPOSE(WAITING_BYTES, 0x70780002, 1, 1)                                                       \
    /* The frame that a chain makes together (session_chain_frame.c): blocks by owner */           \
    PURPOSE(FRAME_BOUNDS, 0x70790001, 1, 1)                                                        \
    PURPOSE(FRAME_COUNTS, 0x70790002, 1, 1)                                                        \
    PURPOSE(FRAME_TIES, 0x70790003, 1, 1)                                                          \
    PURPOSE(FRAME_SIZES, 0x70790004, 1, 1)                                                         \
    PURPOSE(FRAME_SPECTRUM, 0x70790005, 1, 1)                                                      \
    PURPOSE(FRAME_BLOCKS, 0x70790100, 256, 1)                                                      \
    /* What members that look on are told of it (session_chain_finish.c) */                        \
    PURPOSE(FINISH_WORDS, 0x707a0001, 1, 1)                                                        \
    PURPOSE(FINISH_FRAME, 0x707a0002, 1, 1)                                                        \
    PURPOSE(FINISH_SPECTRUM, 0x707a0003, 1, 1)                                                     \
    /* What each member computes again (session_recompute.c) */                                    \
    PURPOSE(RECOMPUTE, 0x72630001, 1, 1)                                                           \
    /* Times by which a layout is chosen (session_auto.c) */                                       \
    PURPOSE(AUTO_TIMES, 0x73617501, 1, 1)                                                          \
    /* The state for members that do not train (session_catch_up.c) */                             \
    PURPOSE(CATCH_UP_COUNTERS, 0x73636101, 1, 1)                                                   \
    PURPOSE(CATCH_UP_STATE, 0x73636102, 1, 1)                                                      \
    /* Facts of boards for the rules of sets (session_sets.c, session_live.c) */                   \
    PURPOSE(SET_FACTS, 0x73657401, 1, 1)                                                           \
    PURPOSE(SET_LIVE, 0x73657403, 1, 1)                                                            \
    /* Shares of a divided state (session_shards.c); exchanges by bucket and micro-batch */        \
    PURPOSE(SHARE_CLIPPED, 0x73680001, 1, 1)                                                       \
    PURPOSE(SHARE_WEIGHTS, 0x73680002, 1, 1)                                                       \
    PURPOSE(SHARE_OPTIMIZER, 0x73680003, 1, 1)                                                     \
    PURPOSE(SHARE_SECOND, 0x73680004, 1, 1)                                                        \
    PURPOSE(SHARE_BUCKET, 0x73680005, 0xfffb, 1)                                                   \
    /* Whether the trainers could be opened (session_opened.c) */                                  \
    PURPOSE(OPENED, 0x736c0001, 1, 1)                                                              \
    /* Probes of the links (session_links.c) */                                                    \
    PURPOSE(PROBE, 0x736c6901, 1, 1)
// clang-format on

#define CN_PURPOSE_FIRST(name, first, count, step) CN_PURPOSE_##name = (first),
enum cn_purpose { CN_PURPOSES(CN_PURPOSE_FIRST) };
#undef CN_PURPOSE_FIRST

// Returns the value of a purpose for this index, such as that of a bucket or of a micro-batch.
// Indices beyond the purpose's values begin again with the first.
uint32_t cn_purpose_at(enum cn_purpose purpose, uint32_t index);
