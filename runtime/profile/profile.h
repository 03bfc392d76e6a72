// profile.h - the one input a user writes: settings merged from board <- site <- job files.
//
// A file starts with "schema: cairn/board/v1", "cairn/site/v1" or "cairn/job/v1". "extends:" names
// the file of a lower layer, "job:" the file of the job. The schema table in schema.c says for each
// key its type, unit, limits, default and the layers that may set it. PROFILES.md describes them
// for a user. All mistakes of all files are reported in one run as "file:line:col: error: ...".
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "runtime/base/diag.h"
#include "runtime/base/member.h"
#include "runtime/base/number.h"
#include "runtime/profile/job.h"

#define CN_PATH_SIZE 512
#define CN_DATASET_MAX 8
#define CN_DATA_FILES 8

enum cn_device {
    CN_DEVICE_AUTO, // the GPU when there is one, else the CPU
    CN_DEVICE_CPU,
    CN_DEVICE_CUDA,
};

enum cn_lan {
    CN_LAN_UNTRUSTED,
    CN_LAN_TRUSTED, // nobody listens
};

struct cn_data_paths {
    char name[CN_NAME_SIZE];
    char inputs[CN_PATH_SIZE]; // absolute, or relative to the working directory, like all paths
    char labels[CN_PATH_SIZE]; // "" where the model computes its loss itself
    // Files for the inputs of the model by name; then inputs is the first of them.
    struct {
        char name[CN_NAME_SIZE];
        char path[CN_PATH_SIZE];
    } files[CN_DATA_FILES];
    uint32_t file_count;
    char held_out[CN_NAME_SIZE]; // another data set that only measures; "": a share of this one
};

struct cn_group_settings {
    char listen[CN_ADDRESS_SIZE]; // TCP for data, UDP for control
    bool mapped;                  // the others reach it by another port
    // Ordered by name, so that an index means the same on each of them. Pair keys are zero; the
    // aggregator hands them out.
    struct cn_member members[CN_GROUP_MAX];
    uint32_t member_count;   // 0: the board is a group of its own
    uint64_t form_ms;        // how long a start waits for all members
    uint64_t rejoin_ms;      // how long the others wait for a lost member
    uint32_t min_members;    // fewer do not train
    uint64_t timeout_ms;     // of a member that answers but does not work
    uint64_t bucket;         // bytes of gradients that are reduced at a time; 0: measured
    enum cn_number wire;     // how gradients travel: CN_FLOAT32 or CN_BFLOAT16
    enum cn_lan lan;         // whether sums may travel unencrypted
    char sets[CN_SETS_SIZE]; // process sets, see set_rules.h
};

// When a board trains, and what it tells the site; rules of runtime/round/upkeep/pause_rules.h.
struct cn_upkeep_settings {
    uint64_t pause_above_mc, resume_below_mc; // thousandths of a degree Celsius; 0: not set
    char zones[CN_WORDS_SIZE];                // labels of thermal zones; "": all
    char power_sensors[CN_WORDS_SIZE];        // labels; the first that is there counts
    char power_mode[CN_WORDS_SIZE];           // names; the first that the board has is set
    bool enforce_power;
    uint64_t window_from_ms, window_to_ms; // after midnight; equal: always
    double others_max;                     // share of the processors; 0: no limit
    uint64_t wear_bytes;                   // a day; 0: no limit
    char on_round[CN_PATH_SIZE], on_version[CN_PATH_SIZE], on_pause[CN_PATH_SIZE];
    uint64_t hook_limit_ms; // of one run of a hook
};

struct cn_gateway_settings {
    char listen[CN_LINK_ADDRESSES][CN_ADDRESS_SIZE];
    uint32_t listen_count;
    uint64_t keep_rounds;   // stored updates of so many rounds; 0 keeps all
    uint64_t keep_versions; // full versions; the best and the first are always kept; 0 keeps all
    uint64_t spool_limit;   // bytes
    uint64_t board_bps;     // of each board, both ways together; 0: no limit
};

struct cn_settings {
    char name[CN_NAME_SIZE]; // of this device: its identity
    char board_type[CN_NAME_SIZE];
    uint32_t threads; // 0: all processors
    enum cn_device device;
    enum cn_precision precision;   // of the factors of products
    char gpus[CN_WORDS_SIZE];      // numbers of those that train (gpus.h); "": the first
    uint32_t gpu_place, gpu_count; // of this member among those of its board; 0, 0: it has one
    uint32_t cpu_cores;            // of the board; 0: not said
    uint64_t memory_size;          // bytes of the board; 0: not said
    uint64_t memory_limit;         // bytes for training; 0: no limit
    uint64_t power_mw;             // told to the aggregator; 0: not set
    uint64_t uplink_bps;           // 0: no limit
    enum cn_link_transport transport;
    uint64_t round_bytes;                    // of an update; 0: no limit
    uint64_t day_bytes;                      // sent and received in 24 h; 0: no limit
    uint64_t metered_from_ms, metered_to_ms; // after midnight; equal: never
    uint64_t metered_round_bytes;            // of an update then; 0: the link is not used
    char state[CN_PATH_SIZE];                // directory of everything this program stores
    uint64_t reserve;                        // bytes of disk to leave free
    char addresses[CN_LINK_ADDRESSES][CN_ADDRESS_SIZE]; // of the aggregator
    uint32_t address_count;
    char key[CN_PATH_SIZE]; // file with this board's key
    struct cn_group_settings group;
    struct cn_upkeep_settings care;
    struct cn_data_paths data[CN_DATASET_MAX];
    uint32_t data_count;
    struct cn_gateway_settings gateway;
    bool has_job;
    char model[CN_PATH_SIZE]; // ONNX file of the job
    struct cn_job job;
    uint32_t one; // of parallel.pipeline and .tensor, which come later
};

struct cn_profile;

// Loads path and what it extends. Paths in a file count from the directory of that file. All errors
// are in diag; the profile is NULL then. CN_EINVAL for a mistake in any file, CN_ENOMEM.
cn_err cn_profile_load(const char *path, struct cn_diag *diag, struct cn_profile **profile);

// The same for size bytes of text; name stands for the file's path in messages and for relative
// paths.
cn_err cn_profile_parse(const char *name, const char *text, size_t size, struct cn_diag *diag,
                        struct cn_profile **profile);
void cn_profile_free(struct cn_profile *profile);

const struct cn_settings *cn_profile_settings(const struct cn_profile *profile);

// What a program needs beyond what every profile has: the missing keys become errors in diag.
enum cn_profile_use {
    CN_PROFILE_TRAIN,   // model, job and its data
    CN_PROFILE_NODE,    // name, aggregator, key, state, data
    CN_PROFILE_GATEWAY, // gateway, model, job, state
    CN_PROFILE_LOOK,    // state: where a node's status is
};
cn_err cn_profile_require(const struct cn_profile *profile, enum cn_profile_use use,
                          struct cn_diag *diag);

// Prints the effective profile as one site file that loads again from anywhere: paths are absolute,
// the job is a section. With origin, "# file:line" or "# default" stands after each value.
void cn_profile_print(const struct cn_profile *profile, bool origin, FILE *stream);

// Prints the values of the job that change what training gives, a line each: "train.batch: 32".
void cn_profile_print_results(const struct cn_settings *settings, FILE *stream);

// A value for the template, written as in a file: {"memory.train_max", "4 GiB"}. The keys of a job
// start with "job.".
struct cn_profile_entry {
    const char *key;
    const char *value;
};

// Writes a commented profile for init: what use requires, with the given values or an example, and
// every other key it reads as a comment with its default. It loads without errors if the given
// values are right. CN_EINVAL for a key that does not exist, CN_EIO when the stream fails.
cn_err cn_profile_template(enum cn_profile_use use, const struct cn_profile_entry *entries,
                           size_t count, FILE *stream);

// Paths of the data set with this name, or NULL.
const struct cn_data_paths *cn_profile_data(const struct cn_settings *settings, const char *name);
