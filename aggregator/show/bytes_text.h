// bytes_text.h - a number of bytes for people: "12.3 kB".
#pragma once

#include <stdint.h>

#define CN_BYTES_TEXT_SIZE 24

void cn_bytes_text(uint64_t bytes, char text[CN_BYTES_TEXT_SIZE]);
