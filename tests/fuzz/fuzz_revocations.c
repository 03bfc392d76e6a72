// Any bytes as the list of revoked keys: each line is passed over, or has a valid name and a
// fingerprint that are read again from a line written of them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/revocations.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    uint32_t count;
    struct cn_revocation last;
};

static bool keep(void *context, const struct cn_revocation *entry)
{
    struct seen *seen = context;

    seen->count++;
    seen->last = *entry;
    return true;
}

static bool read_again(void *context, const struct cn_revocation *entry)
{
    char digits[2 * CN_KEY_SIZE + 1], line[2 * CN_KEY_SIZE + CN_NAME_SIZE + 32];
    struct seen again = {0};
    int length;

    if (!cn_name_valid(entry->name))
        abort();
    cn_hex(digits, entry->fingerprint, CN_KEY_SIZE);
    length = snprintf(line, sizeof(line), "cairn-revoked-1 %s %s\n", entry->name, digits);
    if (cn_revocations_read((const uint8_t *)line, (size_t)length, keep, &again) ||
        again.count != 1 || strcmp(again.last.name, entry->name) != 0 ||
        memcmp(again.last.fingerprint, entry->fingerprint, CN_KEY_SIZE) != 0)
        abort();
    return keep(context, entry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen seen = {0};
    uint32_t lines = size && data[size - 1] != '\n', malformed;

    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n';
    malformed = cn_revocations_read(data, size, read_again, &seen);
    if (seen.count + malformed != lines)
        abort();
    return 0;
}
