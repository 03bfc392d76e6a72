// audit.h - a file that says who asked for what: one JSON object a line, each chained to the one
// before it.
//
//   {"seq":7,"t":"2026-11-23T01:02:03.456Z","who":{"uid":1000,"pid":4242,"by":"admin.sock"},
//    "what":"pause","arguments":{"now":true},"result":"asked","prev":"64 hexadecimal digits"}
//
// A command leaves two lines. The first has the result "asked" and is on the disk before the
// effect. The second has the real result, and its "of" is the seq of the first. Without a second
// line a crash cut the command off, and the state says whether it happened. prev is the SHA-256 of
// the line before, without its end of line, or zeros in the very first line. Whoever may write the
// file can also rewrite all of it: keep the digest of the newest line elsewhere to notice that.
//
// The file is STATE/audit.jsonl, mode 0640. Above CN_AUDIT_SIZE it becomes audit.jsonl.1, and so
// on; CN_AUDIT_KEPT older ones are kept, and the chain goes through all of them. Programs that run
// beside each other may write: a lock on the file orders them. Threading: none.
#pragma once

#include <stdbool.h>

#include "runtime/base/bytes.h"

#define CN_AUDIT_FILE "audit.jsonl"
#define CN_AUDIT_SIZE (8u << 20)
#define CN_AUDIT_KEPT 3
#define CN_AUDIT_LINE_MAX 16384

// Who asks: a process as the kernel names it, and the command or socket through which it asks.
struct cn_audit_who {
    uint32_t uid;   // 65534: a user of another user namespace
    int32_t pid;    // 0: not known
    uint64_t start; // of a process that wrote its own lines (cn_platform_process_start); 0: another
    const char *by; // command or socket
};

// Returns this process. by is its command, such as "revoke".
struct cn_audit_who cn_audit_self(const char *by);

struct cn_audit_entry {
    struct cn_audit_who who;
    const char *what;
    const char *arguments; // a JSON object; NULL: {}
    const char *result;
    uint64_t of; // seq of the line with "asked"; 0: none
};

// Adds a line, which is durable on return. Sets *seq, which may be NULL, to its number. First
// removes the part of a line that a crash left. After a damaged line the chain goes on: prev is the
// digest of its bytes, and seq counts it. After an error the file has no new line, part of one, or
// one that a power cut may take back. Returns CN_ERANGE when the line would be longer than
// CN_AUDIT_LINE_MAX, CN_EAGAIN when the file could not be locked, CN_EINVAL for a path that is too
// long.
cn_err cn_audit_append(const char *directory, const struct cn_audit_entry *entry, uint64_t *seq);

struct cn_audit_verdict {
    uint64_t lines;                      // number of lines in the chain
    uint64_t first, last;                // seq of its first and last line
    char newest[2 * CN_DIGEST_SIZE + 1]; // digest of the newest line that fits the chain
    char fault[256];                     // what is wrong, with file and line; "": nothing is
    bool expected_found;                 // whether a line has the expected digest
    bool torn;                           // a crash left only a part of the last line
};

// Checks the chain through all kept files. expected, which may be NULL, is the digest of a line
// that was written down elsewhere. Returns CN_ENOTFOUND when there is no file. A broken chain is no
// error: the verdict has it.
cn_err cn_audit_verify(const char *directory, const char *expected,
                       struct cn_audit_verdict *verdict);
