// show.h - what the page, the report and scripts see of a run, as JSON.
//
// JSON.md has the format. A run that has ended gives the same objects as one that goes on: durable
// facts come from the ledger, and what only a running aggregator knows comes from live. Nothing
// secret is written: no keys, no paths. Texts of boards are cleaned. Each answer is made from
// memory and one snapshot of the ledger. Errors: those of the ledger, and CN_ERANGE when the
// buffer's limit is reached. Threading: that of the ledger.
#pragma once

#include "aggregator/roster/sensor_curve.h"
#include "aggregator/show/live.h"
#include "aggregator/show/tracker.h"

#define CN_SHOW_FORMAT 1          // member "v" of each answer
#define CN_SHOW_LIMIT (64u << 20) // bytes; enough for any answer about 100,000 boards
#define CN_SHOW_VERSIONS 100      // most versions in an answer

// What is shown. All pointers are borrowed.
struct cn_show_source {
    struct cn_ledger *ledger;
    const struct cn_job *job;
    const struct cn_live_state *live;
    // What is known about the versions so far, as in cn_run_state; NULL: read from the ledger,
    // which takes longer the more versions there are.
    const struct cn_run_progress *progress;
    uint64_t now_ms;       // clock
    uint64_t date_ms;      // milliseconds since 1970
    uint64_t parameters;   // values of the model; 0: not known
    uint64_t disk_free;    // bytes that are free where the state is; 0: not known
    uint64_t disk_reserve; // bytes that the profile wants to stay free
    uint64_t events;       // sequence number of the newest event; 0: there is none
    uint32_t jobs;         // of the gateway; 0: not known
    // Sensors of the board that cn_show_board shows; NULL: not known.
    const struct cn_sensor_curve *curve;
};

// Returns the bytes that are free where path is, for disk_free: at least 1, also on a full disk; 0:
// not known.
uint64_t cn_show_disk_free(const char *path);

// Returns the bytes to show for disk_free: 0 for a full disk.
uint64_t cn_show_disk_count(uint64_t disk_free);

#define CN_SHOW_DISK_SIZE 160 // bytes of the sentence

// Writes how much of the gateway's disk is free, and whether updates are refused for it.
void cn_show_disk_text(uint64_t bytes_free, uint64_t reserve, char text[CN_SHOW_DISK_SIZE]);

// Returns the milliseconds since 1970, for date_ms.
uint64_t cn_show_date_ms(void);

// Writes the run, its alerts, its groups and its boards. With a tracker, writes only the boards
// that changed after since (0: all boards), and the value of since for the next request. tracker
// NULL: all boards.
cn_err cn_show_state(const struct cn_show_source *source, struct cn_show_tracker *tracker,
                     uint64_t since, struct cn_buffer *out);

// Writes the versions from number from on, at most CN_SHOW_VERSIONS, with the verdict about each
// group.
cn_err cn_show_versions(const struct cn_show_source *source, uint32_t from, struct cn_buffer *out);

// Writes one board with its group's newest rounds. Returns CN_ENOTFOUND when it was never enrolled.
cn_err cn_show_board(const struct cn_show_source *source, const char *name, struct cn_buffer *out);
