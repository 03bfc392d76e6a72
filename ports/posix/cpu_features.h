// cpu_features.h - which hash and CRC instructions this processor has. Private to the port.
//
// Threading: any.
#pragma once

#define CN_CPU_ASKED 1u // set in every answer, to tell a cached one from none
#define CN_CPU_SHA 2u   // instructions for SHA-256
#define CN_CPU_CRC 4u   // instructions for CRC-32C

// Returns the CN_CPU_ bits of this processor. With CAIRN_CPU_PLAIN in the environment only
// CN_CPU_ASKED is set, so that tests reach the portable code.
unsigned cn_cpu_features(void);
