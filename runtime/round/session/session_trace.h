// session_trace.h - the timeline of a session, for its files.
#pragma once

#include "runtime/round/session/session_private.h"

// Collects the times of all members in a step, and writes them if a timeline is wanted.
cn_err cn_session_trace(struct cn_session *session, const struct cn_step_times *times);

// Writes the epoch to the timeline. Call it at the end of an epoch.
void cn_session_trace_epoch(const struct cn_session *session);

// Writes what this board did since begun_us, outside of steps. Does nothing without a timeline.
void cn_session_trace_work(const struct cn_session *session, const char *name, uint64_t begun_us);
