// error.h - the one error type of Cairn and what a caller can do about each value.
#pragma once

// Clang accepts this attribute on a type and then reports every dropped result, also of a call
// through a function table. GCC accepts it on functions only.
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
    CN_ENOTFOUND = -8,  // no such object: create it or continue without it
    CN_EEXIST = -9,     // the object exists already: use it or choose another name
    CN_EPEER = -10,     // a peer is lost or misbehaved: continue without it
    CN_EAUTH = -11,     // the key is wrong, unknown or revoked: do not retry at once
    CN_ESTALE = -12,    // the input is of an older round, base or epoch: start over
    CN_ECONFLICT = -13, // another value was accepted for the same thing: keep that one
    CN_EDIGEST = -14,   // content does not match its digest: fetch or send it again
    CN_ETIMEOUT = -15,  // no answer or progress in time: retry with back-off
    CN_EAGAIN = -16,    // not ready yet: call again
    CN_ECANCELED = -17, // stopped on request
    CN_EDIVERGED = -18, // the loss or a gradient is not finite: the weights are unchanged
    CN_EWEDGED = -19,   // a library hangs or a state is lost: end the process; a restart recovers
    CN_EVERSION = -20,  // stored in a format that this build does not know: change nothing and stop
    CN_EBUSY = -21,     // others come first: try again in a second
} cn_err;

// Returns a short English sentence without a full stop, for example "the disk is full". Never NULL.
const char *cn_err_text(cn_err err);

// Returns the text for a call that has just failed with err. For CN_EIO, an errno that means a
// wrong permission or path has a text of its own. For all others, returns cn_err_text.
const char *cn_err_reason(cn_err err);

// Returns the error for number, the errno of a failed system call: CN_EIO when no other fits.
cn_err cn_err_from_errno(int number);
