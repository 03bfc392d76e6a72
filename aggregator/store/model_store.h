// model_store.h - the versions of the model: files on disk, and what boards can fetch of them.
//
// A version is up to four files: "version-N.full" (the bytes of runtime/update/version.h),
// "version-N.delta" (the frame that makes it from its parent), "version-N.residual" (what that
// frame left out, for the next one; float32, little-endian) and, where the server's optimizer keeps
// rows, "version-N.state" (those rows after this version; float32, little-endian). The initial
// model has the first file only. Files are durable before the ledger names them; files that the
// ledger does not name are removed at start. Threading: none.
#pragma once

#include "aggregator/store/ledger.h"
#include "runtime/engine/layout.h"
#include "runtime/port/link.h"
#include "runtime/port/store.h"

// One version in memory. Zeroed is empty; deinit accepts that.
struct cn_model {
    uint32_t number;
    uint8_t digest[CN_DIGEST_SIZE];
    uint8_t parent[CN_DIGEST_SIZE];
    uint8_t delta_digest[CN_DIGEST_SIZE];
    uint8_t *bytes; // the full version, owned
    size_t size;
    float *residual;   // layout->total, owned; NULL for zeros
    float *state;      // state_rows * layout->total of the server's optimizer, owned; NULL: initial
    size_t state_rows; // 0 in the initial model
    uint8_t *delta;    // owned; NULL for the initial model
    size_t delta_size;
};

// The weights inside of bytes, layout order.
float *cn_model_weights(const struct cn_model *model);
void cn_model_deinit(struct cn_model *model);

// Fills bytes, size and digest from number, parent, the graph digest and the weights.
cn_err cn_model_seal(struct cn_model *model, const uint8_t graph[CN_DIGEST_SIZE],
                     const struct cn_layout *layout, const float *weights);

// Writes the digest over the bytes of the residual and then of the state to digest: over all that
// the next version is made from beside the weights and the updates. Zeros for the initial model.
void cn_model_state_digest(const struct cn_model *model, const struct cn_layout *layout,
                           uint8_t digest[CN_DIGEST_SIZE]);

// Reads a version of the ledger and checks it against the digests there. state_rows is what the
// server's optimizer of the job keeps. CN_ENOTFOUND when its files are no longer kept, CN_EDIGEST
// when they are damaged.
cn_err cn_model_load(struct cn_store *store, struct cn_ledger *ledger,
                     const struct cn_layout *layout, size_t state_rows, uint32_t number,
                     struct cn_model *model);

// Stores a sealed version as version 0 of a run whose ledger has none; durable on return.
cn_err cn_model_save_first(struct cn_store *store, const struct cn_model *model);

// As cn_model_load, with the weights alone: what the next version would be made from is left out.
cn_err cn_model_load_weights(struct cn_store *store, struct cn_ledger *ledger,
                             const struct cn_layout *layout, uint32_t number,
                             struct cn_model *model);

struct cn_model_store_config {
    struct cn_store *store; // all borrowed
    struct cn_ledger *ledger;
    const struct cn_layout *layout;
    const uint8_t *graph; // blob
    size_t graph_size;
    const float *initial; // weights of version 0; used when the ledger has none yet
    uint64_t keep_rounds; // as cn_gateway_settings
    uint64_t keep_versions;
    uint32_t snapshot_every; // of the job; 0 for none
    size_t state_rows;       // that the server's optimizer keeps
};

struct cn_model_store;

// Removes what a crash left, loads the newest version or makes version 0.
cn_err cn_model_store_open(const struct cn_model_store_config *config,
                           struct cn_model_store **models);
void cn_model_store_close(struct cn_model_store *models);

const struct cn_model *cn_model_store_newest(const struct cn_model_store *models);
const uint8_t *cn_model_store_graph_digest(const struct cn_model_store *models);
size_t cn_model_store_graph_size(const struct cn_model_store *models);
const struct cn_layout *cn_model_store_layout(const struct cn_model_store *models);

// Makes the files durable, then the ledger's entry, then model the newest version. Takes the
// contents of model on CN_OK and leaves it empty; on an error nothing has changed and it may be
// tried again.
cn_err cn_model_store_add(struct cn_model_store *models, struct cn_model *model, uint64_t bytes_in,
                          uint64_t bytes_out);

// The graph, the full bytes of the newest version and the one before it, the newest deltas and
// the newest snapshot.
// CN_ENOTFOUND for any other. version is that of the blob, 0 for the graph. Borrowed until the next
// add.
cn_err cn_model_store_blob(const struct cn_model_store *models,
                           const uint8_t digest[CN_DIGEST_SIZE], const uint8_t **data, size_t *size,
                           uint32_t *version);

// The deltas that a board which holds version from needs before the newest one. Empty when it needs
// none or not all are kept.
void cn_model_store_chain(const struct cn_model_store *models, uint32_t from,
                          struct cn_delta_chain *chain);

// The newest snapshot, for a board that holds version from; none when that is newer.
void cn_model_store_snapshot(const struct cn_model_store *models, uint32_t from,
                             struct cn_snapshot *snapshot);

// Removes files that are older than what is kept; never those of version 0 and best. An error
// leaves some for the next time.
cn_err cn_model_store_prune(struct cn_model_store *models, uint32_t best);
