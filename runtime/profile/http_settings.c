#include "runtime/profile/http_settings.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/words.h"

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]"

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

// 127.0.0.0/8 is loopback; a name that only begins with "127." may be anything.
static bool is_loopback_address(const char *listen)
{
    size_t length = strspn(listen, "0123456789.");
    return starts(listen, "127.") && listen[length] == ':';
}

bool cn_http_settings_local(const char *listen)
{
    return starts(listen, "unix:") || starts(listen, "localhost:") || starts(listen, "[::1]:") ||
           is_loopback_address(listen);
}

bool cn_http_settings_mistake(const struct cn_http_settings *http, const char **key,
                              char text[CN_HTTP_MISTAKE])
{
    const char *names = http->names;
    char name[CN_WORDS_SIZE];
    if (http->listen[0] && !http->token_file[0] && !cn_http_settings_local(http->listen)) {
        *key = "http.listen";
        snprintf(text, CN_HTTP_MISTAKE,
                 "http.listen: '%s' is reached from other machines; expected http.token_file, too, "
                 "or a loopback address or unix:PATH",
                 http->listen);
        return true;
    }
    while (cn_words_next(&names, name, sizeof(name))) {
        if (name[strspn(name, NAME_LETTERS)] == '\0')
            continue;
        *key = "http.names";
        snprintf(text, CN_HTTP_MISTAKE,
                 "http.names: '%s' is no name of a host; expected NAME or NAME:PORT", name);
        return true;
    }
    return false;
}
