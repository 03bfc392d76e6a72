// Any bytes give a profile or messages. A profile prints to text that loads to the same text.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/profile/profile.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct cn_profile *print_and_load(const struct cn_profile *profile, char **text)
{
    struct cn_profile *again = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(text, &size);

    if (!stream)
        abort();
    cn_profile_print(profile, false, stream);
    fclose(stream);
    if (cn_profile_parse("/printed.yaml", *text, size, NULL, &again))
        return NULL;
    return again;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cn_diag diag;
    struct cn_profile *profile = NULL, *again, *third;
    char *first = NULL, *second = NULL;
    cn_err err;

    cn_diag_init(&diag);
    err = cn_profile_parse("/fuzz.yaml", (const char *)data, size, &diag, &profile);
    if (err) {
        if (err == CN_EINVAL && diag.count == 0)
            abort();
        return 0;
    }
    again = print_and_load(profile, &first);
    if (!again)
        abort();
    third = print_and_load(again, &second);
    if (!third || strcmp(first, second) != 0)
        abort();
    cn_profile_free(third);
    cn_profile_free(again);
    cn_profile_free(profile);
    free(first);
    free(second);
    return 0;
}
