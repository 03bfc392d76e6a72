// status.h - what a running aggregator tells other programs on its machine.
//
// "status.json" in the state directory, replaced about once a second and worth nothing after a
// restart: it is not synced to disk. Times in it are those of cn_platform_now_ms, which all
// programs share. The durable facts come from the ledger.
#pragma once

#include <stdio.h>

#include "aggregator/run/run.h"
#include "aggregator/store/roster.h"

#define CN_STATUS_FILE "status.json"
#define CN_STATUS_KEY_SIZE 17

// Writes the file. An error is of no consequence.
cn_err cn_status_write(const char *directory, const struct cn_roster *roster,
                       const struct cn_run_state *state, uint64_t now_ms);

struct cn_status_live {
    bool running; // written by a program that lives
    enum cn_run_phase phase;
    uint64_t remaining_ms;
    uint64_t roster_ms; // boards that were enrolled and revoked before are known; 0: not said
    struct cn_run_traffic traffic; // also of a program that has ended
    struct cn_merge_cuts cuts;     // count 0: none
    char warning[CN_RUN_WARNING];
    size_t board_count; // heard since the start
    struct cn_status_board {
        char name[CN_NAME_SIZE];
        char key[CN_STATUS_KEY_SIZE]; // start of the digest of the key that it was heard with
        uint64_t heard_ms;   // the last sign of its life, its group's leader's word included
        uint64_t missing_ms; // since when its group misses it; 0: it does not
        struct cn_fault fault;
        uint64_t twice_ms; // newest sign of two that use its key; 0: there was none
        char twice[CN_INSTANCES_TEXT];
        struct cn_roster_facts facts;
    } * boards; // owned
};

// What a running aggregator wrote. Zeroed when there is none. Deinit in any case.
cn_err cn_status_read(const char *directory, uint64_t now_ms, struct cn_status_live *live);
void cn_status_deinit(struct cn_status_live *live);

// The bytes that the last program wrote down, which is at most a second before it ended; zeros when
// it wrote nothing.
void cn_status_read_traffic(const char *directory, struct cn_run_traffic *traffic);

// Prints run, round, version, the reason for each board that is not in the round, and what became
// of each group's updates.
cn_err cn_status_print(struct cn_ledger *ledger, const struct cn_job *job,
                       const struct cn_status_live *live, uint64_t now_ms, bool json, FILE *stream);
