// rules_text.h - the rules of a job as a text for a digest, so that runs with other rules differ.
#pragma once

#include "runtime/profile/job.h"

#define CN_RULES_TEXT_SIZE 1024

// Writes the rules to text; "" when all are the defaults, so that runs from before rules existed
// keep their digest. Doubles are written exactly.
void cn_rules_text(const struct cn_rules *rules, char text[CN_RULES_TEXT_SIZE]);
