// written_by.h - notes in a state directory which build of Cairn writes it.
//
// The file STATE/written_by has one line, for example "cairn-node 0.1.0+git1432.8f2c01de". A build
// that cannot read a state prints this line, and so do the packages' preinst scripts. The file only
// informs: a state without it, or with another text in it, is used all the same.
#pragma once

// Notes that this build of program writes the state from now on. A failure is logged.
void cn_written_by_note(const char *state, const char *program);

// Prints to standard error that this build cannot read a state, which build wrote it and what to
// do. state is the path of its directory in this process, and name the one that people know, which
// may differ for root. found is the format of the state, for example "ledger schema
// 9"; known says which formats this build reads.
void cn_written_by_explain(const char *state, const char *name, const char *found,
                           const char *known);
