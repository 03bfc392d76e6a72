// model_version.h - one version of the model: in memory and as files.
//
// A version has up to four files; the initial model has only the first. All floats are float32,
// little-endian.
//
//   version-N.full      the bytes of runtime/update/version.h
//   version-N.delta     the frame that makes version N from its parent; none after a rollback
//   version-N.residual  what that frame left out, to be added to the next one
//   version-N.state     the server optimizer's rows after this version, if it keeps rows
//
// Threading: none.
#pragma once

#include "aggregator/ledger/rulings.h"
#include "runtime/engine/layout.h"
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
    // The server optimizer's values, state_rows * layout->total, owned; NULL: initial values.
    float *state;
    size_t state_rows; // 0 in the initial model
    uint8_t *delta;    // owned; NULL for the initial model and after a rollback
    size_t delta_size;
    const struct cn_ruling *ruling; // borrowed for cn_model_store_add; NULL: made of updates
};

#define CN_MODEL_NAME_SIZE 48 // of a file's name, with the terminating 0

// Writes the name of a file of a version. kind: "full", "delta", "residual" or "state".
void cn_model_file_name(uint32_t number, const char *kind, char name[CN_MODEL_NAME_SIZE]);

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

// Stores the files of a sealed version, which are durable on return.
cn_err cn_model_save(struct cn_store *store, const struct cn_layout *layout,
                     const struct cn_model *model);

// Stores a sealed version as version 0 of a run whose ledger has no version. The file is durable on
// return.
cn_err cn_model_save_first(struct cn_store *store, const struct cn_model *model);

// As cn_model_load, but reads only the full version: no delta, residual or state.
cn_err cn_model_load_weights(struct cn_store *store, struct cn_ledger *ledger,
                             const struct cn_layout *layout, uint32_t number,
                             struct cn_model *model);

// Reads the delta of version model->number into model, and checks it against model->delta_digest.
cn_err cn_model_load_delta(struct cn_store *store, const struct cn_layout *layout,
                           struct cn_model *model);
