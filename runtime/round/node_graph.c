#include "runtime/round/node_graph.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/export.h"
#include "runtime/port/crypto.h"

#define FILE_NAME "graph.blob"

static cn_err restore(const uint8_t *graph, size_t size, uint8_t **model, size_t *model_size)
{
    static struct cn_diag diag; // large
    struct cn_buffer restored;
    cn_err err;

    cn_diag_init(&diag);
    cn_buffer_init(&restored, CN_ONNX_FILE_MAX);
    err = cn_export_restore(graph, size, &diag, &restored);
    if (err) {
        cn_log(CN_LOG_ERROR, "node", "the graph from the aggregator is unusable: %s",
               diag.count ? cn_diag_first(&diag) : cn_err_text(err));
        cn_buffer_deinit(&restored);
        return err;
    }
    free(*model);
    *model = restored.data;
    *model_size = restored.size;
    return CN_OK;
}

cn_err cn_node_graph_load(struct cn_store *store, const uint8_t digest[CN_DIGEST_SIZE],
                          uint8_t **model, size_t *model_size)
{
    uint8_t found[CN_DIGEST_SIZE];
    uint8_t *graph = NULL;
    size_t size = 0;
    cn_err err = store->ops->load(store, FILE_NAME, CN_NODE_GRAPH_MAX, &graph, &size);

    if (err)
        return err;
    cn_crypto_digest(graph, size, found);
    err = memcmp(found, digest, CN_DIGEST_SIZE) == 0 ? restore(graph, size, model, model_size)
                                                     : CN_ENOTFOUND;
    free(graph);
    return err;
}

cn_err cn_node_graph_take(struct cn_store *store, const uint8_t *graph, size_t size,
                          uint8_t **model, size_t *model_size)
{
    cn_err err = restore(graph, size, model, model_size);
    cn_err kept = err ? err : cn_store_replace(store, FILE_NAME, graph, size);

    if (!err && kept)
        cn_log(CN_LOG_WARN, "node", "the graph is not kept: %s", cn_err_text(kept));
    return err;
}
