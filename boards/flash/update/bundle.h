// bundle.h - makes a signed RAUC bundle of the root of an image: one file that updates all boards
// of a kind.
//
// The root has packages but no identity: no key, profile or state of a board, and nothing of files
// that were deleted in it. RAUC signs; the signing key is only named to it.
#pragma once

#include "boards/flash/image/image_file.h"
#include "boards/flash/tool/draft.h"
#include "boards/flash/update/rauc_conf.h"

struct cn_bundle {
    const char *out;         // path of the bundle
    const char *version;     // of the system in it
    const char *certificate; // of the signer: a file or a PKCS#11 URL
    const char *key;         // the same, of the signing key
    uint64_t slot_size;      // bytes of the smallest slot of the boards; 0: not known
    struct cn_draft draft;   // where the bundle is made
    struct cn_rauc_conf conf;
};

// Makes the draft. out must not exist. Returns an exit code after printing the fault.
int cn_bundle_open(struct cn_bundle *bundle);

// Checks that the root has no identity and can be updated again: it must have RAUC's settings, and
// the keyring that these name must trust the signature (RAUC checks that when it signs).
int cn_bundle_check_root(struct cn_bundle *bundle, const struct cn_image_file *image);

// Hashes a file.
cn_err cn_bundle_digest(const char *path, uint8_t digest[CN_DIGEST_SIZE]);

// Copies the root out of the image, signs the bundle, extracts it again and compares.
int cn_bundle_make(struct cn_bundle *bundle, const struct cn_image_file *image);
