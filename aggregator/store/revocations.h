// revocations.h - every key that was ever revoked, in a file beside the state directory.
//
// A copy of the state directory that is older than a revocation would bring the board back. The
// file STATE.revocations lies outside of it, so that restoring the directory leaves the file as it
// is; it holds no secret and may be kept anywhere. A line is "cairn-revoked-1 NAME FINGERPRINT":
// 64 hexadecimal digits of HKDF-SHA-256(secret of the board's key, no salt, info
// "cairn/1 fingerprint"). A name that is enrolled again has another key, to which the line says
// nothing. Lines are only added. Threading: none.
#pragma once

#include "aggregator/store/ledger.h"

// Path of the file, for a state directory. CN_EINVAL: too long.
cn_err cn_revocations_path(const char *state, char *path, size_t size);

// Adds the key of a board; durable on return. Nothing is written when it is there.
cn_err cn_revocations_add(const char *path, const struct cn_ledger_board *board);

// One line of the file.
struct cn_revocation {
    char name[CN_NAME_SIZE];
    uint8_t fingerprint[CN_KEY_SIZE];
};

// Called for each line that can be read; false ends the walk.
typedef bool cn_revocations_visit(void *context, const struct cn_revocation *entry);

// Visits the lines of a file's content, whatever it is. Returns the number of lines that were
// passed over; a last line without its end was being written when the power went, and is one of
// them.
uint32_t cn_revocations_read(const uint8_t *data, size_t size, cn_revocations_visit *visit,
                             void *context);

struct cn_revocations_report {
    uint32_t revoked;   // boards that were enrolled and are revoked now
    uint32_t added;     // lines, of boards that the ledger knows as revoked
    uint32_t malformed; // lines that were passed over; a power cut can leave one
    cn_err unwritten;   // why a line could not be added by apply; CN_OK: all were
    cn_err unread;      // why apply could not read the file; CN_OK: it did, or there is none
};

// Brings ledger and file together: revokes each board whose key is in the file, and adds each
// revoked board to it. A line in the log for each board. A file that is not there has no lines.
cn_err cn_revocations_apply(struct cn_ledger *ledger, const char *path,
                            struct cn_revocations_report *report);

// Adds the lines of one file to another. CN_ENOTFOUND: from is not there. added: how many are new.
cn_err cn_revocations_import(const char *path, const char *from,
                             struct cn_revocations_report *report);
