// event_file.h - events as lines of JSON in the state directory, for other programs.
//
// "events.jsonl" has the newest. At 16 MiB it becomes "events.jsonl.1", that one ".2", and so on;
// three such files are kept. Nothing is synced to disk: events inform only. Threading: none.
#pragma once

#include <limits.h>
#include <stdio.h>

#include "aggregator/show/events.h"
#include "runtime/base/log_limit.h"

#define CN_EVENT_FILE "events.jsonl"
#define CN_EVENT_FILE_MAX (16u << 20) // bytes
#define CN_EVENT_FILES_KEPT 3         // older files

struct cn_event_file { // zero it before use
    char path[PATH_MAX];
    FILE *stream;              // NULL: the file cannot be written now
    uint64_t size;             // bytes
    uint64_t size_max;         // bytes; 0: CN_EVENT_FILE_MAX
    struct cn_log_limit lines; // limits lines about the file
};

// Opens the file in directory. Puts the newest of its events into events, so that sequence numbers
// go on and readers see what happened before a restart. If it has none, those of the newest older
// file are taken. A file that cannot be opened is logged.
void cn_event_file_open(struct cn_event_file *file, const char *directory,
                        struct cn_events *events);
void cn_event_file_close(struct cn_event_file *file);

// Writes one event. A failure is logged; then the event is only in memory.
void cn_event_file_add(struct cn_event_file *file, const struct cn_event *event, uint64_t now_ms);

// Reads a line of the file. Returns false when it is no event.
bool cn_event_file_parse(const char *line, size_t size, struct cn_event *event);
