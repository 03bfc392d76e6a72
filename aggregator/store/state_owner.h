// state_owner.h - lets a command of root use a state directory as the user who owns it.
//
// The state directory of a service belongs to the service's user, who can put a link in place of
// any file there, and another one in the next moment. Root would follow it. So a command of root
// takes the user and the groups of the owner before it touches anything in the directory. What the
// operator names elsewhere is read and written with root's rights, between leave and return.
//
// The directory may lie in one that its owner cannot enter, as /var/lib/private of systemd. Then
// it is reached by a descriptor, and has another path in this process. Threading: the ids are those
// of the whole process; call these functions while it has one thread.
#pragma once

#include "runtime/base/error.h"
#include "runtime/profile/profile.h"

#include <sys/types.h>

// Takes the rights of the owner of a state directory, and sets path to the one under which it is
// reached. Does nothing if this process does not have root's rights at the time, or if the
// directory belongs to root or does not exist. Returns CN_ECONFLICT when the rights of another
// owner were taken before, CN_EAUTH when they cannot be taken, or the error of opening it.
cn_err cn_state_owner_take(const char *state, char path[CN_PATH_SIZE]);

// Gives up root's rights for good if those of an owner were taken.
void cn_state_owner_stay(void);

// Takes root's rights back, if those of an owner were taken for a while, until the return that
// belongs to this leave. Both end the program when the system refuses that, which it does not.
void cn_state_owner_leave(void);
void cn_state_owner_return(void);

// Writes the path that people know for one below a state directory.
void cn_state_owner_name(const char *path, char name[CN_PATH_SIZE]);

// Returns the user who called the command.
uid_t cn_state_owner_caller(void);
