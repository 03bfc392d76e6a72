// Any bytes as the list of a round's shards: refused, or a list that encodes to the same bytes. The
// digest is made to fit for a second try.
#include "runtime/round/session/file_list.h"
#include "tests/fuzz/sealed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_bytes(const uint8_t *bytes, size_t size)
{
    struct cn_file_list list;
    struct cn_buffer again;

    if (cn_file_list_decode(bytes, size, &list)) {
        if (list.shards.items || list.shards.count)
            abort();
        return;
    }
    for (size_t i = 0; i < list.shards.count; i++)
        if (strchr(list.shards.items[i].name, '/') || list.shards.items[i].name[0] == '.')
            abort();
    cn_buffer_init(&again, size);
    if (cn_file_list_encode(&list, &again) || again.size != size ||
        memcmp(again.data, bytes, size) != 0)
        abort();
    cn_buffer_deinit(&again);
    cn_data_files_deinit(&list.shards);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return try_sealed(data, size, try_bytes);
}
