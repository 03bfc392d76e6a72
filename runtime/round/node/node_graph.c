#include "runtime/round/node/node_graph.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/onnx/export.h"
#include "runtime/port/crypto.h"

#define FILE_NAME "graph.blob"

struct blob {
    const uint8_t *bytes;
    size_t size;
};

static cn_err fill(void *context, uint8_t *zeros)
{
    const struct blob *blob = context;

    return cn_export_restore_to(blob->bytes, blob->size, NULL, zeros);
}

static cn_err restore(const uint8_t *graph, size_t size, struct cn_mapping *model)
{
    struct cn_diag *diag = malloc(sizeof(*diag)); // large for a stack
    struct blob blob = {graph, size};
    struct cn_mapping restored;
    size_t file_size = 0;
    cn_err err;

    if (!diag)
        return CN_ENOMEM;
    cn_diag_init(diag);
    err = cn_export_restored_size(graph, size, diag, &file_size);
    if (!err)
        err = cn_platform_map_filled(file_size, fill, &blob, &restored);
    if (err)
        cn_log(CN_LOG_ERROR, "node", "the graph from the aggregator is unusable: %s",
               diag->count ? cn_diag_first(diag) : cn_err_text(err));
    free(diag);
    if (err)
        return err;
    cn_platform_unmap(model);
    *model = restored;
    return CN_OK;
}

cn_err cn_node_graph_load(struct cn_store *store, const uint8_t digest[CN_DIGEST_SIZE],
                          struct cn_mapping *model)
{
    uint8_t found[CN_DIGEST_SIZE];
    uint8_t *graph = NULL;
    size_t size = 0;
    cn_err err = store->ops->load(store, FILE_NAME, CN_NODE_GRAPH_MAX, &graph, &size);

    if (err)
        return err;
    cn_crypto_digest(graph, size, found);
    err = memcmp(found, digest, CN_DIGEST_SIZE) == 0 ? restore(graph, size, model) : CN_ENOTFOUND;
    free(graph);
    return err;
}

cn_err cn_node_graph_take(struct cn_store *store, const uint8_t *graph, size_t size,
                          struct cn_mapping *model)
{
    cn_err err = restore(graph, size, model);
    cn_err kept = err ? err : cn_store_replace(store, FILE_NAME, graph, size);

    if (!err && kept)
        cn_log(CN_LOG_WARN, "node", "the graph is not kept: %s", cn_err_text(kept));
    return err;
}
