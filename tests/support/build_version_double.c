// The version that libraries see in tests, so that a commit does not link them all again.
#include "runtime/base/build_version.h"

const char cn_build_version[] = "0.0.0+test";
