// http_settings.h - who can reach an address of http.listen.
#pragma once

#include <stdbool.h>

// Returns true for an address that only programs of this machine reach: loopback or "unix:PATH".
bool cn_http_settings_local(const char *listen);
