// cpu_features.h - what this processor has. Private to the port. Threading: any.
#pragma once

#define CN_CPU_ASKED 1u // set in every answer
#define CN_CPU_SHA 2u   // SHA-256
#define CN_CPU_CRC 4u   // CRC-32C

// With CAIRN_CPU_PLAIN in the environment nothing, so that tests reach the other code.
unsigned cn_cpu_features(void);
