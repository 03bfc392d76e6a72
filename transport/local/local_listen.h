// local_listen.h - Unix sockets by which programs of one machine speak with each other.
//
// A socket file's path may be longer than an address has room for. So the calls below change into
// its directory for a moment. Threading: call them from the only thread.
#pragma once

#include <stddef.h>

#include "runtime/base/error.h"

// Listens at the socket file directory/name, which gets mode 0600. Replaces a socket file that is
// there: the caller holds the lock of the directory, so nobody listens at it. Returns CN_EEXIST
// when the name belongs to something that is no socket.
cn_err cn_local_listen(const char *directory, const char *name, int *descriptor);
// Removes the socket file.
void cn_local_unlisten(const char *directory, const char *name);

// Connects to directory/name. Returns CN_ENOTFOUND when nobody listens there, CN_EAUTH when this
// user may not connect.
cn_err cn_local_connect(const char *directory, const char *name, int *descriptor);

#define CN_LOCAL_NAME_SIZE 32

// A socket that the service manager has opened for this process (sd_listen_fds(3)).
struct cn_local_handed {
    int descriptor;
    char name[CN_LOCAL_NAME_SIZE]; // FileDescriptorName of its unit
};

// Takes the Unix sockets that the service manager handed over, at most `most`, and returns their
// number. Closes all others. A second call finds none.
size_t cn_local_take_handed(struct cn_local_handed *handed, size_t most);
// Closes the socket if its descriptor is not negative.
void cn_local_drop_handed(struct cn_local_handed *handed);
