// rules_text.h - the rules of a job as a text, so that a digest tells runs of different ones apart.
#pragma once

#include "runtime/profile/job.h"

#define CN_RULES_TEXT_SIZE 1024

// "" where all are the defaults: a run that began before there were rules goes on. Doubles are
// exact.
void cn_rules_text(const struct cn_rules *rules, char text[CN_RULES_TEXT_SIZE]);
