// security.h - key files and the keys derived from them.
//
// A key file is one line, "cairn-key-1 ID 64hex", mode 0600. The 32 bytes are never used directly:
// HKDF (runtime/port/crypto.h) derives a key for each use from them: with the label "cairn/1 dtls"
// for the session with the aggregator, "cairn/1 registration" for the owner of a stored
// registration, and "cairn/1 fingerprint" for the list of revoked boards. The aggregator derives
// the key of a pair of boards from a secret of its own. A stolen board therefore knows only the
// keys of its own pairs in one key epoch (GROUP.md, "Key epochs").
#pragma once

#include <stdbool.h>

#include "runtime/base/diag.h"
#include "runtime/base/name.h"
#include "runtime/port/crypto.h"

struct cn_board_key {
    char board[CN_NAME_SIZE];
    uint8_t secret[CN_KEY_SIZE];
};

// Reads a key file. Returns CN_ENOTFOUND when there is none, CN_EFORMAT when it is not a key file,
// CN_EAUTH when others can access it or it is no regular file, and CN_EIO otherwise. Adds a line to
// diag for each error.
cn_err cn_security_load_key(const char *path, struct cn_diag *diag, struct cn_board_key *key);

// Makes a new random key and writes it to a file, which is durable on return. Returns CN_EEXIST
// when the file exists and CN_EINVAL when board is not a valid name.
cn_err cn_security_make_key(const char *path, const char *board, struct cn_diag *diag,
                            struct cn_board_key *key);

// Derives the key of the session with the aggregator.
cn_err cn_security_dtls_key(const struct cn_board_key *key, uint8_t derived[CN_KEY_SIZE]);

// Derives the key of the pair a and b, in either order. In key epoch 0 the label is
// "cairn/1 pair GROUP A B", as in releases without key epochs. In the others it is
// "cairn/1 pair GROUP EPOCH A B". Names have no blanks.
cn_err cn_security_pair_key(const uint8_t master[CN_KEY_SIZE], const char *group,
                            uint64_t key_epoch, const char *a, const char *b,
                            uint8_t derived[CN_KEY_SIZE]);

// Returns CN_OK when a finished handshake chose a suite with forward secrecy and authenticated
// encryption, else CN_EAUTH. The mbedTLS of this build offers only such suites; a system's copy may
// offer others. tls is a mbedtls_ssl_context.
cn_err cn_security_check_suite(const void *tls);

// Returns whether the last record of a handshake was a fatal alert about the key. An aggregator
// sends one when it does not know the board or has another key for it. tls is a
// mbedtls_ssl_context.
bool cn_security_denies_key(const void *tls);
