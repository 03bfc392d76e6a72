#include "runtime/base/utf8.h"

#define CONTINUATION_MASK 0xc0
#define CONTINUATION 0x80

size_t cn_utf8_read(const char *text, uint32_t *point)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)text;
    size_t size = bytes[0] < 0x80           ? 1
                  : (bytes[0] >> 5) == 0x06 ? 2
                  : (bytes[0] >> 4) == 0x0e ? 3
                  : (bytes[0] >> 3) == 0x1e ? 4
                                            : 0;

    *point = size == 1 ? bytes[0] : bytes[0] & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if ((bytes[i] & CONTINUATION_MASK) != CONTINUATION) // also ends at the terminating 0
            return 0;
        *point = *point << 6 | (bytes[i] & 0x3f);
    }
    if (!size || *point < least[size] || *point > 0x10ffff || (*point >> 11) == 0x1b)
        return 0;
    return size;
}
