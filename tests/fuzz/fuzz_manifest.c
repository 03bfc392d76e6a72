// Any text as the manifest of an image: refused, or parts that follow each other to the image's end
// and have as many bytes as it says.
#include <stdlib.h>

#include "boards/flash/image/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PARTS_MAX 200000 // an image of 9 PB has more, all zeros

static void check_parts(const struct cn_manifest_file *manifest)
{
    struct cn_manifest_walk walk = {0};
    struct cn_manifest_part part;
    uint64_t at = 0, sum = 0;
    size_t parts = 0;
    bool more;

    while ((more = cn_manifest_file_next(manifest, &walk, &part)) && parts < PARTS_MAX) {
        if (part.offset < at || part.size == 0 || part.offset > manifest->size ||
            part.size > manifest->size - part.offset)
            abort();
        at = part.offset + part.size;
        sum += part.size;
        parts++;
    }
    if (!more && (sum != cn_manifest_file_total(manifest) || walk.at != manifest->size ||
                  walk.range != manifest->count))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_manifest_file manifest = {0};

    if (cn_manifest_file_parse(data, size, &manifest))
        check_parts(&manifest);
    cn_manifest_file_deinit(&manifest);
    return 0;
}
