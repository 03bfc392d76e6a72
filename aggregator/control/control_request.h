// control_request.h - a command that came over a control socket, as a line of JSON.
//
//   {"id":"5f0c1d","command":"extend-round","duration_ms":600000}
//
// The line is a JSON object whose members are strings, numbers, true or false. Any other bytes are
// refused with a sentence. Threading: no shared state.
#pragma once

#include "aggregator/ledger/rulings.h"
#include "aggregator/ledger/steering.h"
#include "runtime/profile/profile.h"

// Members of a request besides id and command, as bits.
enum cn_control_member {
    CN_CONTROL_STATE = 1 << 0,      // state directory whose aggregator the client means
    CN_CONTROL_BOARD = 1 << 1,      // name
    CN_CONTROL_GROUP = 1 << 2,      // name
    CN_CONTROL_NOW = 1 << 3,        // true or false
    CN_CONTROL_YES = 1 << 4,        // true or false
    CN_CONTROL_DURATION = 1 << 5,   // "duration_ms"
    CN_CONTROL_KEY = 1 << 6,        // secret of a board, 64 hexadecimal digits
    CN_CONTROL_MAX_WEIGHT = 1 << 7, // "max_weight"
    CN_CONTROL_LINES = 1 << 8,      // "lines"
    CN_CONTROL_JOB = 1 << 9,        // name
};

#define CN_CONTROL_COMMAND_SIZE 24
#define CN_CONTROL_REASON 200 // size of a sentence that refuses a request

struct cn_control_request {
    char id[CN_STEERING_ID_SIZE]; // 1 to 64 letters, digits and . _ -
    char command[CN_CONTROL_COMMAND_SIZE];
    unsigned members; // set of cn_control_member: those that the line has
    char state[CN_PATH_SIZE];
    char board[CN_NAME_SIZE], group[CN_NAME_SIZE], job[CN_NAME_SIZE];
    bool now, yes;
    uint64_t duration_ms, max_weight, lines;
    uint8_t key[CN_KEY_SIZE];
    uint8_t digest[CN_DIGEST_SIZE]; // cn_control_request_digest
};

// Reads a line of size bytes, which is followed by a 0, and sets the digest. On any error, reason
// is a sentence, and the id is set if the line has a valid one.
cn_err cn_control_request_parse(const char *line, size_t size, struct cn_control_request *request,
                                char reason[CN_CONTROL_REASON]);

// Returns what the audit shows of the request, as a JSON object without its key and its state. The
// caller frees it with cJSON_free. Returns NULL when memory is short.
char *cn_control_request_arguments(const struct cn_control_request *request);

// Sets the digest, by which a command that is sent again is known: SHA-256 of the command and its
// members in a fixed order. It leaves out the id, and the state directory, which a client names
// only over the sockets of a service. Returns CN_ENOMEM when memory is short.
cn_err cn_control_request_digest(struct cn_control_request *request);

// Makes the line for a request, with its key. The caller frees it with cJSON_free, after wiping.
// Returns NULL when memory is short.
char *cn_control_request_print(const struct cn_control_request *request);
