// event_audit.h - finds what commands did to the state beside the running aggregator.
//
// A command that asks over a socket is known to the aggregator. The others, such as job submit,
// write to the ledger by themselves and leave lines in the audit (audit.h). This unit reads lines
// that are added to the audit, also across a rotation. Threading: none.
#pragma once

#include <sys/types.h>

#include "aggregator/store/audit.h"

struct cn_event_audit {
    const char *state;        // directory; borrowed
    int file;                 // of the audit; -1: none is open
    off_t read;               // bytes of the file that were read
    struct cn_audit_who self; // this process
};

// Told of a command that was carried out, of the submitted job that it is about (NULL: none is
// named), and of its result, such as "done: file next.yaml". A path is cut to its last part.
typedef void cn_event_audit_tell(void *context, const char *command, const char *job,
                                 const char *result);

// Begins behind the lines that are there.
void cn_event_audit_open(struct cn_event_audit *audit, const char *state);
void cn_event_audit_close(struct cn_event_audit *audit);

// Tells of commands of other processes whose lines were added since the last call. What cannot be
// read is left out.
void cn_event_audit_look(struct cn_event_audit *audit, cn_event_audit_tell *tell, void *context);
