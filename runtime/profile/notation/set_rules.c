#include "runtime/profile/notation/set_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cn_err complain(char reason[CN_DIAG_LINE_SIZE], const char *name, const char *what)
{
    snprintf(reason, CN_DIAG_LINE_SIZE, "set '%.63s': %.180s", name, what);
    return CN_EINVAL;
}

// Parses "[board-1 board-2]".
static cn_err take_list(const char *text, char reason[CN_DIAG_LINE_SIZE], struct cn_set_rule *rule)
{
    const char *at = text + 1;

    for (;;) {
        size_t length;

        at += strspn(at, " ");
        length = strcspn(at, " ]");
        if (!length)
            break;
        if (rule->listed_count == CN_GROUP_MAX || length >= CN_NAME_SIZE)
            return complain(reason, rule->name, "too many boards, or a name too long");
        memcpy(rule->listed[rule->listed_count], at, length);
        if (!cn_name_valid(rule->listed[rule->listed_count++]))
            return complain(reason, rule->name, "a board's name is not valid");
        at += length;
    }
    if (strcmp(at, "]") != 0 || !rule->listed_count)
        return complain(reason, rule->name, "wanted a list of boards, as in [board-1 board-2]");
    return CN_OK;
}

// Parses "name: rule" or "name: [boards]", without blanks around it.
static cn_err take_set(const char *text, char reason[CN_DIAG_LINE_SIZE], struct cn_set_rule *rule)
{
    const char *colon = strstr(text, ": ");
    char why[CN_DIAG_LINE_SIZE];

    *rule = (struct cn_set_rule){0};
    if (!colon || (size_t)(colon - text) >= CN_NAME_SIZE)
        return complain(reason, text, "wanted NAME: RULE");
    memcpy(rule->name, text, (size_t)(colon - text));
    if (!cn_name_valid(rule->name))
        return complain(reason, rule->name, "is not a valid name");
    text = colon + 2;
    text += strspn(text, " ");
    if (text[0] == '[')
        return take_list(text, reason, rule);
    if (cn_rule_parse(text, why, &rule->rule))
        return complain(reason, rule->name, why);
    return cn_rule_needs_data(&rule->rule)
               ? complain(reason, rule->name, "data.NAME is for rounds.select only")
               : CN_OK;
}

static cn_err put(const struct cn_set_rule *rule, char reason[CN_DIAG_LINE_SIZE],
                  struct cn_set_rules *rules)
{
    uint32_t i = 0;

    while (i < rules->count && strcmp(rules->rules[i].name, rule->name) != 0)
        i++;
    if (i == CN_SET_MAX)
        return complain(reason, rule->name, "too many sets");
    rules->count += i == rules->count;
    rules->rules[i] = *rule;
    return CN_OK;
}

cn_err cn_set_rules_add(const char *text, char reason[CN_DIAG_LINE_SIZE],
                        struct cn_set_rules *rules)
{
    struct cn_set_rule rule;
    char part[CN_NAME_SIZE + CN_RULE_SIZE];
    cn_err err;

    for (;;) {
        size_t length;

        text += strspn(text, "; ");
        length = strcspn(text, ";");
        if (!length)
            return CN_OK;
        if (length >= sizeof(part))
            return complain(reason, text, "is too long");
        memcpy(part, text, length);
        part[length] = '\0';
        err = take_set(part, reason, &rule);
        if (!err)
            err = put(&rule, reason, rules);
        if (err)
            return err;
        text += length;
    }
}

void cn_set_rules_text(const char *text, const char *name, char rule[CN_RULE_SIZE])
{
    size_t length = strlen(name);

    while (*text) {
        size_t size;

        text += strspn(text, "; ");
        size = strcspn(text, ";");
        if (size > length + 2 && strncmp(text, name, length) == 0 && text[length] == ':')
            snprintf(rule, CN_RULE_SIZE, "%.*s", (int)(size - length - 2), text + length + 2);
        text += size;
    }
}

const char *cn_set_names_next(const char *names, char name[CN_NAME_SIZE])
{
    size_t length = strcspn(names, " ");

    if (!length)
        return NULL;
    snprintf(name, CN_NAME_SIZE, "%.*s", (int)length, names);
    return names + length + strspn(names + length, " ");
}

const struct cn_set_rule *cn_set_rules_find(const struct cn_set_rules *rules, const char *name)
{
    for (uint32_t i = 0; i < rules->count; i++)
        if (strcmp(rules->rules[i].name, name) == 0)
            return &rules->rules[i];
    return NULL;
}

bool cn_set_rule_holds(const struct cn_set_rule *rule, const struct cn_rule_facts *facts)
{
    for (uint32_t i = 0; i < rule->listed_count; i++)
        if (strcmp(rule->listed[i], facts->name) == 0)
            return true;
    return !rule->listed_count && cn_rule_holds(&rule->rule, facts);
}

void cn_phase_of(const char *phases, uint32_t round, char phase[CN_NAME_SIZE])
{
    unsigned long newest = 0;

    phase[0] = '\0';
    while (*phases) {
        size_t length = strcspn(phases, " "), name = strcspn(phases, "= ");
        unsigned long first = name < length ? strtoul(phases + name + 1, NULL, 10) : 0;

        if (first && first <= round && first >= newest && name < CN_NAME_SIZE) {
            memcpy(phase, phases, name);
            phase[name] = '\0';
            newest = first;
        }
        phases += length;
        phases += strspn(phases, " ");
    }
}
