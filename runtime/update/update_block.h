// update_block.h - the parts of a frame, private to runtime/update. The format is UPDATE.md.
//
// A block has up to 4096 coordinates of one tensor, or 16384 with a low density. Encoders write at
// most CN_UPDATE_BLOCK_SIZE bytes, return their number, and set decoded to what a receiver will
// get. Decoders are total: any bytes give finite values of |value| <= 16 and the number of bytes
// used, or CN_EFORMAT (malformed, or not in the one valid form), CN_ERANGE (a number out of its
// limits) or CN_EDIVERGED (a value is not finite).
#pragma once

#include <float.h>
#include <string.h>

#include "runtime/update/update.h"

_Static_assert(FLT_EVAL_METHOD == 0, "frames need float and double arithmetic without extra bits");

#define CN_UPDATE_BLOCK_COUNT 4096      // coordinates
#define CN_UPDATE_BLOCK_COUNT_MAX 16384 // coordinates if density < CN_UPDATE_BLOCK_DENSITY
#define CN_UPDATE_BLOCK_DENSITY 0.002
#define CN_UPDATE_BLOCK_SIZE (4 * CN_UPDATE_BLOCK_COUNT_MAX + 16)

// Tensors with fewer coordinates are sent whole, in 8 bits or more: an index would cost more than
// it saves, and biases matter.
#define CN_UPDATE_SMALL_COUNT 1024

// The code of a magnitude is bits 15 to 30 of its float32: the exponent and 8 bits of mantissa.
// Codes have the order of the magnitudes; as integers they are close to a logarithm.
#define CN_UPDATE_CODE_SHIFT 15
#define CN_UPDATE_CODE_MIN 0x0100u // 2^-126: smaller magnitudes count as zero
#define CN_UPDATE_CODE_MAX 0x8300u // 16
#define CN_UPDATE_CODE_COUNT 0x10000u
#define CN_UPDATE_CODES_OCTAVE 256 // codes of a power of two

static inline uint32_t cn_update_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float cn_update_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t cn_update_code(float value)
{
    return (cn_update_bits(value) & 0x7fffffffu) >> CN_UPDATE_CODE_SHIFT;
}

// Returns the nearest code, ties to even; 0 for a magnitude that counts as zero.
static inline uint32_t cn_update_nearest_code(float magnitude)
{
    uint32_t bits = cn_update_bits(magnitude);
    uint32_t code = (bits + 0x3fff + (bits >> CN_UPDATE_CODE_SHIFT & 1)) >> CN_UPDATE_CODE_SHIFT;

    return code < CN_UPDATE_CODE_MIN ? 0 : code;
}

// The encoding of a tensor's blocks. It follows from the header and the tensor.
enum cn_update_kind {
    CN_UPDATE_KIND_NONE, // the tensor has no blocks
    CN_UPDATE_KIND_RAW,
    CN_UPDATE_KIND_BF16,
    CN_UPDATE_KIND_Q8,
    CN_UPDATE_KIND_Q4,
    CN_UPDATE_KIND_SIGN,
    CN_UPDATE_KIND_SPARSE,
};

enum cn_update_kind cn_update_kind_of(const struct cn_update_header *header,
                                      const struct cn_tensor_info *tensor);

// The coordinates of a tensor that top-k sends: all with a code above code, and the first ties
// coordinates whose code equals it.
struct cn_update_pick {
    uint32_t code;
    size_t ties;
};

// Sets one pick for each tensor of layout; picks of dense tensors stay zero. values are finite.
// Returns CN_ENOMEM when there is no memory for the histogram (512 KiB).
cn_err cn_update_select(const struct cn_update_header *header, const struct cn_layout *layout,
                        const float *values, struct cn_update_pick *picks);

// Make the same picks for members that each have some of the tensors (update_shares.h).
// cn_update_select_count fills codes with the number of competing values of each code. The next two
// take the sum of codes over the members. cn_update_select_ties sets equal, for each tensor of the
// whole model that this member owns, to its number of values with the threshold's code; other
// entries stay. cn_update_select_own takes the sum of equal too, and sets the picks of the tensors
// that this member has.
struct cn_update_share;
cn_err cn_update_select_count(const struct cn_update_share *share, const float *values,
                              int64_t codes[CN_UPDATE_CODE_COUNT]);
cn_err cn_update_select_ties(const struct cn_update_share *share, const float *values,
                             const int64_t codes[CN_UPDATE_CODE_COUNT], int64_t *equal);
cn_err cn_update_select_own(const struct cn_update_share *share, const float *values,
                            const int64_t codes[CN_UPDATE_CODE_COUNT], const int64_t *equal,
                            struct cn_update_pick *picks);

// Returns CN_EDIVERGED when a value is not finite, CN_ERANGE when one is above CN_UPDATE_VALUE_MAX.
cn_err cn_update_check_values(const float *values, size_t count);

// Limits a value to what a frame holds. NaN and infinity pass, so that the encoder reports them.
static inline float cn_update_clip(float value)
{
    if (value > CN_UPDATE_VALUE_MAX && value <= FLT_MAX)
        return CN_UPDATE_VALUE_MAX;
    return value < -CN_UPDATE_VALUE_MAX && value >= -FLT_MAX ? -CN_UPDATE_VALUE_MAX : value;
}

// Appends the blocks of a tensor with these values. decoded: as in cn_update_encode_all.
cn_err cn_update_put_tensor(const struct cn_update_header *header,
                            const struct cn_tensor_info *tensor, struct cn_update_pick pick,
                            const float *values, bool feedback, float *decoded,
                            struct cn_buffer *out);

// Dense blocks.
size_t cn_update_raw_encode(const float *values, size_t count, float *decoded, uint8_t *block);
cn_err cn_update_raw_decode(const uint8_t *bytes, size_t size, size_t count, float *values,
                            size_t *used);
size_t cn_update_bf16_encode(const float *values, size_t count, float *decoded, uint8_t *block);
cn_err cn_update_bf16_decode(const uint8_t *bytes, size_t size, size_t count, float *values,
                             size_t *used);
size_t cn_update_q8_encode(const float *values, size_t count, float *decoded, uint8_t *block);
cn_err cn_update_q8_decode(const uint8_t *bytes, size_t size, size_t count, float *values,
                           size_t *used);
size_t cn_update_q4_encode(const float *values, size_t count, float *decoded, uint8_t *block);
cn_err cn_update_q4_decode(const uint8_t *bytes, size_t size, size_t count, float *values,
                           size_t *used);
size_t cn_update_sign_encode(const float *values, size_t count, float *decoded, uint8_t *block);
cn_err cn_update_sign_decode(const uint8_t *bytes, size_t size, size_t count, float *values,
                             size_t *used);

// Returns the number of coordinates of the block that begins at element done of a tensor.
size_t cn_update_block_count(const struct cn_update_rule *rule, const struct cn_tensor_info *tensor,
                             size_t done);

// Decodes a block of any kind except NONE, with its CRC, into count values. Errors are those of
// the decoders above, and CN_EDIGEST.
cn_err cn_update_block_decode(const struct cn_update_header *header, enum cn_update_kind kind,
                              const uint8_t *bytes, size_t size, size_t count, float *values,
                              size_t *used);

// As cn_update_encode, but with feedback decoded receives the error, values - decoded.
cn_err cn_update_encode_all(const struct cn_update_header *header, const struct cn_layout *layout,
                            const float *values, bool feedback, float *decoded,
                            struct cn_buffer *out);

// The coordinates that a sparse block sends.
struct cn_update_few {
    size_t count;
    uint16_t index[CN_UPDATE_BLOCK_COUNT_MAX]; // places in the block, ascending
    float values[CN_UPDATE_BLOCK_COUNT_MAX];
};

// Sparse blocks, for top-k. The encoder subtracts the ties that it sends from pick->ties.
size_t cn_update_sparse_encode(const float *values, size_t count, uint32_t value_bits,
                               struct cn_update_pick *pick, float *decoded, uint8_t *block);
cn_err cn_update_sparse_decode(const uint8_t *bytes, size_t size, size_t count, uint32_t value_bits,
                               struct cn_update_few *few, size_t *used);
