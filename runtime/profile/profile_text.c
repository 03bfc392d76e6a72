// Prints values as text, for files and messages.
#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "runtime/profile/profile_value.h"

const struct cn_unit *cn_value_units(enum cn_value_type type)
{
    switch (type) {
    case CN_VALUE_SIZE:
        return cn_units_size;
    case CN_VALUE_DURATION:
        return cn_units_time;
    case CN_VALUE_POWER:
        return cn_units_power;
    case CN_VALUE_HEAT:
        return cn_units_heat;
    case CN_VALUE_RATE:
        return cn_units_rate;
    default:
        return cn_units_none;
    }
}

static const char *noun_of(enum cn_value_type type)
{
    static const char *const nouns[] = {
        [CN_VALUE_LINK] = "a path",
        [CN_VALUE_NAME] = "a name of 1 to 63 characters a-z 0-9 . _ -",
        [CN_VALUE_PATH] = "a path",
        [CN_VALUE_LISTEN] = "host:port",
        [CN_VALUE_HTTP] = "host:port or unix:PATH",
        [CN_VALUE_CHOICE] = "one of",
        [CN_VALUE_BOOL] = "true or false",
        [CN_VALUE_COUNT] = "a whole number",
        [CN_VALUE_LONG] = "a whole number",
        [CN_VALUE_NUMBER] = "a number",
        [CN_VALUE_SHARE] = "a share",
        [CN_VALUE_SIZE] = "a size",
        [CN_VALUE_DURATION] = "a time",
        [CN_VALUE_POWER] = "a power",
        [CN_VALUE_HEAT] = "a temperature",
        [CN_VALUE_RATE] = "a rate",
        [CN_VALUE_ADDRESSES] = "host:port or a list of up to 4",
        [CN_VALUE_LISTENS] = "host:port or a list of up to 4",
        [CN_VALUE_MEMBERS] = "a map of up to 16 'name: host:port'",
        [CN_VALUE_RULE] = "a rule",
        [CN_VALUE_WORDS] = "one or a list, together below 128 characters",
        [CN_VALUE_SETS] = "a map of up to 8 'name: RULE' or 'name: [BOARD, ...]'",
        [CN_VALUE_PHASES] = "a map of 'name: FIRST ROUND'",
        [CN_VALUE_DATA] = "a map of up to 8 'name: {inputs: FILE, labels: FILE}'",
    };

    return nouns[type];
}

static bool is_list_of_numbers(const struct cn_schema_row *row)
{
    return row->type == CN_VALUE_WORDS && row->max > 0;
}

static bool is_numeric(const struct cn_schema_row *row)
{
    return (row->type >= CN_VALUE_COUNT && row->type <= CN_VALUE_RATE) || is_list_of_numbers(row);
}

// Writes 1e-09 as 1e-9, and 1e+09 as 1e9.
static void shorten_exponent(char *text)
{
    char *exponent = strchr(text, 'e');
    size_t skipped;

    if (!exponent)
        return;
    exponent += exponent[1] == '-' ? 2 : 1;
    skipped = strspn(exponent, "+0");
    memmove(exponent, exponent + skipped, strlen(exponent + skipped) + 1);
}

static void print_limit(char text[CN_QUANTITY_SIZE], enum cn_value_type type, double value)
{
    if (type == CN_VALUE_NUMBER || type == CN_VALUE_WORDS) {
        cn_number_print(text, value);
        shorten_exponent(text);
    } else if (type == CN_VALUE_SHARE) {
        cn_share_print(text, value);
    } else {
        cn_quantity_print(text, cn_value_units(type), (uint64_t)value);
    }
}

static void append(char wanted[CN_WANTED_SIZE], const char *before, const char *text)
{
    size_t length = strlen(wanted);

    snprintf(wanted + length, CN_WANTED_SIZE - length, "%s%s", before, text);
}

const char *cn_value_wanted(char wanted[CN_WANTED_SIZE], const struct cn_schema_row *row)
{
    const struct cn_unit *units = cn_value_units(row->type);
    char text[CN_QUANTITY_SIZE];
    bool named;

    wanted[0] = '\0';
    append(wanted, "", is_list_of_numbers(row) ? "a number or a list of them" : noun_of(row->type));
    for (size_t i = 0; row->choices && row->choices[i]; i++)
        append(wanted, i ? ", " : " ", row->choices[i]);
    if (!is_numeric(row))
        return wanted;
    print_limit(text, row->type, row->min);
    named = row->zero && strcmp(row->zero, text) != 0; // else it is in the range
    append(wanted, " from ", text);
    print_limit(text, row->type, row->max);
    append(wanted, " to ", text);
    if (units != cn_units_none) {
        for (size_t i = 0; units[i].name; i++)
            append(wanted, i ? ", " : " (", units[i].name);
        append(wanted, ")", "");
    }
    if (named)
        append(wanted, ", or ", row->zero);
    return wanted;
}

bool cn_value_is_special(const char *text)
{
    static const char *const words[] = {"~",  "null", "true", "false", "yes",
                                        "no", "on",   "off",  "y",     "n"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    return false;
}

uint64_t cn_value_integer(const struct cn_schema_row *row, const struct cn_settings *settings)
{
    const void *from = (const char *)settings + row->offset;

    return row->type == CN_VALUE_COUNT ? *(const uint32_t *)from : *(const uint64_t *)from;
}

void cn_value_print_text(const char *text, FILE *stream)
{
    size_t length = strlen(text);

    if (isalnum((unsigned char)text[0]) && !cn_value_is_special(text) &&
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") ==
            length) {
        fputs(text, stream);
        return;
    }
    fputc('"', stream);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', stream);
        fputc(*text, stream);
    }
    fputc('"', stream);
}

static void print_path(const char *path, FILE *stream)
{
    char directory[CN_PATH_SIZE], absolute[2 * CN_PATH_SIZE];

    if (path[0] == '/' || !getcwd(directory, sizeof(directory)))
        directory[0] = '\0';
    snprintf(absolute, sizeof(absolute), "%s%s%s", directory, directory[0] ? "/" : "", path);
    cn_value_print_text(absolute, stream);
}

static void print_addresses(const char addresses[CN_LINK_ADDRESSES][CN_ADDRESS_SIZE],
                            uint32_t count, FILE *stream)
{
    fputc('[', stream);
    for (uint32_t i = 0; i < count; i++) {
        fputs(i ? ", " : "", stream);
        cn_value_print_text(addresses[i], stream);
    }
    fputc(']', stream);
}

static void print_members(const struct cn_group_settings *group, FILE *stream)
{
    fputc('{', stream);
    for (uint32_t i = 0; i < group->member_count; i++) {
        fputs(i ? ", " : "", stream);
        cn_value_print_text(group->members[i].name, stream);
        fputs(": ", stream);
        cn_value_print_text(group->members[i].address, stream);
    }
    fputc('}', stream);
}

static void print_inputs(const struct cn_data_paths *paths, FILE *stream)
{
    if (!paths->file_count) {
        print_path(paths->inputs, stream);
        return;
    }
    fputc('{', stream);
    for (uint32_t i = 0; i < paths->file_count; i++) {
        fputs(i ? ", " : "", stream);
        cn_value_print_text(paths->files[i].name, stream);
        fputs(": ", stream);
        print_path(paths->files[i].path, stream);
    }
    fputc('}', stream);
}

static void print_data(const struct cn_settings *settings, FILE *stream)
{
    fputc('{', stream);
    for (uint32_t i = 0; i < settings->data_count; i++) {
        fputs(i ? ", " : "", stream);
        cn_value_print_text(settings->data[i].name, stream);
        fputs(": {inputs: ", stream);
        print_inputs(&settings->data[i], stream);
        if (settings->data[i].labels[0]) {
            fputs(", labels: ", stream);
            print_path(settings->data[i].labels, stream);
        }
        if (settings->data[i].held_out[0]) {
            fputs(", held_out: ", stream);
            cn_value_print_text(settings->data[i].held_out, stream);
        }
        fputc('}', stream);
    }
    fputc('}', stream);
}

static void print_words(const char *words, const char *none, FILE *stream)
{
    if (!*words) {
        fputs(none, stream);
        return;
    }
    fputc('[', stream);
    while (*words) {
        char word[CN_WORDS_SIZE];
        size_t length = strcspn(words, " ");

        snprintf(word, sizeof(word), "%.*s", (int)length, words);
        if (strspn(word, "0123456789.-") == length)
            fputs(word, stream);
        else
            cn_value_print_text(word, stream);
        words += length;
        words += strspn(words, " ");
        fputs(*words ? ", " : "", stream);
    }
    fputc(']', stream);
}

// Prints the text "name: rule; name: [board-1 board-2]" as a YAML map.
static void print_sets(const char *sets, FILE *stream)
{
    fputc('{', stream);
    while (*sets) {
        size_t length = strcspn(sets, ";"), name = strcspn(sets, ":");
        char rule[CN_SETS_SIZE];

        snprintf(rule, sizeof(rule), "%.*s", (int)(length - name - 2), sets + name + 2);
        fprintf(stream, "%.*s: ", (int)name, sets);
        if (rule[0] == '[') {
            rule[strlen(rule) - 1] = '\0';
            print_words(rule + 1, "", stream);
        } else {
            cn_value_print_text(rule, stream);
        }
        sets += length;
        sets += strspn(sets, "; ");
        fputs(*sets ? ", " : "", stream);
    }
    fputc('}', stream);
}

// Prints the text "name=1 name=8" as a YAML map.
static void print_phases(const char *phases, FILE *stream)
{
    fputc('{', stream);
    for (; *phases; phases++) {
        if (*phases == '=')
            fputs(": ", stream);
        else if (*phases == ' ')
            fputs(", ", stream);
        else
            fputc(*phases, stream);
    }
    fputc('}', stream);
}

static void print_number(const struct cn_schema_row *row, const struct cn_settings *settings,
                         FILE *stream)
{
    bool real = row->type == CN_VALUE_NUMBER || row->type == CN_VALUE_SHARE;
    double number = 0.0;
    uint64_t whole = 0;
    char text[CN_QUANTITY_SIZE];

    if (real)
        number = *(const double *)((const char *)settings + row->offset);
    else
        whole = cn_value_integer(row, settings);
    if (row->zero && number == 0.0 && whole == 0)
        snprintf(text, sizeof(text), "%s", row->zero);
    else if (row->type == CN_VALUE_NUMBER)
        cn_number_print(text, number);
    else if (row->type == CN_VALUE_SHARE)
        cn_share_print(text, number);
    else
        cn_quantity_print(text, cn_value_units(row->type), whole);
    fputs(text, stream);
}

void cn_value_print(const struct cn_schema_row *row, const struct cn_settings *settings,
                    FILE *stream)
{
    const void *from = (const char *)settings + row->offset;

    switch (row->type) {
    case CN_VALUE_LINK:
        break;
    case CN_VALUE_NAME:
    case CN_VALUE_LISTEN:
    case CN_VALUE_HTTP:
        cn_value_print_text(from, stream);
        break;
    case CN_VALUE_PATH:
        print_path(from, stream);
        break;
    case CN_VALUE_CHOICE:
        fputs(row->choices[*(const int *)from], stream);
        break;
    case CN_VALUE_BOOL:
        fputs(*(const bool *)from ? "true" : "false", stream);
        break;
    case CN_VALUE_ADDRESSES:
        print_addresses(settings->addresses, settings->address_count, stream);
        break;
    case CN_VALUE_LISTENS:
        print_addresses(settings->gateway.listen, settings->gateway.listen_count, stream);
        break;
    case CN_VALUE_MEMBERS:
        print_members(&settings->group, stream);
        break;
    case CN_VALUE_DATA:
        print_data(settings, stream);
        break;
    case CN_VALUE_SETS:
        print_sets(from, stream);
        break;
    case CN_VALUE_PHASES:
        print_phases(from, stream);
        break;
    case CN_VALUE_RULE:
        cn_value_print_text(*(const char *)from ? from : row->zero, stream);
        break;
    case CN_VALUE_WORDS:
        print_words(from, row->zero, stream);
        break;
    default:
        print_number(row, settings, stream);
        break;
    }
}
