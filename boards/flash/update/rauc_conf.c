#include "boards/flash/update/rauc_conf.h"

#include <stdio.h>
#include <string.h>

#define BLANKS " \t\r"

bool cn_rauc_conf_is_word(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789+-._~";
    size_t length = strspn(text, allowed);

    return length >= 1 && length <= 63 && text[length] == '\0' && text[0] != '-';
}

// Returns the value of a line "key = value", without the blanks around it, or NULL.
static char *find_value(char *line, const char *key)
{
    size_t length = strlen(key);
    char *value, *end;

    if (strncmp(line, key, length) != 0)
        return NULL;
    value = line + length + strspn(line + length, BLANKS);
    if (*value != '=')
        return NULL;
    value++;
    value += strspn(value, BLANKS);
    for (end = value + strlen(value); end > value && strchr(BLANKS, end[-1]); end--)
        end[-1] = '\0';
    return value;
}

static void read_line(char *line, char section[32], struct cn_rauc_conf *conf)
{
    const char *value;

    line += strspn(line, BLANKS);
    if (*line == '[') {
        snprintf(section, 32, "%.*s", (int)strcspn(line + 1, "]"), line + 1);
    } else if (strcmp(section, "system") == 0) {
        value = find_value(line, "compatible");
        if (value)
            snprintf(conf->compatible, sizeof(conf->compatible), "%s",
                     cn_rauc_conf_is_word(value) ? value : "");
    } else if (strcmp(section, "keyring") == 0) {
        value = find_value(line, "path");
        if (value)
            snprintf(conf->keyring, sizeof(conf->keyring), "%s",
                     value[0] == '/' && strlen(value) < sizeof(conf->keyring) &&
                             !strpbrk(value, " \"\\?")
                         ? value
                         : "");
    }
}

void cn_rauc_conf_read(const char *text, struct cn_rauc_conf *conf)
{
    char line[512], section[32] = "";

    *conf = (struct cn_rauc_conf){0};
    while (*text) {
        size_t length = strcspn(text, "\n");

        if (length < sizeof(line)) { // longer ones are none of the two
            memcpy(line, text, length);
            line[length] = '\0';
            read_line(line, section, conf);
        }
        text += length + (text[length] == '\n');
    }
}
