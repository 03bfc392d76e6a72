// update.h - the compressed weight change that travels between a group and the aggregator.
//
// A frame is a header, blocks of coordinates that decode independently, and a SHA-256 of everything
// before it. The format, with test vectors, is runtime/update/UPDATE.md. Encoding uses integers and
// exact IEEE operations only: every machine makes the same bytes from the same values. Decoding is
// total: any bytes give finite values of exactly the layout's size, or an error.
// Threading: none; no state is kept.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/base/diag.h"
#include "runtime/base/name.h"
#include "runtime/engine/layout.h"
#include "runtime/profile/job.h"

#define CN_UPDATE_WEIGHT_MAX (1u << 31) // samples
#define CN_UPDATE_VALUE_MAX 16.0f       // |value|; the fold's fixed point needs a bound

struct cn_update_header {
    uint64_t run;
    uint32_t round;
    char group[CN_NAME_SIZE];     // sender; "" in a frame from the aggregator
    uint8_t base[CN_DIGEST_SIZE]; // digest of the version the change is relative to
    uint64_t weight;              // samples; 1 to CN_UPDATE_WEIGHT_MAX
    struct cn_update_rule rule;   // mode is not CN_UPDATE_AUTO
    bool leave_statistics;        // the frame has no statistics: each board keeps its own
    bool leave_staying;           // the frame lacks the tensors that never travel
    bool small_signs;             // small trained tensors are signs, in modes top-k and sign
    bool snapshot; // the values are the weights of version .round, not a change of its parent
    bool rounded;  // the new weights are rounded to what a snapshot of them decodes to
};

// Returns the name of a mode as a profile writes it, for example "topk".
const char *cn_update_mode_name(enum cn_update_mode mode);

// Returns whether a frame can have this rule: one from another board or an old file may be
// anything.
bool cn_update_rule_is_valid(const struct cn_update_rule *rule);

// Returns the bytes of the largest frame that any rule can give for this layout.
size_t cn_update_size_max(const struct cn_layout *layout);

// Encodes values (layout->total) and appends the frame to out. decoded receives the values that a
// receiver will get: values - decoded is the error to feed back. decoded and values do not overlap.
// Returns CN_EDIVERGED when a value is not finite, CN_ERANGE when |value| is above
// CN_UPDATE_VALUE_MAX, CN_EINVAL or CN_ERANGE for a header that no frame can hold. On an error out
// keeps its size. Dense modes ignore the rule's density and value bits; they decode as zeros.
cn_err cn_update_encode(const struct cn_update_header *header, const struct cn_layout *layout,
                        const float *values, float *decoded, struct cn_buffer *out);

// Checks the whole frame: digest, length, every block. Sets header on CN_OK. Returns CN_EFORMAT,
// CN_EDIGEST, CN_ERANGE (a number out of its limits) or CN_EDIVERGED (a value is not finite), each
// with a line in diag.
cn_err cn_update_check(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                       struct cn_diag *diag, struct cn_update_header *header);

// Decodes a checked frame and calls visit for each block. values holds count coordinates, starting
// at offset in the row. An error of visit ends the decoding and is returned.
typedef cn_err cn_update_visit(void *context, size_t offset, const float *values, size_t count);
cn_err cn_update_decode(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                        cn_update_visit *visit, void *context);

// As cn_update_decode, but skips zeros. For a sparse block it calls few instead of visit, with only
// the coordinates that were sent: offset + index[i] has values[i]. Tensors without blocks cause no
// call.
typedef void cn_update_visit_few(void *context, size_t offset, const uint16_t *index,
                                 const float *values, size_t count);
struct cn_update_sink {
    cn_update_visit *visit;
    cn_update_visit_few *few;
    void *context;
};
cn_err cn_update_decode_few(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                            const struct cn_update_sink *sink);

// As cn_update_check and cn_update_decode_few in one pass. sink receives values before the whole
// frame is checked: discard them on an error.
cn_err cn_update_check_few(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                           struct cn_diag *diag, struct cn_update_header *header,
                           const struct cn_update_sink *sink);

// Rounds weights to what a snapshot of them decodes to and appends that snapshot, of version round,
// to out. Weights that are rounded already do not change. Returns CN_ERANGE or CN_EDIVERGED for
// weights that no snapshot can hold; weights and out are unchanged then.
cn_err cn_update_snapshot(uint64_t run, uint32_t round, const uint8_t parent[CN_DIGEST_SIZE],
                          const struct cn_layout *layout, float *weights, struct cn_buffer *out);

// Makes a version from its parent, in place, with a checked frame: to[i] += decoded[i]. A running
// variance that would be negative becomes 0. The result is rounded if the frame says so; rounding
// returns the errors of cn_update_snapshot, and to has changed then. A snapshot replaces to.
cn_err cn_update_apply(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                       float *to);
