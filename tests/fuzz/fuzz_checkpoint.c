// Any bytes as a checkpoint: refused, or a whole state that encodes to the same bytes, of an older
// version to others. The digest is made to fit for a second try.
#include "runtime/round/checkpoint/checkpoint.h"
#include "tests/fuzz/sealed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TOTAL_LIMIT 64
#define FRAME_LIMIT 256

static void try_bytes(const uint8_t *bytes, size_t size)
{
    struct cn_checkpoint checkpoint;
    struct cn_buffer again;
    struct cn_diag diag;

    cn_diag_init(&diag);
    if (cn_checkpoint_decode(bytes, size, TOTAL_LIMIT, FRAME_LIMIT, &diag, &checkpoint)) {
        if (diag.count == 0)
            abort();
        return;
    }
    cn_buffer_init(&again, size + 64);
    if (cn_checkpoint_encode(&checkpoint, &again))
        abort();
    if (bytes[7] - '0' == CN_CHECKPOINT_VERSION &&
        (again.size != size || memcmp(again.data, bytes, size)))
        abort();
    cn_buffer_deinit(&again);
    cn_checkpoint_deinit(&checkpoint);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return try_sealed(data, size, try_bytes);
}
