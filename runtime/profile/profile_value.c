#include "runtime/profile/profile_value.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/unix_path.h"
#include "runtime/profile/notation/quantity.h"
#include "runtime/profile/notation/set_rules.h"
#include "runtime/profile/profile_value_private.h"

_Static_assert(sizeof(enum cn_device) == sizeof(int), "choices are stored through an int");

bool cn_value_reject(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                     const char *problem)
{
    char quoted[CN_QUOTE_SIZE], wanted[CN_WANTED_SIZE];
    const char *found = node->type == CN_YAML_MAP ? "a map" : "a list";

    if (node->type == CN_YAML_SCALAR)
        found = node->text[0] ? cn_quote(quoted, node->text) : "nothing";
    cn_diagnostics_error(reading->report, node->mark, "%s: %s%s%s; expected %s", reading->key,
                         found, problem[0] ? " " : "", problem,
                         cn_value_wanted(wanted, reading->row));
    return false;
}

// Returns true for a scalar that can be read as text. Reports any other node.
static bool is_text(const struct cn_value_reading *reading, const struct cn_yaml_node *node)
{
    if (node->bad)
        return false;
    if (node->type != CN_YAML_SCALAR || !node->text[0])
        return cn_value_reject(reading, node, "");
    if (node->plain && cn_value_is_special(node->text))
        return cn_value_reject(reading, node, "must be quoted if it is meant as text");
    return true;
}

bool cn_value_read_name(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                        char *to)
{
    if (!is_text(reading, node))
        return false;
    if (!cn_name_valid(node->text))
        return cn_value_reject(reading, node, "is not a valid name");
    snprintf(to, CN_NAME_SIZE, "%s", node->text);
    return true;
}

bool cn_value_read_path(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                        char *to)
{
    const char *directory = reading->directory;
    int length;

    if (!is_text(reading, node))
        return false;
    if (node->text[0] == '/' || strcmp(directory, ".") == 0)
        length = snprintf(to, CN_PATH_SIZE, "%s", node->text);
    else
        length = snprintf(to, CN_PATH_SIZE, "%s/%s", directory, node->text);
    if (length < CN_PATH_SIZE)
        return true;
    to[0] = '\0';
    return cn_value_reject(reading, node, "is too long");
}

// Returns the length of the host in "host:port", 0 if the text cannot be one.
static size_t host_length(const char *address)
{
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    size_t length;

    if (address[0] == '[') {
        length = 1 + strspn(address + 1, "0123456789abcdefABCDEF:.");
        if (length > 2 && address[length] == '%') // the zone of a link-local address
            length += 1 + strspn(address + length + 1, name);
        return length > 2 && address[length] == ']' ? length + 1 : 0;
    }
    return strspn(address, name);
}

uint32_t cn_value_port(const char *address, size_t *length)
{
    *length = host_length(address);
    return (uint32_t)strtoul(address + *length + 1, NULL, 10);
}

static bool is_any_host(const char *address)
{
    return strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0;
}

static bool read_address(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                         bool listen, char *to)
{
    uint64_t port = 0;
    size_t length;

    if (!is_text(reading, node))
        return false;
    length = host_length(node->text);
    if (length == 0 || node->text[length] != ':' || strlen(node->text) >= CN_ADDRESS_SIZE)
        return cn_value_reject(reading, node, "is not an address");
    if (cn_quantity_parse(node->text + length + 1, cn_units_none, &port) || port < 1 ||
        port > 65535)
        return cn_value_reject(reading, node, "has a port outside 1 to 65535");
    if (!listen && is_any_host(node->text))
        return cn_value_reject(reading, node, "is no address to connect to");
    snprintf(to, CN_ADDRESS_SIZE, "%s", node->text);
    return true;
}

#define UNIX_PATH_MAX 107 // bytes, as unix(7) has it

// Reads "host:port" or "unix:PATH"; the path is relative to the directory of the file.
static bool read_http(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                      char *to)
{
    struct cn_yaml_node path;
    char full[CN_PATH_SIZE];

    if (!is_text(reading, node))
        return false;
    if (!cn_unix_path(node->text))
        return read_address(reading, node, true, to);
    path = *node;
    path.text += strlen(CN_UNIX_PREFIX);
    if (!path.text[0])
        return cn_value_reject(reading, node, "has no path");
    if (!cn_value_read_path(reading, &path, full))
        return false;
    if (strlen(full) > UNIX_PATH_MAX)
        return cn_value_reject(reading, node, "has a path of more than 107 bytes");
    snprintf(to, CN_PATH_SIZE, CN_UNIX_PREFIX "%.*s", UNIX_PATH_MAX, full);
    return true;
}

static bool read_addresses(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                           bool listen, char to[CN_LINK_ADDRESSES][CN_ADDRESS_SIZE],
                           uint32_t *count)
{
    const struct cn_yaml_node *item = node->type == CN_YAML_LIST ? node->first : node;
    bool good = true;

    *count = 0;
    if (node->type == CN_YAML_LIST && (node->count == 0 || node->count > CN_LINK_ADDRESSES))
        return cn_value_reject(reading, node, node->count ? "is too long" : "is empty");
    for (; item; item = node->type == CN_YAML_LIST ? item->next : NULL) {
        if (!read_address(reading, item, listen, to[*count])) {
            good = false;
            continue;
        }
        for (uint32_t i = 0; i < *count; i++)
            if (strcmp(to[i], to[*count]) == 0)
                good = cn_value_reject(reading, item, "is there twice");
        (*count)++;
    }
    return good;
}

bool cn_value_check_entry_name(const struct cn_value_reading *reading,
                               const struct cn_yaml_node *entry)
{
    char quoted[CN_QUOTE_SIZE];

    if (cn_name_valid(entry->key))
        return true;
    cn_diagnostics_error(reading->report, entry->key_mark,
                         "%s: %s is not a valid name; expected 1 to 63 characters a-z 0-9 . _ -",
                         reading->key, cn_quote(quoted, entry->key));
    return false;
}

bool cn_value_check_map(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                        size_t limit)
{
    if (node->bad)
        return false;
    if (node->type != CN_YAML_MAP)
        return cn_value_reject(reading, node, "");
    if (node->count == 0 || node->count > limit)
        return cn_value_reject(reading, node,
                               node->count ? "with too many entries" : "without entries");
    return true;
}

static int compare_members(const void *a, const void *b)
{
    return strcmp(((const struct cn_member *)a)->name, ((const struct cn_member *)b)->name);
}

static bool read_members(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                         struct cn_group_settings *group)
{
    bool good = true;

    group->member_count = 0;
    if (!cn_value_check_map(reading, node, CN_GROUP_MAX))
        return false;
    for (const struct cn_yaml_node *entry = node->first; entry; entry = entry->next) {
        struct cn_member *member = &group->members[group->member_count];

        memset(member, 0, sizeof(*member));
        if (!cn_value_check_entry_name(reading, entry) ||
            !read_address(reading, entry, false, member->address)) {
            good = false;
            continue;
        }
        snprintf(member->name, sizeof(member->name), "%s", entry->key);
        group->member_count++;
    }
    qsort(group->members, group->member_count, sizeof(group->members[0]), compare_members);
    return good;
}

static bool read_choice(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                        int *to)
{
    for (int i = 0; reading->row->choices[i]; i++)
        if (strcmp(node->text, reading->row->choices[i]) == 0) {
            *to = i;
            return true;
        }
    return cn_value_reject(reading, node, "");
}

static bool read_bool(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                      bool *to)
{
    *to = node->plain && strcmp(node->text, "true") == 0;
    return *to || (node->plain && strcmp(node->text, "false") == 0) ||
           cn_value_reject(reading, node, "");
}

// Reports a value that this version does not support. Returns false.
static bool reject_only(const struct cn_value_reading *reading, const struct cn_yaml_node *node)
{
    char quoted[CN_QUOTE_SIZE];

    cn_diagnostics_error(reading->report, node->mark,
                         "%s: %s: only %.0f is supported in this version", reading->key,
                         cn_quote(quoted, node->text), reading->row->max);
    return false;
}

static bool reject_number(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                          cn_err err)
{
    size_t length = strlen(node->text);

    if (err == CN_ERANGE)
        return cn_value_reject(reading, node, "is out of range");
    if (err == CN_EINVAL)
        return cn_value_reject(reading, node,
                               cn_value_units(reading->row->type) == cn_units_none
                                   ? "is not a whole number"
                                   : "is not a whole number of the smallest unit");
    if (err == CN_ENOTFOUND && isdigit((unsigned char)node->text[length - 1]) &&
        strspn(node->text, "0123456789.") == length)
        return cn_value_reject(reading, node,
                               reading->row->type == CN_VALUE_COUNT ||
                                       reading->row->type == CN_VALUE_LONG
                                   ? ""
                                   : "has no unit");
    return cn_value_reject(reading, node, "");
}

void cn_value_set_integer(const struct cn_schema_row *row, uint64_t value,
                          struct cn_settings *settings)
{
    void *to = (char *)settings + row->offset;

    if (row->type == CN_VALUE_COUNT)
        *(uint32_t *)to = (uint32_t)value;
    else
        *(uint64_t *)to = value;
}

static bool read_integer(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                         struct cn_settings *settings)
{
    const struct cn_schema_row *row = reading->row;
    uint64_t value = 0;
    cn_err err = CN_OK;

    if (strcmp(node->text, "0") != 0)
        err = cn_quantity_parse(node->text, cn_value_units(row->type), &value);
    if (err)
        return reject_number(reading, node, err);
    if (value && row->min >= row->max && (double)value > row->max)
        return reject_only(reading, node);
    if ((double)value > row->max ||
        ((double)value < row->min && (value || !row->zero || row->word_only)))
        return reject_number(reading, node, CN_ERANGE);
    cn_value_set_integer(row, value, settings);
    return true;
}

static bool read_real(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                      double *to)
{
    const struct cn_schema_row *row = reading->row;
    double value = 0.0;
    cn_err err = CN_OK;

    if (strcmp(node->text, "0") != 0)
        err = row->type == CN_VALUE_SHARE ? cn_share_parse(node->text, &value)
                                          : cn_number_parse(node->text, &value);
    if (err)
        return reject_number(reading, node, err);
    if (value > row->max || (value < row->min && !(value == 0.0 && row->zero)))
        return reject_number(reading, node, CN_ERANGE);
    *to = value;
    return true;
}

static bool read_numeric(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                         struct cn_settings *settings)
{
    enum cn_value_type type = reading->row->type;
    // Only used for CN_VALUE_NUMBER and CN_VALUE_SHARE.
    double *to = (double *)((char *)settings + reading->row->offset);
    bool real = type == CN_VALUE_NUMBER || type == CN_VALUE_SHARE;

    if (reading->row->zero && strcmp(node->text, reading->row->zero) == 0) {
        if (real)
            *to = 0.0;
        else
            cn_value_set_integer(reading->row, 0, settings);
        return true;
    }
    if (!node->plain && cn_value_units(type) == cn_units_none && type != CN_VALUE_SHARE)
        return cn_value_reject(reading, node, "is quoted and so a text");
    return real ? read_real(reading, node, to) : read_integer(reading, node, settings);
}

static bool read_plain(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                       struct cn_settings *settings)
{
    void *to = (char *)settings + reading->row->offset;

    if (node->bad)
        return false;
    if (node->type != CN_YAML_SCALAR || !node->text[0])
        return cn_value_reject(reading, node, "");
    if (reading->row->type == CN_VALUE_CHOICE)
        return read_choice(reading, node, to);
    if (reading->row->type == CN_VALUE_BOOL)
        return read_bool(reading, node, to);
    return read_numeric(reading, node, settings);
}

// Reads one word or a list of words into a text with blanks between them.
static bool read_words(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                       char *to)
{
    const struct cn_yaml_node *item = node->type == CN_YAML_LIST ? node->first : node;
    size_t length = 0;

    to[0] = '\0';
    if (node->bad || node->type == CN_YAML_MAP)
        return !node->bad && cn_value_reject(reading, node, "");
    if (node->type == CN_YAML_SCALAR && strcmp(node->text, reading->row->zero) == 0)
        return true;
    for (; item; item = node->type == CN_YAML_LIST ? item->next : NULL) {
        double number = 0;
        bool numeric = reading->row->max > 0;

        if (!numeric && !is_text(reading, item))
            return false;
        if (item->type != CN_YAML_SCALAR || !item->text[0] || strchr(item->text, ' ') ||
            (numeric && (cn_number_parse(item->text, &number) || number < reading->row->min ||
                         number > reading->row->max)))
            return cn_value_reject(reading, item, "");
        length += (size_t)snprintf(to + length, CN_WORDS_SIZE - length, "%s%s", length ? " " : "",
                                   item->text);
        if (length >= CN_WORDS_SIZE) {
            to[0] = '\0';
            return cn_value_reject(reading, node, "is too long");
        }
    }
    return true;
}

// Parses "name: rule" or "name: [boards]" to check it, and adds it to the text `to`.
static bool read_set(const struct cn_value_reading *reading, const struct cn_yaml_node *entry,
                     char *to)
{
    static struct cn_set_rules rules; // too large for a stack; one thread reads profiles
    char text[CN_SETS_SIZE], reason[CN_DIAG_LINE_SIZE];
    size_t length = (size_t)snprintf(text, sizeof(text), "%s: ", entry->key), used = strlen(to);

    if (!cn_value_check_entry_name(reading, entry) || entry->bad || entry->type == CN_YAML_MAP)
        return !entry->bad && cn_value_reject(reading, entry, "");
    if (entry->type == CN_YAML_SCALAR)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s", entry->text);
    for (const struct cn_yaml_node *item = entry->type == CN_YAML_LIST ? entry->first : NULL;
         item && length < sizeof(text); item = item->next) {
        if (item->type != CN_YAML_SCALAR || !cn_name_valid(item->text))
            return cn_value_reject(reading, item, "is not the name of a board");
        length +=
            (size_t)snprintf(text + length, sizeof(text) - length, "%s%s%s",
                             item == entry->first ? "[" : " ", item->text, item->next ? "" : "]");
    }
    if (used + length + 3 > CN_SETS_SIZE || strchr(text, ';'))
        return cn_value_reject(reading, entry, "is too long, or has a ';'");
    rules = (struct cn_set_rules){0};
    if (cn_set_rules_add(text, reason, &rules)) {
        cn_diagnostics_error(reading->report, entry->mark, "%s: %s", reading->key, reason);
        return false;
    }
    snprintf(to + used, CN_SETS_SIZE - used, "%s%s", used ? "; " : "", text);
    return true;
}

static bool read_sets(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                      char *to)
{
    bool good = cn_value_check_map(reading, node, CN_SET_MAX);

    to[0] = '\0';
    for (const struct cn_yaml_node *entry = good ? node->first : NULL; entry; entry = entry->next)
        good &= read_set(reading, entry, to);
    return good;
}

static bool read_phases(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                        char *to)
{
    bool good = cn_value_check_map(reading, node, CN_WORDS_SIZE);
    size_t length = 0;

    to[0] = '\0';
    for (const struct cn_yaml_node *entry = good ? node->first : NULL; entry; entry = entry->next) {
        uint64_t round = 0;

        if (!cn_value_check_entry_name(reading, entry))
            return false;
        if (entry->type != CN_YAML_SCALAR ||
            cn_quantity_parse(entry->text, cn_units_none, &round) || !round || round > 1000000)
            return cn_value_reject(reading, entry, "is not a round from 1 to 1000000");
        length += (size_t)snprintf(to + length, CN_WORDS_SIZE - length, "%s%s=%" PRIu64,
                                   length ? " " : "", entry->key, round);
        if (length >= CN_WORDS_SIZE)
            return cn_value_reject(reading, node, "is too long");
    }
    return good;
}

static bool read_rule(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                      char *to)
{
    struct cn_rule rule;
    char reason[CN_DIAG_LINE_SIZE];
    const char *zero = reading->row->zero;

    if (!is_text(reading, node))
        return false;
    if (strlen(node->text) >= CN_RULE_SIZE)
        return cn_value_reject(reading, node, "is too long");
    if (strcmp(node->text, zero) != 0 && cn_rule_parse(node->text, reason, &rule))
        return cn_value_reject(reading, node, reason);
    if (strcmp(node->text, zero) != 0 && !cn_rule_is_of_gateway(&rule))
        return cn_value_reject(
            reading, node,
            "may speak of name, memory, cores, gpu, arch, battery, bytes and data.NAME");
    snprintf(to, CN_RULE_SIZE, "%s", strcmp(node->text, zero) == 0 ? "" : node->text);
    return true;
}

bool cn_value_read(struct cn_diagnostics *report, const char *directory, const char *key,
                   const struct cn_schema_row *row, const struct cn_yaml_node *node,
                   struct cn_settings *settings)
{
    const struct cn_value_reading reading = {report, directory, key, row};
    void *to = (char *)settings + row->offset;

    switch (row->type) {
    case CN_VALUE_NAME:
        return cn_value_read_name(&reading, node, to);
    case CN_VALUE_PATH:
        return cn_value_read_path(&reading, node, to);
    case CN_VALUE_LISTEN:
        return read_address(&reading, node, true, to);
    case CN_VALUE_HTTP:
        return read_http(&reading, node, to);
    case CN_VALUE_ADDRESSES:
        return read_addresses(&reading, node, false, settings->addresses, &settings->address_count);
    case CN_VALUE_LISTENS:
        return read_addresses(&reading, node, true, settings->gateway.listen,
                              &settings->gateway.listen_count);
    case CN_VALUE_MEMBERS:
        return read_members(&reading, node, &settings->group);
    case CN_VALUE_DATA:
        return cn_value_read_data(&reading, node, settings);
    case CN_VALUE_SETS:
        return read_sets(&reading, node, to);
    case CN_VALUE_PHASES:
        return read_phases(&reading, node, to);
    case CN_VALUE_RULE:
        return read_rule(&reading, node, to);
    case CN_VALUE_WORDS:
        return read_words(&reading, node, to);
    default:
        return read_plain(&reading, node, settings);
    }
}

void cn_value_reset(const struct cn_schema_row *row, struct cn_settings *settings)
{
    struct cn_diagnostics report = {NULL, "", 0};
    struct cn_yaml_node node = {.plain = true, .text = (char *)row->initial};

    if (row->type == CN_VALUE_NAME)
        memset((char *)settings + row->offset, 0, CN_NAME_SIZE);
    if (row->type == CN_VALUE_PATH)
        memset((char *)settings + row->offset, 0, CN_PATH_SIZE);
    if (row->type == CN_VALUE_SETS)
        memset((char *)settings + row->offset, 0, CN_SETS_SIZE);
    if (row->type == CN_VALUE_PHASES)
        memset((char *)settings + row->offset, 0, CN_WORDS_SIZE);
    if (row->initial)
        (void)cn_value_read(&report, ".", row->path, row, &node, settings);
}
