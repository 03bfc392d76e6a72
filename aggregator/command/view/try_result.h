// try_result.h - prints the result of a trial.
#pragma once

#include "aggregator/daemon/setup.h"

// Returns why the run of an open setup is over, or NULL when it is not.
const char *cn_try_result_end(const struct cn_setup *setup);

// Prints which loss the job has, and by what the best version is chosen.
void cn_try_result_describe(const struct cn_job *job);

// Prints rounds, score, bytes and digest of the newest version, and the best one: a table and a
// line, or one JSON object. Prints what is wrong. Returns the exit code.
int cn_try_result_print(const struct cn_setup *setup, const char *folder, bool json);
