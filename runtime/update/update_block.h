// update_block.h - the parts of a frame, private to runtime/update. The format is UPDATE.md.
//
// A block is up to 4096 coordinates of one tensor, or 16384 where few are sent. Its encoders write
// at most CN_UPDATE_BLOCK_SIZE bytes, return how many, and set decoded to what a receiver will get.
// Its decoders are total: any bytes give finite values of |value| <= 16 and the bytes used, or
// CN_EFORMAT (malformed, or not the one way to write it), CN_ERANGE (a number out of its limits) or
// CN_EDIVERGED (not finite).
#pragma once

#include <float.h>
#include <string.h>

#include "runtime/update/update.h"

_Static_assert(FLT_EVAL_METHOD == 0, "frames need float and double arithmetic without extra bits");

#define CN_UPDATE_BLOCK_COUNT 4096      // coordinates
#define CN_UPDATE_BLOCK_COUNT_MAX 16384 // with a lower density than the one below
#define CN_UPDATE_BLOCK_DENSITY 0.002
#define CN_UPDATE_BLOCK_SIZE (4 * CN_UPDATE_BLOCK_COUNT_MAX + 16)

// Tensors with fewer coordinates are 8 bits or more: an index would cost more than it saves, and
// biases matter.
#define CN_UPDATE_SMALL_COUNT 1024

// The code of a magnitude is its bits without the sign and the 15 lowest: exponent and 8 bits of
// mantissa, in the order of the magnitudes. As integers, these bits are close to a logarithm.
#define CN_UPDATE_CODE_SHIFT 15
#define CN_UPDATE_CODE_MIN 0x0100u // 2^-126: what is smaller counts as zero
#define CN_UPDATE_CODE_MAX 0x8300u // 16
#define CN_UPDATE_CODE_COUNT 0x10000u
#define CN_UPDATE_CODES_OCTAVE 256

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

// The nearest code, ties to even; 0 for what counts as zero.
static inline uint32_t cn_update_nearest_code(float magnitude)
{
    uint32_t bits = cn_update_bits(magnitude);
    uint32_t code = (bits + 0x3fff + (bits >> CN_UPDATE_CODE_SHIFT & 1)) >> CN_UPDATE_CODE_SHIFT;

    return code < CN_UPDATE_CODE_MIN ? 0 : code;
}

// How the blocks of a tensor are written. It follows from the header and the tensor.
enum cn_update_kind {
    CN_UPDATE_KIND_NONE, // not at all
    CN_UPDATE_KIND_RAW,
    CN_UPDATE_KIND_BF16,
    CN_UPDATE_KIND_Q8,
    CN_UPDATE_KIND_Q4,
    CN_UPDATE_KIND_SIGN,
    CN_UPDATE_KIND_SPARSE,
};

enum cn_update_kind cn_update_kind_of(const struct cn_update_header *header,
                                      const struct cn_tensor_info *tensor);

// What top-k sends of a tensor: every coordinate with a larger code, and the first ties with this
// one.
struct cn_update_pick {
    uint32_t code;
    size_t ties;
};

// Sets one pick for each tensor of layout; those of dense tensors stay zero. values are finite.
cn_err cn_update_select(const struct cn_update_header *header, const struct cn_layout *layout,
                        const float *values, struct cn_update_pick *picks);

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

// Encodes like cn_update_encode. With feedback, decoded receives values - decoded instead.
cn_err cn_update_encode_all(const struct cn_update_header *header, const struct cn_layout *layout,
                            const float *values, bool feedback, float *decoded,
                            struct cn_buffer *out);

// What a sparse block sends: indices in the block, ascending.
struct cn_update_few {
    size_t count;
    uint16_t index[CN_UPDATE_BLOCK_COUNT_MAX];
    float values[CN_UPDATE_BLOCK_COUNT_MAX];
};

// Top-k blocks. Takes the block's share out of pick->ties.
size_t cn_update_sparse_encode(const float *values, size_t count, uint32_t value_bits,
                               struct cn_update_pick *pick, float *decoded, uint8_t *block);
cn_err cn_update_sparse_decode(const uint8_t *bytes, size_t size, size_t count, uint32_t value_bits,
                               struct cn_update_few *few, size_t *used);
