// status.h - what a running aggregator tells other programs on its machine.
//
// The file is "status.json" in the state directory, replaced about once a second. It is not synced
// to disk, because it is worth nothing after a restart of the machine. Its times are those of
// cn_platform_now_ms, a clock that all programs share. Durable facts come from the ledger.
#pragma once

#include <stdio.h>

#include "aggregator/run/run.h"
#include "aggregator/store/roster.h"

#define CN_STATUS_FILE "status.json"
#define CN_STATUS_KEY_SIZE 17

// Writes the file. The caller may ignore an error.
cn_err cn_status_write(const char *directory, const struct cn_roster *roster,
                       const struct cn_run_state *state, uint64_t now_ms);

struct cn_status_live {
    bool running; // whether the file is of a program that is alive
    enum cn_run_phase phase;
    uint64_t remaining_ms;
    // Enrolments and revocations before this time are known to the program; 0: not reported.
    uint64_t roster_ms;
    struct cn_run_traffic traffic; // set also when the program has ended
    struct cn_merge_cuts cuts;     // count 0: none
    char warning[CN_RUN_WARNING];
    size_t board_count; // boards heard since the program's start
    struct cn_status_board {
        char name[CN_NAME_SIZE];
        // Start of the digest of the key with which the board was heard; see cn_status_name_key.
        char key[CN_STATUS_KEY_SIZE];
        uint64_t heard_ms;   // last sign of life, reports of its group's leader included
        uint64_t missing_ms; // since when its group misses it; 0: not missing
        struct cn_fault fault;
        uint64_t twice_ms; // newest sign of two processes that use its key; 0: there was none
        char twice[CN_INSTANCES_TEXT];
        struct cn_roster_facts facts;
    } * boards; // owned
};

// Reads what a running aggregator wrote. live is zeroed when there is no file. Call deinit in any
// case.
cn_err cn_status_read(const char *directory, uint64_t now_ms, struct cn_status_live *live);
void cn_status_deinit(struct cn_status_live *live);

// Reads the bytes that the last program counted, up to at most a second before it ended. Sets zeros
// when it wrote nothing.
void cn_status_read_traffic(const char *directory, struct cn_run_traffic *traffic);

// Prints run, round and version. Prints the state of each board, with the reason why it is not in
// the round, and what became of each group's updates.
cn_err cn_status_print(struct cn_ledger *ledger, const struct cn_job *job,
                       const struct cn_status_live *live, uint64_t now_ms, bool json, FILE *stream);
