// update.h - the compressed weight change that travels, up from a group and down to it.
//
// A frame is a header, blocks of coordinates that decode alone, and a SHA-256 of all
// before it. The format, with test vectors, is runtime/update/UPDATE.md. Encoding uses integers and
// exact IEEE operations only: every machine makes the same bytes of the same values.
// Decoding is total: any bytes give finite values of exactly the layout's size, or an error.
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
    struct cn_update_rule rule;   // not CN_UPDATE_AUTO
    bool leave_statistics;        // they are not part of the frame: each board keeps its own
    bool snapshot; // the values are the weights of version .round, not a change of its parent
    bool rounded;  // what comes of the change is rounded to what a snapshot of it decodes to
};

// "topk"
const char *cn_update_mode_name(enum cn_update_mode mode);

// The largest frame any rule can give for this layout.
size_t cn_update_size_max(const struct cn_layout *layout);

// Encodes values (layout->total). decoded receives what a receiver will get: values - decoded is
// the error to feed back. CN_EDIVERGED when a value is not finite, CN_ERANGE when one is above
// CN_UPDATE_VALUE_MAX, CN_EINVAL or CN_ERANGE for a header that no frame can hold. out is appended
// to; on an error its size is as before. decoded is another row than values. In dense modes the
// rule's density and value bits mean nothing and come back as zeros.
cn_err cn_update_encode(const struct cn_update_header *header, const struct cn_layout *layout,
                        const float *values, float *decoded, struct cn_buffer *out);

// Checks the whole frame: digest, length, every block. header is set on CN_OK.
// CN_EFORMAT, CN_EDIGEST, CN_ERANGE (a number out of its limits), CN_EDIVERGED (not finite), each
// with a line in diag.
cn_err cn_update_check(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                       struct cn_diag *diag, struct cn_update_header *header);

// Decodes a checked frame block by block. values holds count coordinates from offset (of the row).
typedef cn_err cn_update_visit(void *context, size_t offset, const float *values, size_t count);
cn_err cn_update_decode(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                        cn_update_visit *visit, void *context);

// The same for who does nothing with zeros: of a sparse block, few is called instead, with the
// coordinates that were sent, offset + index[i]; of what is left out, nothing.
typedef void cn_update_visit_few(void *context, size_t offset, const uint16_t *index,
                                 const float *values, size_t count);
struct cn_update_sink {
    cn_update_visit *visit;
    cn_update_visit_few *few;
    void *context;
};
cn_err cn_update_decode_few(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                            const struct cn_update_sink *sink);

// cn_update_check that hands out what it decodes, before all of it was checked.
cn_err cn_update_check_few(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                           struct cn_diag *diag, struct cn_update_header *header,
                           const struct cn_update_sink *sink);

// Rounds weights to what a snapshot of them decodes to and appends that snapshot of version round
// to out. Weights that are rounded already stay as they are. CN_ERANGE, CN_EDIVERGED for weights
// that no snapshot can hold; they stay as they were and nothing is appended.
cn_err cn_update_snapshot(uint64_t run, uint32_t round, const uint8_t parent[CN_DIGEST_SIZE],
                          const struct cn_layout *layout, float *weights, struct cn_buffer *out);

// Makes a version of its parent, in place, with a checked frame: to[i] += decoded[i], a running
// variance that would be negative is 0, rounded if
// the frame says so (errors of cn_update_snapshot, to has changed then); a snapshot replaces to.
cn_err cn_update_apply(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                       float *to);
