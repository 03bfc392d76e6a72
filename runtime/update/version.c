#include "runtime/update/version.h"

#include <string.h>

#include "runtime/port/crypto.h"
#include "runtime/update/update.h"

static const uint8_t magic[16] = "cairn-version-1";

void cn_version_put_header(const struct cn_version_header *header,
                           uint8_t bytes[CN_VERSION_HEADER_SIZE])
{
    memcpy(bytes, magic, sizeof(magic));
    memcpy(bytes + 16, header->graph, CN_DIGEST_SIZE);
    memcpy(bytes + 48, header->parent, CN_DIGEST_SIZE);
    cn_put_u64(bytes + 80, header->count);
}

cn_err cn_version_get_header(const uint8_t *bytes, size_t size, struct cn_version_header *header)
{
    uint64_t count;

    if (size < CN_VERSION_HEADER_SIZE || memcmp(bytes, magic, sizeof(magic)) != 0)
        return CN_EFORMAT;
    count = cn_get_u64(bytes + 80);
    size -= CN_VERSION_HEADER_SIZE;
    if (size % 4 || count != size / 4)
        return CN_ERANGE;
    memcpy(header->graph, bytes + 16, CN_DIGEST_SIZE);
    memcpy(header->parent, bytes + 48, CN_DIGEST_SIZE);
    header->count = count;
    return CN_OK;
}

void cn_version_digest(const struct cn_version_header *header, const float *values,
                       uint8_t digest[CN_DIGEST_SIZE])
{
    uint8_t bytes[CN_VERSION_HEADER_SIZE];
    struct cn_sha256 sha;

    cn_version_put_header(header, bytes);
    cn_sha256_init(&sha);
    cn_sha256_add(&sha, bytes, sizeof(bytes));
    cn_sha256_add(&sha, values, (size_t)header->count * sizeof(*values));
    cn_sha256_finish(&sha, digest);
}

uint64_t cn_version_memory(const struct cn_layout *layout)
{
    uint64_t row = (uint64_t)layout->total * sizeof(float);
    uint64_t full = CN_VERSION_HEADER_SIZE + row, delta = cn_update_size_max(layout);

    return 2 * (full > delta ? full : delta) + row;
}
