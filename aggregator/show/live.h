// live.h - what only a running aggregator knows: its phase, its bytes, when boards were heard.
//
// serve/status.h fills it in: from the file that the aggregator writes, or in the aggregator
// itself. Times are those of cn_platform_now_ms, a clock that all programs of a machine share.
#pragma once

#include "aggregator/ledger/steering.h"
#include "aggregator/run/run.h"

#define CN_LIVE_KEY_SIZE 17

struct cn_live_state {
    bool running; // whether the aggregator is alive
    enum cn_run_phase phase;
    uint64_t remaining_ms, settling_ms; // as in struct cn_run_state
    uint64_t opened_ms;                 // clock; since when boards are heard; 0: not reported
    // Enrolments and revocations before this time are known to the program; 0: not reported.
    uint64_t roster_ms;
    struct cn_run_traffic traffic; // set also when the program has ended
    struct cn_merge_cuts cuts;     // count 0: none
    char warning[CN_RUN_WARNING];
    size_t board_count; // boards heard since the program's start
    struct cn_live_board {
        char name[CN_NAME_SIZE];
        // Start of the digest of the key with which the board was heard; see cn_live_name_key.
        char key[CN_LIVE_KEY_SIZE];
        uint64_t heard_ms;   // last sign of life, reports of its group's leader included
        uint64_t missing_ms; // since when its group misses it; 0: not missing
        bool elsewhere;      // its group serves another job
        bool unfit;          // its group does not meet the job's rounds.select
        uint32_t version;    // newest version that a board of its group fetched; 0: not known
        struct cn_fault fault;
        uint64_t error_code; // of fault; 0: not known
        struct cn_board_health health;
        uint64_t twice_ms; // newest sign of two processes that use its key; 0: there was none
        char twice[CN_INSTANCES_TEXT];
        struct cn_roster_facts facts;
    } * boards; // owned
};

// Returns whether rounds follow one another: the program runs, and waits neither for groups nor for
// a person who paused the run.
bool cn_live_is_moving(const struct cn_live_state *live, const struct cn_steering *steering);

// Names a board's key without revealing it: by the start of its digest, in hexadecimal.
void cn_live_name_key(const struct cn_ledger_board *board, char text[CN_LIVE_KEY_SIZE]);

// Returns what is known about the board, or NULL if it was not heard with its present key. An older
// aggregator names no keys, and then the board's name is enough. hint is where the search begins;
// the next board of the ledger is then found at once. It starts with 0.
const struct cn_live_board *cn_live_find(const struct cn_live_state *live,
                                         const struct cn_ledger_board *board, size_t *hint);
