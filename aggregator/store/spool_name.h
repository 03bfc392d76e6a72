// spool_name.h - names of the files of uploads: accepted frames, and parts of unfinished ones.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/base/name.h"

#define CN_SPOOL_NAME_SIZE (CN_NAME_SIZE + 40)

// Makes the name of an accepted frame's file, "round-N-GROUP.update".
void cn_spool_name(uint32_t round, const char *group, char name[CN_SPOOL_NAME_SIZE]);
// Reads the name of an accepted frame's file. Returns CN_EFORMAT for any other name.
cn_err cn_spool_parse_name(const char *name, uint32_t *round, char group[CN_NAME_SIZE]);

// Makes the name of a saved part's file, "round-N-OWNER.part-K". owner is the board; in files of
// older releases, the group.
void cn_spool_part_name(uint32_t round, const char *owner, uint32_t part,
                        char name[CN_SPOOL_NAME_SIZE]);
// Reads the name of a saved part's file. Returns false for any other name, also for one of an
// accepted frame whose group has ".part-" in it.
bool cn_spool_parse_part_name(const char *name, uint32_t *round, char owner[CN_NAME_SIZE],
                              uint32_t *part);
