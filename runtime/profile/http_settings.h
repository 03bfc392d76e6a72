// http_settings.h - checks the keys of http that depend on each other.
#pragma once

#include "runtime/profile/profile.h"

#define CN_HTTP_MISTAKE (CN_PATH_SIZE + 160)

// Returns true for an address that only programs of this machine reach: loopback or "unix:PATH".
bool cn_http_settings_local(const char *listen);

// Looks for a mistake. Returns true with the key and a sentence when there is one.
bool cn_http_settings_mistake(const struct cn_http_settings *http, const char **key,
                              char text[CN_HTTP_MISTAKE]);
