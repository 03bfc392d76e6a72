#include "runtime/profile/http_settings.h"

#include <string.h>

#include "runtime/base/unix_path.h"
#include "runtime/base/words.h"
#include "runtime/profile/profile_private.h"

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
    return cn_unix_path(listen) || starts(listen, "localhost:") || starts(listen, "[::1]:") ||
           is_loopback_address(listen);
}

void cn_profile_check_http(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_http_settings *http = &profile->settings.http;
    const char *names = http->names;
    char name[CN_WORDS_SIZE];
    if (http->listen[0] && !http->token_file[0] && !cn_http_settings_local(http->listen))
        cn_diagnostics_error(report, cn_profile_place(profile, "http.listen", report),
                             "http.listen: '%s' is reached from other machines; expected "
                             "http.token_file, too, or a loopback address or unix:PATH",
                             http->listen);
    while (cn_words_next(&names, name, sizeof(name)))
        if (name[strspn(name, NAME_LETTERS)] != '\0')
            cn_diagnostics_error(
                report, cn_profile_place(profile, "http.names", report),
                "http.names: '%s' is no name of a host; expected NAME or NAME:PORT", name);
}
