// steer.h - the client of the control sockets: what pause, drain, move and the like share.
#pragma once

#include <cjson/cJSON.h>
#include <unistd.h>

#include "aggregator/control/control_request.h"
#include "aggregator/daemon/setup.h"

// What a command that does without the aggregator must be allowed to do in the state directory, as
// for access(2).
#define CN_STEER_READ (R_OK | X_OK)
#define CN_STEER_WRITE (R_OK | W_OK | X_OK)

#define CN_STEER_SERVICE "/run/cairn-aggregator" // folder of the service's sockets

// Options of these commands, for their help.
#define CN_STEER_HELP                                                                              \
    "\n"                                                                                           \
    "  --socket PATH    the control socket; default: that in the state directory, or\n"            \
    "                   the service's in /run/cairn-aggregator\n"                                  \
    "  --id ID          for 10 minutes, a command with this id is done only once\n"

// Option of the commands about one run, for their help.
#define CN_STEER_JOB_HELP                                                                          \
    "  --job JOB        the run of a submitted job; its own profile names it, too\n"

// Entries for getopt_long, and the letters under which it returns them.
#define CN_STEER_OPTIONS                                                                           \
    {"socket", required_argument, NULL, 'S'},                                                      \
    {                                                                                              \
        "id", required_argument, NULL, 'I'                                                         \
    }

// Entry for --job, and its letter.
#define CN_STEER_JOB_OPTION                                                                        \
    {                                                                                              \
        "job", required_argument, NULL, 'J'                                                        \
    }

struct cn_steer {
    const char *socket; // path; NULL: that of the profile's aggregator
    const char *id;     // id of the request; NULL: a random one
    bool of_run;        // the command is about one run: that of a submitted job, if one is named
    struct cn_control_request request;
    bool unanswered; // the request was sent and no answer was understood: it may have been done
};

// Takes one of CN_STEER_OPTIONS, or CN_STEER_JOB_OPTION where the command is about one run. Returns
// false for any other letter, and after it printed what is wrong with a name.
bool cn_steer_read_option(struct cn_steer *steer, int option, const char *value);

// Sets a name of the request. Prints what is wrong with it and returns false.
bool cn_steer_set_name(const char *text, char name[CN_NAME_SIZE]);

// Returns whether a command must go over a socket instead of using the state itself: the user named
// a socket, or lacks these rights to the state.
bool cn_steer_is_needed(const struct cn_steer *steer, const char *profile, int rights);

// Sends the request to the aggregator of the profile and prints its answer. If none runs, and the
// command changes only the ledger, carries it out here. Returns the exit code.
int cn_steer_send(struct cn_steer *steer, const char *profile, const char *command);

// Carries out a request that changes only the ledger, in the state that setup opened, and prints
// the answer. Returns the exit code.
int cn_steer_write(struct cn_steer *steer, const struct cn_setup *setup, const char *command);

// As cn_steer_send, with a profile that is loaded, and only over a socket. Sets *reached to false,
// and prints nothing, when no aggregator answers there.
int cn_steer_try(struct cn_steer *steer, const struct cn_settings *settings, const char *command,
                 bool *reached);

// As cn_steer_try, but prints only errors. Returns the answer as JSON, which the caller deletes;
// NULL if there is none, or if the aggregator refused.
cJSON *cn_steer_ask(struct cn_steer *steer, const struct cn_settings *settings, const char *command,
                    bool *reached);

// Runs a command with the arguments PROFILE [GROUP].
int cn_steer_group_command(int argc, char **argv, const char *command);
