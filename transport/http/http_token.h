// http_token.h - reads the file with the token that clients of the HTTP server must send.
#pragma once

#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/error.h"

#define CN_HTTP_TOKEN_MIN 16 // characters
#define CN_HTTP_TOKEN_MAX 256

// Reads one line of CN_HTTP_TOKEN_MIN to CN_HTTP_TOKEN_MAX visible characters without blanks, and
// sets digest to its SHA-256. Returns CN_EAUTH when the file belongs neither to root nor to the
// user of this program nor to the owner of its folder, or when others may read it, CN_EFORMAT when
// it holds something else, CN_ENOTFOUND or CN_EIO. On an error *why says what is wrong and what is
// expected; it is constant text.
cn_err cn_http_token_read(const char *path, uint8_t digest[CN_DIGEST_SIZE], const char **why);
