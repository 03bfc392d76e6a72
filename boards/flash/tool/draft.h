// draft.h - the folder OUT.part, in which an output is made: a file gets its name when it is whole.
//
// The folder has mode 0700 and is locked while a program works in it. A program that is killed
// leaves it behind; the next one that makes the same output takes it over. A file marks the folder:
// no other folder of this name is emptied.
#pragma once

#include <stdbool.h>

// The file of the folder that says what is to be taken back if the output does not get its name.
#define CN_DRAFT_DEBT "enrolment"

#define CN_DRAFT_OUT 480  // longest path of an output
#define CN_DRAFT_PATH 640 // longest path of a file in the folder, and its 0 byte

struct cn_draft {
    const char *out;               // path of the output; borrowed
    char folder[CN_DRAFT_OUT + 8]; // "": there is no folder
    int lock;                      // the open folder, locked
    bool taken_over;               // a killed program left the folder
};

// Makes the folder, or takes over that of a program that was killed. Nothing may have the output's
// name. Returns an exit code after printing the fault. Accepts a zeroed draft.
int cn_draft_open(const char *out, struct cn_draft *draft);

// Tells whether the folder has a debt: CN_DRAFT_DEBT, and no output that got its name.
bool cn_draft_owes(const struct cn_draft *draft);

// Removes the debt, durably. Accepts a draft that was never opened.
void cn_draft_settle(const struct cn_draft *draft);

// Removes what a killed program left in the folder, and the output's companion if that program got
// no further than that (cn_draft_publish). Refuses a folder with a debt, and leaves it as it is.
// Returns an exit code after printing the fault.
int cn_draft_clear(struct cn_draft *draft);

// Writes the path of a file in the folder.
void cn_draft_path(const struct cn_draft *draft, const char *name, char path[CN_DRAFT_PATH]);

// Makes a file in the folder with this text, durable on return. Returns an exit code after printing
// the fault.
int cn_draft_note(const struct cn_draft *draft, const char *name, const char *text);

// Gives a file of the folder the output's name, durably and never over another file. name is of
// small letters. companion is NULL, or an ending such as ".json", a dot and small letters: the file
// with that ending is then named first. Returns an exit code after printing the fault; the file is
// then in the folder.
int cn_draft_publish(const struct cn_draft *draft, const char *name, const char *companion);

// Ends the work in the folder, which stays for the next program.
void cn_draft_leave(struct cn_draft *draft);

// Removes the folder with all that is in it, unless it has a debt: then it stays for the next
// program. Accepts a draft that was never opened.
void cn_draft_close(struct cn_draft *draft);
