// fuzz_message.c - decoders of transport/message/message.h: the first byte chooses one, the rest is
// the message.
//
// What decodes must encode, and the decoding of that must encode to the same bytes.
#include <stdlib.h>
#include <string.h>

#include "transport/message/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(type, what)                                                                          \
    do {                                                                                           \
        type message;                                                                              \
        uint8_t once[CN_MESSAGE_MAX], twice[CN_MESSAGE_MAX];                                       \
        size_t length, again;                                                                      \
                                                                                                   \
        if (cn_message_get_##what(data, size, &message))                                           \
            return 0;                                                                              \
        if (cn_message_put_##what(&message, once, &length) ||                                      \
            cn_message_get_##what(once, length, &message) ||                                       \
            cn_message_put_##what(&message, twice, &again) || length != again ||                   \
            memcmp(once, twice, length) != 0)                                                      \
            abort();                                                                               \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t choice;

    if (!size)
        return 0;
    choice = *data++;
    size--;
    if (choice == 0)
        CHECK(struct cn_register_request, register);
    else if (choice == 1)
        CHECK(struct cn_register_reply, manifest);
    else if (choice == 2)
        CHECK(struct cn_round_info, round);
    else if (choice == 3)
        CHECK(struct cn_declare_request, declare);
    else if (choice == 5)
        CHECK(struct cn_health, health);
    else
        CHECK(struct cn_upload_status, status);
    return 0;
}
