// local_client.h - sends a line to a program of this machine and reads the line that it answers.
//
// Threading: none; the calls block.
#pragma once

#include <stdint.h>

#include "runtime/base/bytes.h"

// Sends line and an end of line. Appends the line of the answer to answer, with a 0 in place of its
// end. Returns CN_ETIMEOUT when nothing comes for timeout_ms, CN_EPEER when the other end hangs up
// before it has answered, CN_ERANGE when the answer exceeds the buffer's limit, and CN_EIO.
cn_err cn_local_ask(int descriptor, const char *line, uint32_t timeout_ms,
                    struct cn_buffer *answer);
