// profile.h - the one input a user writes: settings merged from board <- site <- job files.
//
// A file starts with "schema: cairn/board/v1", "cairn/site/v1" or "cairn/job/v1". "extends:" names
// the file that this one adds to, "job:" the file of the job. The table in schema.c gives for each
// key its type, unit, limits, default and the layers that may set it. PROFILES.md describes the
// keys for a user. All mistakes of all files are reported at once as "file:line:col: error: ...".
// Threading: one thread loads profiles. A loaded profile does not change.
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "runtime/base/diag.h"
#include "runtime/base/member.h"
#include "runtime/base/number.h"
#include "runtime/profile/job.h"

#define CN_PATH_SIZE 512 // bytes of a path, with its terminating 0
#define CN_DATASET_MAX 8 // most data sets of a profile
#define CN_DATA_FILES 8  // most files of a data set for inputs of the model

enum cn_device {
    CN_DEVICE_AUTO, // the GPU when there is one, else the CPU
    CN_DEVICE_CPU,
    CN_DEVICE_CUDA,
};

enum cn_lan {
    CN_LAN_UNTRUSTED,
    CN_LAN_TRUSTED, // no one else can read the LAN's traffic
};

struct cn_data_paths {
    char name[CN_NAME_SIZE];
    char inputs[CN_PATH_SIZE]; // absolute, or relative to the working directory, like all paths
    char labels[CN_PATH_SIZE]; // "" when the model computes its loss itself
    // A file for each input of the model, by the input's name. Then inputs is the first file.
    struct {
        char name[CN_NAME_SIZE];
        char path[CN_PATH_SIZE];
    } files[CN_DATA_FILES];
    uint32_t file_count;
    char held_out[CN_NAME_SIZE]; // data set for measurements; "": a share of this data set
};

struct cn_group_settings {
    char listen[CN_ADDRESS_SIZE]; // TCP for data, UDP for control
    bool mapped;                  // the others reach this board by another port
    // Members ordered by name, so that an index means the same on each board. Pair keys are zero;
    // the aggregator hands them out.
    struct cn_member members[CN_GROUP_MAX];
    uint32_t member_count;   // 0: the board is a group of its own
    uint64_t form_ms;        // longest wait for all members at the start
    uint64_t rejoin_ms;      // longest time that the others wait for a lost member
    uint32_t min_members;    // smallest group that trains
    uint64_t timeout_ms;     // longest wait for a member that answers but does not work
    uint64_t bucket;         // bytes of gradients reduced at a time; 0: chosen by measurement
    enum cn_number wire;     // number format of gradients on the network: float32 or bfloat16
    enum cn_lan lan;         // whether sums may travel unencrypted
    char sets[CN_SETS_SIZE]; // process sets, see set_rules.h
};

// When a board trains (runtime/round/upkeep/pause_rules.h), and the hooks that it runs.
struct cn_upkeep_settings {
    uint64_t pause_above_mc, resume_below_mc; // thousandths of a degree Celsius; 0: not set
    char zones[CN_WORDS_SIZE];                // labels of thermal zones; "": all
    char power_sensors[CN_WORDS_SIZE];        // labels; the first that exists counts
    char power_mode[CN_WORDS_SIZE];           // names; the first that the board has is set
    bool enforce_power; // training pauses while the board needs more than cn_settings.power_mw
    uint64_t window_from_ms, window_to_ms; // training hours, ms after midnight; equal: always
    double others_max;                     // largest CPU share of other programs; 0: no limit
    uint64_t wear_bytes;                   // most bytes written to disk in a day; 0: no limit
    // Programs to run at each new round, at each new version, at each pause and its end; "": none.
    char on_round[CN_PATH_SIZE], on_version[CN_PATH_SIZE], on_pause[CN_PATH_SIZE];
    uint64_t hook_limit_ms; // longest run of such a program
};

struct cn_gateway_settings {
    char listen[CN_LINK_ADDRESSES][CN_ADDRESS_SIZE];
    uint32_t listen_count;
    uint64_t keep_rounds; // number of rounds whose updates are kept; 0: all
    // Number of full versions kept in addition to the best and the first; 0: all.
    uint64_t keep_versions;
    uint64_t spool_limit; // most bytes of the spool
    uint64_t board_bps;   // most bit/s of each board, both directions together; 0: no limit
};

// The program of the site that is told of a gateway's events.
struct cn_event_hook_settings {
    char path[CN_PATH_SIZE];    // "": none
    char events[CN_WORDS_SIZE]; // kinds and patterns of kinds (event_kinds.h); "": the alarms
};

// Metrics, health and the page, for people and monitors.
struct cn_http_settings {
    char listen[CN_PATH_SIZE];       // "host:port" or "unix:PATH"; "": no server
    char token_file[CN_PATH_SIZE];   // file with the token that clients must send; "": none
    char names[CN_WORDS_SIZE];       // more host names by which browsers may call this server
    uint32_t board_series;           // most enrolled boards with metrics of their own
    char metrics_file[CN_PATH_SIZE]; // file to write metrics to, for node_exporter; "": none
};

// Where whole rows of the model lie that a board needs beside its training.
enum cn_row_place {
    CN_ROW_PLACE_AUTO,   // on the disk if the group divides the model's state, else in memory
    CN_ROW_PLACE_MEMORY, // in memory
    CN_ROW_PLACE_DISK,   // on the disk
};

// What operators of the gateway may ask of a board.
enum cn_remote {
    CN_REMOTE_NONE,
    CN_REMOTE_LOG,      // the newest lines of its log
    CN_REMOTE_SELFTEST, // the log, and a report of cairn-node selftest
};

struct cn_settings {
    char name[CN_NAME_SIZE]; // name of this device: its identity
    char board_type[CN_NAME_SIZE];
    uint32_t threads; // 0: all processors
    enum cn_device device;
    enum cn_precision precision;   // number format of factors in matrix products
    char gpus[CN_WORDS_SIZE];      // numbers of the GPUs that train (gpus.h); "": the first
    uint32_t gpu_place, gpu_count; // this member's place among the GPUs of its board; 0, 0: one GPU
    uint32_t cpu_cores;            // processors of the board's type; 0: not set
    uint64_t memory_size;          // bytes of the board's memory; 0: not set
    uint64_t memory_limit;         // bytes for training; 0: no limit
    enum cn_row_place row_place;   // where whole rows of the model lie
    uint64_t power_mw;             // power budget, told to the aggregator; 0: not set
    uint64_t uplink_bps;           // most bit/s to send; 0: no limit
    enum cn_link_transport transport;
    uint64_t round_bytes;                    // largest update; 0: no limit
    uint64_t day_bytes;                      // most bytes sent and received in 24 h; 0: no limit
    uint64_t metered_from_ms, metered_to_ms; // metered hours, ms after midnight; equal: never
    uint64_t metered_round_bytes; // largest update in these hours; 0: the link is not used
    char state[CN_PATH_SIZE];     // directory for all files that this program stores
    uint64_t reserve;             // bytes of the disk to leave free
    char addresses[CN_LINK_ADDRESSES][CN_ADDRESS_SIZE]; // addresses of the aggregator
    uint32_t address_count;
    char key[CN_PATH_SIZE];  // path of the file with this board's key
    enum cn_remote remote;   // what operators of the gateway may ask of this board
    char base[CN_PATH_SIZE]; // path of the job's model on this board; "": version 0 is fetched
    struct cn_group_settings group;
    struct cn_upkeep_settings care;
    struct cn_data_paths data[CN_DATASET_MAX];
    uint32_t data_count;
    struct cn_gateway_settings gateway;
    struct cn_http_settings http;
    struct cn_event_hook_settings event_hook;
    bool has_job;
    char model[CN_PATH_SIZE]; // ONNX file of the job
    struct cn_job job;
    uint32_t one; // parallel.tensor, a reserved key whose only value is 1
};

struct cn_profile;

// Loads the file path, the files that it extends and the job. Paths in a file are relative to the
// directory of that file. Returns CN_EINVAL for a mistake in any file or a file that cannot be
// read, or CN_ENOMEM; *profile is NULL then, and diag has a line for each mistake.
cn_err cn_profile_load(const char *path, struct cn_diag *diag, struct cn_profile **profile);

// As cn_profile_load, for size bytes of text. name serves as the file's path, in messages and for
// relative paths.
cn_err cn_profile_parse(const char *name, const char *text, size_t size, struct cn_diag *diag,
                        struct cn_profile **profile);
void cn_profile_free(struct cn_profile *profile);

// Returns the merged settings, valid until cn_profile_free.
const struct cn_settings *cn_profile_settings(const struct cn_profile *profile);

// Returns whether a file of the profile has a value for this key of PROFILES.md. The keys of a job
// start with "job.", as in "job.rounds.quorum". The key must exist.
bool cn_profile_is_set(const struct cn_profile *profile, const char *key);

// Writes the key of a job, without "job.", that an unknown one probably means; "" when none is
// near.
void cn_profile_suggest_job_key(const char *key, char suggestion[CN_PATH_SIZE]);

// Uses path as the board's key instead of aggregator.key. Returns CN_ERANGE when the path is too
// long.
cn_err cn_profile_use_key(struct cn_profile *profile, const char *path);

// Uses path as the state directory, in place of what the profile says. Returns CN_ERANGE when the
// path is too long.
cn_err cn_profile_use_state(struct cn_profile *profile, const char *path);

// What a program does with a profile, and the keys that it requires.
enum cn_profile_use {
    CN_PROFILE_TRAIN,   // trains alone: model, job and its data
    CN_PROFILE_NODE,    // takes part in a run: name, aggregator, key, state, data
    CN_PROFILE_GATEWAY, // runs the gateway: gateway, model, job, state
    CN_PROFILE_LOOK,    // shows the status of a node: state
};

// Checks that the profile has all keys that use requires. Returns CN_EINVAL, with a line in diag
// for each missing key.
cn_err cn_profile_require(const struct cn_profile *profile, enum cn_profile_use use,
                          struct cn_diag *diag);

// Prints the effective profile as one site file, with the job as a section. The file loads from any
// directory: paths are absolute, except that of a relative "unix:PATH". With origin, "# file:line"
// or "# default" follows each value.
void cn_profile_print(const struct cn_profile *profile, bool origin, FILE *stream);

// Prints the values of the job that affect the result of training, a line for each:
// "train.batch: 32".
void cn_profile_print_results(const struct cn_settings *settings, FILE *stream);

// A value for the template, written as in a file: {"memory.train_max", "4 GiB"}. The keys of a job
// start with "job.".
struct cn_profile_entry {
    const char *key;
    const char *value;
};

// Writes a commented profile for "cairn-node init". The profile has the keys that use requires,
// with the given values or an example. Every other key that use reads is a comment with its
// default. The profile loads without errors if the given values are right. Returns CN_EINVAL for a
// key that does not exist, CN_EIO when the stream fails, or CN_ENOMEM.
cn_err cn_profile_template(enum cn_profile_use use, const struct cn_profile_entry *entries,
                           size_t count, FILE *stream);

// Returns the paths of the data set with this name, or NULL.
const struct cn_data_paths *cn_profile_data(const struct cn_settings *settings, const char *name);
