// model_store.h - the versions of a run, the blobs that boards can fetch, and which files are kept.
//
// Files are durable before the ledger names them. Files of versions and updates that the ledger
// does not name are removed when the store is opened. Threading: none.
#pragma once

#include "aggregator/store/model_version.h"
#include "runtime/port/link.h"

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
// one of the newest deltas, the newest snapshot, or the control variate. Returns CN_ENOTFOUND for
// any other digest. version is the number of the blob's version, 0 for the graph. data is borrowed
// until the next add or offer.
cn_err cn_model_store_blob(const struct cn_model_store *models,
                           const uint8_t digest[CN_DIGEST_SIZE], const uint8_t **data, size_t *size,
                           uint32_t *version);

// Offers the server's control variate for the newest version as a blob, in place of an earlier one,
// and sets size and digest of control. server is a row of layout->total values. NULL: there is no
// such blob, and control stays as it is. Errors are those of cn_variate_encode; there is no blob
// then.
cn_err cn_model_store_offer(struct cn_model_store *models, const float *server,
                            struct cn_round_control *control);

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
