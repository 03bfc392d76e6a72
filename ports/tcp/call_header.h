// call_header.h - the header that each collective call sends first, described in words for the log.
//
// Members compare these headers, so that calls that differ are found before data moves. PROTOCOL.md
// has the layout. Threading: any.
#pragma once

#include <stdint.h>

#define CN_CALL_HEADER_SIZE 24
#define CN_CALL_DESCRIPTION_SIZE 160

// Describes a header, for example "call 7 of set 0: all-reduce of 64 float32 (reduction 0, root 0,
// fingerprint 1a2b)". A header with unknown values is described too.
void cn_call_header_describe(const uint8_t header[CN_CALL_HEADER_SIZE],
                             char text[CN_CALL_DESCRIPTION_SIZE]);
