// rauc_conf.h - reads what a bundle must fit from a system's /etc/rauc/system.conf.
//
// The format is that of GLib's key files, as RAUC reads them. Any input has a defined result.
// Threading: none; pure.
#pragma once

#include <stdbool.h>

struct cn_rauc_conf {
    char compatible[64]; // what the board calls itself; "": missing or not usable
    char keyring[256];   // path of the certificates that it trusts; "": missing or relative
};

void cn_rauc_conf_read(const char *text, struct cn_rauc_conf *conf);

// Tells whether text can stand in a manifest as it is: 1 to 63 letters, digits and "+-._~".
bool cn_rauc_conf_is_word(const char *text);
