// error.h - the one error type of Cairn and what a caller can do about each value.
#pragma once

// On the type, the attribute makes Clang report a dropped result, also through a function table.
// GCC knows it for functions only.
#ifdef __clang__
#define CN_CHECKED __attribute__((warn_unused_result))
#else
#define CN_CHECKED
#endif

typedef enum CN_CHECKED cn_err {
    CN_OK = 0,
    CN_ENOMEM = -1,     // memory or the profile's budget is used up: give up this operation
    CN_EIO = -2,        // disk, socket or device failed: retry later; stored state is still whole
    CN_ENOSPC = -3,     // the disk is full: keep the last good state and tell the operator
    CN_EINVAL = -4,     // a setting or argument from outside is wrong: report it and stop
    CN_EFORMAT = -5,    // bytes from disk or network are malformed: drop them, change nothing
    CN_ENOTSUP = -6,    // this port or build cannot do it: choose another
    CN_ERANGE = -7,     // a size, index or number is outside its limits: drop it
    CN_ENOTFOUND = -8,  // no such object: create it or go on without
    CN_EEXIST = -9,     // it is there already: use it or choose another name
    CN_EPEER = -10,     // a peer is lost or misbehaved: go on without it
    CN_EAUTH = -11,     // the key is wrong, unknown or revoked: do not retry at once
    CN_ESTALE = -12,    // right once, but the round, base or epoch has moved on: start over
    CN_ECONFLICT = -13, // another value was accepted for the same thing: keep that one
    CN_EDIGEST = -14,   // content does not match its digest: fetch or send it again
    CN_ETIMEOUT = -15,  // nothing happened in time: retry with back-off
    CN_EAGAIN = -16,    // not ready yet: call again
    CN_ECANCELED = -17, // stopped on request
    CN_EDIVERGED = -18, // the loss or a gradient is not finite: the weights are unchanged
    CN_EWEDGED = -19,   // a library hangs or a state is lost: end the process, its start heals it
} cn_err;

// A short English sentence without a full stop, for example "the disk is full". Never NULL.
const char *cn_err_text(cn_err err);

// The same of a call that just failed: where that is CN_EIO, what errno says of permissions and
// paths.
const char *cn_err_reason(cn_err err);

// Maps errno of a failed system call.
cn_err cn_err_from_errno(int number);
