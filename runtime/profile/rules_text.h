// rules_text.h - the rules of a job as a text, so that a digest distinguishes runs by their rules.
#pragma once

#include "runtime/profile/job.h"

#define CN_RULES_TEXT_SIZE 1024

// Writes the rules; "" when all are the defaults, so that runs from before rules existed keep their
// digest. Doubles are exact.
void cn_rules_text(const struct cn_rules *rules, char text[CN_RULES_TEXT_SIZE]);
