// update_report.h - reads what cairn-update reports of the systems of this board.
//
// The file is a line "SLOT VERSION RESULT:VERSION", described in boards/update/README.md. It is
// absent on boards with one system. Any content has a defined result. Threading: none.
#pragma once

#include <stdbool.h>

#include "runtime/port/link.h"

#define CN_UPDATE_REPORT_FILE "/run/cairn-update/report"
#define CN_UPDATE_REPORT_SIZE 192 // longest line, with its terminating NUL

// Decodes a line into slot, slot_version, update and update_version. What is not well formed leaves
// all four empty. "unknown" and "none" become "".
void cn_update_report_decode(const char *line, struct cn_inventory *inventory);

// Reads the line below sysroot; "" when there is none.
void cn_update_report_read(const char *sysroot, char line[CN_UPDATE_REPORT_SIZE]);
