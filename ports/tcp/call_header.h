// call_header.h - what a collective call says first, so that calls that differ are found out, in
// words. PROTOCOL.md has the layout.
#pragma once

#include <stdint.h>

#define CN_CALL_HEADER_SIZE 24
#define CN_CALL_DESCRIPTION_SIZE 160

// "call 7 of set 0: all-reduce of 64 float32, fingerprint 1a2b"; of a foreign one whatever it says.
void cn_call_header_describe(const uint8_t header[CN_CALL_HEADER_SIZE],
                             char text[CN_CALL_DESCRIPTION_SIZE]);
