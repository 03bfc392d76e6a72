// model_store.h - the versions of the model: their files, and the blobs that boards can fetch.
//
// A version has up to four files; the initial model has only the first. All floats are float32,
// little-endian.
//
//   version-N.full      the bytes of runtime/update/version.h
//   version-N.delta     the frame that makes version N from its parent; none after a rollback
//   version-N.residual  what that frame left out, to be added to the next one
//   version-N.state     the server optimizer's rows after this version, if it keeps rows
//
// Files are durable before the ledger names them. Files that the ledger does not name are removed
// when the store is opened. Threading: none.
#pragma once

#include "aggregator/store/rulings.h"
#include "runtime/engine/layout.h"
#include "runtime/port/link.h"
#include "runtime/port/store.h"

// One version in memory. A zeroed struct is empty, and deinit accepts it.
struct cn_model {
    uint32_t number;
    uint8_t digest[CN_DIGEST_SIZE];
    uint8_t parent[CN_DIGEST_SIZE];
    uint8_t delta_digest[CN_DIGEST_SIZE];
    uint8_t *bytes; // the full version, owned
    size_t size;
    float *residual; // layout->total values, owned; NULL: zeros
    // State_rows * layout->total values of the server's optimizer, owned; NULL: initial values.
    float *state;
    size_t state_rows; // 0 in the initial model
    uint8_t *delta;    // owned; NULL for the initial model and after a rollback
    size_t delta_size;
    const struct cn_ruling *ruling; // borrowed for cn_model_store_add; NULL: made of updates
};

// Returns the weights, which lie in bytes, in layout order.
float *cn_model_weights(const struct cn_model *model);
void cn_model_deinit(struct cn_model *model);

// Makes frame, an encoded change from model->parent, the model's delta. Takes the frame's memory.
void cn_model_take_delta(struct cn_model *model, struct cn_buffer *frame);

// Sets bytes, size and digest from model->parent, the digest of the graph, and the weights.
cn_err cn_model_seal(struct cn_model *model, const uint8_t graph[CN_DIGEST_SIZE],
                     const struct cn_layout *layout, const float *weights);

// Computes the digest of the residual's bytes followed by those of the state. With the weights and
// the updates, these are all that the next version is made from. The initial model gives zeros.
void cn_model_state_digest(const struct cn_model *model, const struct cn_layout *layout,
                           uint8_t digest[CN_DIGEST_SIZE]);

// Reads a version that is in the ledger and checks it against the digests there. state_rows is the
// number of rows that the job's server optimizer keeps. Returns CN_ENOTFOUND when the version or
// its files do not exist, CN_EDIGEST when a file is damaged.
cn_err cn_model_load(struct cn_store *store, struct cn_ledger *ledger,
                     const struct cn_layout *layout, size_t state_rows, uint32_t number,
                     struct cn_model *model);

// Stores a sealed version as version 0 of a run whose ledger has no version. The file is durable on
// return.
cn_err cn_model_save_first(struct cn_store *store, const struct cn_model *model);

// As cn_model_load, with the weights alone: what the next version would be made from is left out.
cn_err cn_model_load_weights(struct cn_store *store, struct cn_ledger *ledger,
                             const struct cn_layout *layout, uint32_t number,
                             struct cn_model *model);

struct cn_model_store_config {
    struct cn_store *store; // borrowed, as all pointers here
    struct cn_ledger *ledger;
    const struct cn_layout *layout;
    const uint8_t *graph; // the blob that boards fetch
    size_t graph_size;
    const float *initial;    // weights of version 0; used when the ledger has no version
    uint64_t keep_rounds;    // as in cn_gateway_settings; 0: all
    uint64_t keep_versions;  // as in cn_gateway_settings; 0: all
    uint32_t snapshot_every; // the job's interval in versions; 0: no snapshots
    size_t state_rows;       // rows that the server's optimizer keeps
};

struct cn_model_store;

// Removes files that a crash left, then loads the newest version or makes version 0.
cn_err cn_model_store_open(const struct cn_model_store_config *config,
                           struct cn_model_store **models);
void cn_model_store_close(struct cn_model_store *models);

// Returns the newest version, owned by the store and valid until the next add.
const struct cn_model *cn_model_store_newest(const struct cn_model_store *models);
const uint8_t *cn_model_store_graph_digest(const struct cn_model_store *models);
size_t cn_model_store_graph_size(const struct cn_model_store *models);
const struct cn_layout *cn_model_store_layout(const struct cn_model_store *models);

// Adds a version: makes its files durable, writes the ledger's entry, and then makes it the newest
// version. bytes_in and bytes_out are as in cn_ledger_version. On CN_OK takes the contents of model
// and leaves it empty. On an error nothing has changed, and the call may be repeated.
cn_err cn_model_store_add(struct cn_model_store *models, struct cn_model *model, uint64_t bytes_in,
                          uint64_t bytes_out);

// Changes the interval between snapshots, from the next version on.
void cn_model_store_adapt(struct cn_model_store *models, uint32_t snapshot_every);

// Finds a blob by its digest: the graph, the full bytes of the newest version or the one before it,
// one of the newest deltas, or the newest snapshot. Returns CN_ENOTFOUND for any other digest.
// version is the number of the blob's version, 0 for the graph. data is borrowed until the next
// add.
cn_err cn_model_store_blob(const struct cn_model_store *models,
                           const uint8_t digest[CN_DIGEST_SIZE], const uint8_t **data, size_t *size,
                           uint32_t *version);

// Lists the deltas that a board with version from needs in addition to the newest one: those of the
// versions newest - 1 down to from + 1. The list stops at the first delta that is not kept. It is
// empty when the board needs none.
void cn_model_store_chain(const struct cn_model_store *models, uint32_t from,
                          struct cn_delta_chain *chain);

// Sets snapshot to the newest one for a board with version from. Zeroes it when there is none, when
// version from is not older than it, or when the board needs only the newest delta.
void cn_model_store_snapshot(const struct cn_model_store *models, uint32_t from,
                             struct cn_snapshot *snapshot);

// Removes the files of versions and updates that are older than the settings keep, except those of
// version 0, version best and the version of a rollback that waits. After an error some files are
// left for the next call.
cn_err cn_model_store_prune(struct cn_model_store *models, uint32_t best);
