// revocations.h - a file beside the state directory with every key that was ever revoked.
//
// A copy of the state directory from before a revocation would let the board in again. The file
// STATE.revocations therefore lies outside that directory, where restoring a copy does not change
// it. It holds no secret and may be kept anywhere. Each line is "cairn-revoked-1 NAME FINGERPRINT".
// FINGERPRINT is 64 hexadecimal digits of HKDF-SHA-256(the secret of the board's key, no salt, info
// "cairn/1 fingerprint"). A name that is enrolled again has another key, so the line does not
// concern it. Lines are only added. Threading: none.
#pragma once

#include "aggregator/ledger/ledger.h"

// Makes the file's path for a state directory. Returns CN_EINVAL when it is longer than size.
cn_err cn_revocations_path(const char *state, char *path, size_t size);

// Adds the key of a board, durably on return. Writes nothing when the file already has the key.
cn_err cn_revocations_add(const char *path, const struct cn_ledger_board *board);

// One line of the file.
struct cn_revocation {
    char name[CN_NAME_SIZE];
    uint8_t fingerprint[CN_KEY_SIZE];
};

// Called for each valid line. Returning false ends the walk.
typedef bool cn_revocations_visit(void *context, const struct cn_revocation *entry);

// Visits the valid lines of a file's content; any bytes are accepted. Returns the number of lines
// that were skipped. A last line without a newline, as a power cut leaves it, is skipped too.
uint32_t cn_revocations_read(const uint8_t *data, size_t size, cn_revocations_visit *visit,
                             void *context);

struct cn_revocations_report {
    uint32_t revoked;   // boards that were enrolled and that this call revoked
    uint32_t added;     // lines added to the file
    uint32_t malformed; // lines that were skipped; a power cut can leave one
    cn_err unwritten;   // why apply could not add a line; CN_OK: no line is missing
    cn_err unread;      // why apply could not read the file; CN_OK: it was read or does not exist
};

// Brings ledger and file together: revokes each board whose key is in the file, and adds each
// revoked board to the file. Logs a line for each board that it revokes. A missing file counts as
// empty. A line that cannot be added is only reported in unwritten.
cn_err cn_revocations_apply(struct cn_ledger *ledger, const char *path,
                            struct cn_revocations_report *report);

// Adds the lines of the file from to the file at path, and counts the new ones in report->added.
// Returns CN_ENOTFOUND when from does not exist.
cn_err cn_revocations_import(const char *path, const char *from,
                             struct cn_revocations_report *report);
