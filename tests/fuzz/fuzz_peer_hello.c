// Any bytes as a call of a member: refused, or the address of one that has a key. The keys are
// known here, so that what the corpus says is heard.
#include <stdlib.h>
#include <string.h>

#include "transport/coap/address.h"
#include "transport/peer/peer_hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct cn_member members[] = {{.name = "board-0"},
                                        {.name = "board-1", .pair_key = {1}},
                                        {.name = "board-2", .pair_key = {2}}};
    const struct cn_peer_hello hello = {.members = members, .count = 3, .port = "7101"};
    char address[CN_ADDRESS_SIZE];
    struct cn_address parsed;
    uint32_t member;

    if (!cn_peer_hello_decode(&hello, (const char *)data, size, &member, address))
        return 0;
    if (member == 0 || member > 2 || cn_address_parse(address, &parsed))
        abort();
    return 0;
}
