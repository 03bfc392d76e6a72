// http_listen.h - opens the socket of the HTTP server.
#pragma once

#include "runtime/base/error.h"

// Listens at "host:port" or at "unix:PATH", which gets mode 0660. A socket file that a killed
// program left is replaced. Returns CN_EEXIST when another program listens there, CN_ERANGE when
// PATH is too long, and the errors of cn_address_resolve and of the system. Logs an error with the
// address.
cn_err cn_http_listen(const char *listen, int *descriptor);

// Removes the file of "unix:PATH"; does nothing for "host:port".
void cn_http_unlisten(const char *listen);
