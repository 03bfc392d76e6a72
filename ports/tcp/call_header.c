#include "ports/tcp/call_header.h"

#include <inttypes.h>
#include <stdio.h>

#include "runtime/base/bytes.h"

void cn_call_header_describe(const uint8_t header[CN_CALL_HEADER_SIZE],
                             char text[CN_CALL_DESCRIPTION_SIZE])
{
    static const char *const kinds[] = {"nothing",   "all-reduce", "reduce-scatter", "all-gather",
                                        "broadcast", "message",    "message",        "barrier"};
    static const char *const types[] = {"float32", "bfloat16", "float16", "int64"};
    const char *kind = header[0] < sizeof(kinds) / sizeof(kinds[0]) ? kinds[header[0]] : "unknown";
    uint8_t number = header[2] & 15;
    const char *type = number < sizeof(types) / sizeof(types[0]) ? types[number] : "unknown";

    snprintf(text, CN_CALL_DESCRIPTION_SIZE,
             "call %u of set %u: %s of %" PRIu64 " %s%s (reduction %u, root %u, fingerprint %x)",
             cn_get_u32(header + 4), cn_get_u32(header + 16), kind, cn_get_u64(header + 8), type,
             header[2] >> 4 ? ", narrow" : "", header[1], header[3], cn_get_u32(header + 20));
}
