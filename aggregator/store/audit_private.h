// audit_private.h - what writing and checking an audit share.
#pragma once

#include <limits.h>

#include "aggregator/store/audit.h"

// Makes the path of the file (age 0), or of an older one. Returns CN_EINVAL for one that is too
// long.
cn_err cn_audit_path(const char *directory, int age, char path[PATH_MAX]);

// Writes the digest of a line, without its end of line.
void cn_audit_digest_line(const char *line, size_t size, char text[2 * CN_DIGEST_SIZE + 1]);
