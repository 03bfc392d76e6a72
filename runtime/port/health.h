// health.h - what a board says of itself while it runs, for people and monitors.
//
// No decision about training or merging depends on it; whom a gateway invites may. 0 means "not
// known" in all fields except state, round, step and seq.
#pragma once

#include <stdint.h>

enum cn_health_state {
    CN_HEALTH_WAITING, // for the aggregator, its group or a model
    CN_HEALTH_IDLE,    // waits for a round
    CN_HEALTH_TRAINING,
    CN_HEALTH_DELIVERING, // its update is on its way, or another member sends it
    CN_HEALTH_PAUSED,     // the pause in the flags says why
    CN_HEALTH_FAILED,     // it cannot train; error says why
    CN_HEALTH_STATES,     // number of states
};

#define CN_HEALTH_THROTTLED 1u // flag: the system slows itself down for heat or power
#define CN_HEALTH_BATTERY 2u   // flag: the board runs on a battery
// Flag: its charge or its bytes left keep it out of the members that train; rest says why.
#define CN_HEALTH_RESTS 4u
#define CN_HEALTH_LOOKS_ON 8u // flag: it does not train, whatever its charge and bytes
#define CN_HEALTH_NEEDS                                                                            \
    16u // flag: it cannot train without members that are missing; rest names them
#define CN_HEALTH_OUT (CN_HEALTH_RESTS | CN_HEALTH_LOOKS_ON)
#define CN_HEALTH_PAUSE_SHIFT 8  // first bit of the pause (enum cn_pause)
#define CN_HEALTH_PAUSE_MASK 15u // mask of the pause, after shifting

#define CN_HEALTH_ERROR_SIZE 120  // bytes of the error text, with its terminating 0
#define CN_HEALTH_REST_SIZE 96    // bytes of the text about resting, with its terminating 0
#define CN_HEALTH_MISSING_MAX 4   // members that a report says are missing, beside a short text
#define CN_HEALTH_MISSING_LEAST 2 // beside a longer one: a report has at most 200 bytes
#define CN_HEALTH_TEXT_SHORT 60   // bytes of a short text

// Thousandths of a kelvin at 0 degrees Celsius.
#define CN_HEALTH_ZERO_CELSIUS 273150

// When a member of a group last heard of another one.
struct cn_member_sign {
    uint32_t id;        // cn_name_hash of the member's name
    uint32_t missing_s; // seconds since its last sign of life; 0: it takes part in the round
};

struct cn_health {
    uint32_t state;          // enum cn_health_state; a newer board may send a higher number
    uint32_t round;          // 0: none yet
    uint32_t step, steps;    // steps done in the round; steps of the round
    uint64_t temperature_mk; // hottest chosen zone, in thousandths of a kelvin
    uint64_t power_mw;
    uint64_t centisamples; // samples per second x 100
    uint64_t flags;        // CN_HEALTH_THROTTLED and the others
    uint64_t error_code;   // -cn_err; 0: no error
    char error[CN_HEALTH_ERROR_SIZE];
    uint64_t seq;                   // number of this message of the process, from 1 on
    uint64_t resident_mib;          // memory of the process in RAM
    uint64_t battery;               // charge in percent; 100 on the mains
    uint64_t left_kib;              // what network.day_max leaves of the day; UINT32_MAX: no limit
    char rest[CN_HEALTH_REST_SIZE]; // why it rests; "": it does not, or there is an error
    uint64_t samples; // of the job's data set that it trains on; left out beside an error
    // Low 32 bits of the number of the run whose data set that is, also where it has none that can
    // be read. 0: a board of an earlier release.
    uint64_t samples_run;
    // NEEDS: members that are missing, and those that have come back since the last report.
    struct cn_member_sign missing[CN_HEALTH_MISSING_MAX];
    uint32_t missing_count;
    // Of a model that is cut into parts: which one this board holds in which chain, counted from 1,
    // and the share of a step, in thousandths, in which the chain's boards compute nothing. Left
    // out beside an error or rest.
    uint64_t part, parts, chain, chains, bubble;
};
