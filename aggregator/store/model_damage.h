// model_damage.h - which files of a version are missing or damaged, and how they are written again.
//
// Threading: none.
#pragma once

#include "aggregator/store/model_version.h"

struct cn_model_damage {
    // A list for people, such as "version-4.full is missing, version-4.state is damaged"; "": none.
    // After an error: the file that cannot be read or written.
    char text[200];
};

// Reads all files of a version that is in the ledger, and compares them with its digests.
// state_rows is as in cn_model_load. Damage is no error: damage has it. Residual and state share
// one digest, so damage may name both; the ledger of an older program has none, and then only sizes
// are compared. Returns the errors of a store that cannot be read.
cn_err cn_model_damage_find(struct cn_store *store, const struct cn_layout *layout,
                            size_t state_rows, const struct cn_ledger_version *recorded,
                            struct cn_model_damage *damage);

// As cn_model_damage_find, but reads only the weights.
cn_err cn_model_damage_find_full(struct cn_store *store, const struct cn_layout *layout,
                                 const struct cn_ledger_version *recorded,
                                 struct cn_model_damage *damage);

// Compares the files with those of model, the same version made again, so that damage names each
// file exactly. With write, also writes these files; they are durable on return.
cn_err cn_model_damage_mend(struct cn_store *store, const struct cn_layout *layout,
                            const struct cn_model *model, bool write,
                            struct cn_model_damage *damage);
