// Membership messages: decoding is total, and what was decoded encodes to the same bytes but the
// release.
#include <stdlib.h>
#include <string.h>

#include "runtime/group/membership_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_membership_config config = {.self = 1, .count = CN_GROUP_MAX, .form_ms = 10};
    struct cn_membership *membership = NULL;
    struct cn_state_tag tag = {0};
    struct cn_membership_message message;
    uint8_t back[CN_PEER_MESSAGE_MAX], own[CN_PEER_MESSAGE_MAX];
    uint32_t to;
    size_t back_size;

    if (cn_membership_decode(data, size, CN_GROUP_MAX, &message) == CN_OK &&
        (cn_membership_encode(&message, back) != size || memcmp(back + 4, data + 4, size - 4) != 0))
        abort();
    if (cn_membership_open(&config, 0, &tag, 0, &membership))
        return 0;
    if (size >= 4 && size <= sizeof(own)) { // else nearly all would be of another release
        memcpy(own, data, size);
        cn_put_u16(own + 2, cn_membership_release());
        cn_membership_receive(membership, 0, own, size, 4);
    }
    cn_membership_receive(membership, 0, data, size, 5);
    while (cn_membership_next(membership, 20, &to, back, &back_size))
        if (to >= CN_GROUP_MAX || back_size > sizeof(back))
            abort();
    cn_membership_close(membership);
    return 0;
}
