// http_settings.h - what an address of http.listen means.
#pragma once

#include <stdbool.h>

// Returns true for an address that only programs of this machine reach: loopback or "unix:PATH".
bool cn_http_settings_local(const char *listen);
