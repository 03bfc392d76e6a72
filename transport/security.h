// security.h - key files and the keys derived from them.
//
// A key file is one line, "cairn-key-1 ID 64hex", mode 0600. The 32 bytes are never used directly:
// HKDF labels (runtime/port/crypto.h) give "cairn/1 dtls" for the session with the aggregator and
// "cairn/1 registration" for the owner of a stored registration. The aggregator derives a pair's
// key from a secret of its own, so a stolen board knows only its own pairs, and those of one key
// epoch (GROUP.md, "Key epochs").
#pragma once

#include <stdbool.h>

#include "runtime/base/diag.h"
#include "runtime/base/name.h"
#include "runtime/port/crypto.h"

struct cn_board_key {
    char board[CN_NAME_SIZE];
    uint8_t secret[CN_KEY_SIZE];
};

// CN_EFORMAT, CN_ENOTFOUND, CN_EAUTH for a file that others can read; a line in diag each.
cn_err cn_security_load_key(const char *path, struct cn_diag *diag, struct cn_board_key *key);

// A new random key. The file must not exist (CN_EEXIST); it is durable on return.
cn_err cn_security_make_key(const char *path, const char *board, struct cn_diag *diag,
                            struct cn_board_key *key);

cn_err cn_security_dtls_key(const struct cn_board_key *key, uint8_t derived[CN_KEY_SIZE]);

// The key of the pair a and b, in either order. The label is "cairn/1 pair GROUP A B" in key epoch
// 0, as in releases without key epochs, else "cairn/1 pair GROUP EPOCH A B"; names have no blanks.
cn_err cn_security_pair_key(const uint8_t master[CN_KEY_SIZE], const char *group,
                            uint64_t key_epoch, const char *a, const char *b,
                            uint8_t derived[CN_KEY_SIZE]);

// Whether a finished handshake chose a suite with forward secrecy and authenticated encryption:
// CN_EAUTH if not. The build's mbedTLS offers no other; a system's copy may. tls is a
// mbedtls_ssl_context.
cn_err cn_security_check_suite(const void *tls);

// Returns whether the last record of a handshake was a fatal alert about the key, as an aggregator
// sends it that does not know the board or has another key of it. tls is a mbedtls_ssl_context.
bool cn_security_denies_key(const void *tls);
