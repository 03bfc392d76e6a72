#include "runtime/profile/notation/rule.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/profile/notation/quantity.h"

#define WORD_SIZE CN_NAME_SIZE
#define DEPTH_MAX 16 // most parentheses and nots that nest

enum kind {
    KIND_CONDITION,
    KIND_AND,
    KIND_OR,
    KIND_NOT,
};

enum fact {
    FACT_NAME,
    FACT_ADDRESS,
    FACT_GPU,
    FACT_PHASE,
    FACT_MEMORY, // this fact and all later ones are numbers
    FACT_CORES,
    FACT_ARCH,
    FACT_LINK,
    FACT_BATTERY,
    FACT_BYTES,
    FACT_DATA,
    FACT_ROUND,
    FACT_STEP,
    FACT_EPOCH,
    FACT_COUNT,
};

enum relation {
    RELATION_EQUAL,
    RELATION_DIFFERENT,
    RELATION_LESS,
    RELATION_AT_MOST,
    RELATION_MORE,
    RELATION_AT_LEAST,
    RELATION_COUNT,
};

static const char *const fact_names[FACT_COUNT] = {"name",  "address", "gpu",  "phase",   "memory",
                                                   "cores", "arch",    "link", "battery", "bytes",
                                                   "data",  "round",   "step", "epoch"};
static const char *const relation_names[RELATION_COUNT] = {"==", "!=", "<", "<=", ">", ">="};

struct parser {
    const char *at;
    char word[WORD_SIZE]; // the word that is read next; "" at the end
    int depth;
    char *reason;
    struct cn_rule *rule;
};

static cn_err complain(struct parser *parser, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static cn_err complain(struct parser *parser, const char *format, ...)
{
    char message[CN_DIAG_LINE_SIZE / 2];
    va_list arguments;

    va_start(arguments, format);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang-tidy 14 does not see va_start.
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    if (parser->word[0])
        snprintf(parser->reason, CN_DIAG_LINE_SIZE, "at '%s': %s", parser->word, message);
    else
        snprintf(parser->reason, CN_DIAG_LINE_SIZE, "at the end: %s", message);
    return CN_EINVAL;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           strchr("._-/:", c);
}

// Moves to the next word: a run of letters, a relation or a parenthesis. A word of more than
// WORD_SIZE - 1 characters is cut, and ends with '~', so that it equals no name.
static void advance(struct parser *parser)
{
    size_t size = 0;

    while (*parser->at == ' ' || *parser->at == '\t')
        parser->at++;
    if (*parser->at && is_letter(*parser->at)) {
        for (; *parser->at && is_letter(*parser->at); parser->at++)
            if (size < WORD_SIZE - 1)
                parser->word[size++] = *parser->at;
            else
                parser->word[size - 1] = '~';
    } else if (*parser->at) {
        parser->word[size++] = *parser->at++;
        if (strchr("=!<>", parser->word[0]) && *parser->at == '=')
            parser->word[size++] = *parser->at++;
    }
    parser->word[size] = 0;
}

static bool take_word(struct parser *parser, const char *word)
{
    if (strcmp(parser->word, word) != 0)
        return false;
    advance(parser);
    return true;
}

static cn_err emit(struct parser *parser, const struct cn_rule_part *part)
{
    if (parser->rule->count == CN_RULE_PARTS)
        return complain(parser, "the rule has more than %d parts", CN_RULE_PARTS);
    parser->rule->parts[parser->rule->count++] = *part;
    return CN_OK;
}

static int find(const char *const *names, int count, const char *word)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], word) == 0)
            return i;
    return -1;
}

// Reads a compute capability: "8.7" is 87.
static cn_err parse_arch(const char *word, uint64_t *value)
{
    unsigned major, minor;
    char rest;

    if (sscanf(word, "%2u.%1u%c", &major, &minor, &rest) != 2) // NOLINT(cert-err34-c): bounded
        return CN_EFORMAT;
    *value = major * 10ull + minor;
    return CN_OK;
}

// Reads a number with its unit, which is a word of its own: "8 GiB".
static cn_err parse_quantity(struct parser *parser, enum fact fact, uint64_t *value)
{
    bool size = fact == FACT_MEMORY || fact == FACT_BYTES;
    const struct cn_unit *units = size                ? cn_units_size
                                  : fact == FACT_LINK ? cn_units_rate
                                                      : cn_units_none;
    char text[2 * WORD_SIZE + 1];
    size_t used = strlen(parser->word);
    cn_err err;

    memcpy(text, parser->word, used + 1);
    if (units != cn_units_none) {
        advance(parser);
        snprintf(text + used, sizeof(text) - used, " %s", parser->word);
    }
    err = cn_quantity_parse(text, units, value);
    if (err)
        return complain(parser, "'%s' is not a number%s", text,
                        size                ? " of bytes, as in 8 GiB"
                        : fact == FACT_LINK ? " of bits in a second, as in 100 Mbit/s"
                                            : "");
    return CN_OK;
}

static cn_err parse_subnet(struct parser *parser, struct cn_rule_part *part)
{
    struct in_addr address;
    char *slash = strchr(parser->word, '/');
    uint64_t bits = 32;

    if (slash)
        *slash = 0;
    if (inet_pton(AF_INET, parser->word, &address) != 1 ||
        (slash && cn_quantity_parse(slash + 1, cn_units_none, &bits)) || bits > 32)
        return complain(parser, "wanted an IPv4 address or subnet, as in 10.1.2.0/24");
    part->number = ntohl(address.s_addr);
    part->bits = (uint8_t)bits;
    return CN_OK;
}

static cn_err parse_value(struct parser *parser, struct cn_rule_part *part)
{
    cn_err err = CN_OK;

    if (!parser->word[0])
        return complain(parser, "wanted a value for '%s'", fact_names[part->fact]);
    if (part->fact < FACT_MEMORY && part->relation > RELATION_DIFFERENT)
        return complain(parser, "'%s' can be compared with == and != only", fact_names[part->fact]);
    if (part->fact == FACT_ADDRESS)
        err = parse_subnet(parser, part);
    else if (part->fact == FACT_ARCH)
        err = parse_arch(parser->word, &part->number)
                  ? complain(parser, "wanted a compute capability, as in 8.7")
                  : CN_OK;
    else if (part->fact >= FACT_MEMORY)
        err = parse_quantity(parser, (enum fact)part->fact, &part->number);
    else if (part->fact == FACT_GPU && strcmp(parser->word, "cuda") != 0 &&
             strcmp(parser->word, "none") != 0)
        err = complain(parser, "wanted cuda or none");
    else
        memcpy(part->word, parser->word, CN_NAME_SIZE);
    if (!err)
        advance(parser);
    return err;
}

// Finds the fact that a word names, and the set of "data.NAME". Returns -1 when there is none.
static int find_fact(const char *word, struct cn_rule_part *part)
{
    int fact = find(fact_names, FACT_COUNT, word);

    if (strncmp(word, "data.", 5) != 0)
        return fact == FACT_DATA ? -1 : fact;
    snprintf(part->word, sizeof(part->word), "%s", word + 5);
    return cn_name_valid(part->word) ? FACT_DATA : -1;
}

static cn_err parse_condition(struct parser *parser)
{
    struct cn_rule_part part = {.kind = KIND_CONDITION};
    int fact = find_fact(parser->word, &part), relation;
    cn_err err;

    if (fact < 0)
        return complain(parser, "wanted a fact: name, address, gpu, arch, memory, cores, link, "
                                "battery, bytes, data.NAME, round, step, epoch or phase");
    advance(parser);
    relation = find(relation_names, RELATION_COUNT, parser->word);
    if (relation < 0)
        return complain(parser, "wanted ==, !=, <, <=, > or >= after '%s'", fact_names[fact]);
    advance(parser);
    part.fact = (uint8_t)fact;
    part.relation = (uint8_t)relation;
    err = parse_value(parser, &part);
    return err ? err : emit(parser, &part);
}

static cn_err parse_or(struct parser *parser);

// Parses "not X", "(X)" or a condition.
static cn_err parse_unit(struct parser *parser) // NOLINT(misc-no-recursion): at most DEPTH_MAX
{
    cn_err err;

    if (++parser->depth > DEPTH_MAX)
        return complain(parser, "the rule is nested more than %d deep", DEPTH_MAX);
    if (take_word(parser, "not")) {
        err = parse_unit(parser);
        if (!err)
            err = emit(parser, &(struct cn_rule_part){.kind = KIND_NOT});
    } else if (take_word(parser, "(")) {
        err = parse_or(parser);
        if (!err && !take_word(parser, ")"))
            err = complain(parser, "wanted )");
    } else {
        err = parse_condition(parser);
    }
    parser->depth--;
    return err;
}

static cn_err parse_and(struct parser *parser) // NOLINT(misc-no-recursion): at most DEPTH_MAX
{
    cn_err err = parse_unit(parser);

    while (!err && take_word(parser, "and")) {
        err = parse_unit(parser);
        if (!err)
            err = emit(parser, &(struct cn_rule_part){.kind = KIND_AND});
    }
    return err;
}

static cn_err parse_or(struct parser *parser) // NOLINT(misc-no-recursion): at most DEPTH_MAX
{
    cn_err err = parse_and(parser);

    while (!err && take_word(parser, "or")) {
        err = parse_and(parser);
        if (!err)
            err = emit(parser, &(struct cn_rule_part){.kind = KIND_OR});
    }
    return err;
}

cn_err cn_rule_parse(const char *text, char reason[CN_DIAG_LINE_SIZE], struct cn_rule *rule)
{
    struct parser parser = {.at = text, .reason = reason, .rule = rule};
    cn_err err;

    *rule = (struct cn_rule){0};
    reason[0] = 0;
    advance(&parser);
    err = parse_or(&parser);
    if (!err && parser.word[0])
        err = complain(&parser, "wanted 'and' or 'or'");
    return err;
}

static bool compare(enum relation relation, uint64_t a, uint64_t b)
{
    switch (relation) {
    case RELATION_EQUAL:
        return a == b;
    case RELATION_DIFFERENT:
        return a != b;
    case RELATION_LESS:
        return a < b;
    case RELATION_AT_MOST:
        return a <= b;
    case RELATION_MORE:
        return a > b;
    case RELATION_AT_LEAST:
        return a >= b;
    case RELATION_COUNT:
        break;
    }
    return false;
}

// Gets the number of a fact. Returns false when it is unknown.
static bool number_of(enum fact fact, const struct cn_rule_facts *facts, uint64_t *number)
{
    switch (fact) {
    case FACT_MEMORY:
        *number = (uint64_t)facts->board.memory_mib << 20;
        return *number > 0;
    case FACT_CORES:
        *number = facts->board.cores;
        return *number > 0;
    case FACT_ARCH:
        *number = facts->board.arch;
        return *number > 0;
    case FACT_LINK:
        *number = facts->board.link_kbps * 1000ull;
        return *number > 0;
    case FACT_BATTERY:
        *number = facts->board.battery;
        return *number > 0;
    case FACT_BYTES:
        *number = facts->board.left_kib == UINT32_MAX ? UINT64_MAX
                                                      : (uint64_t)facts->board.left_kib << 10;
        return *number > 0;
    case FACT_DATA:
        *number = facts->samples;
        return *number > 0;
    case FACT_ROUND:
        *number = facts->round;
        return true;
    case FACT_STEP:
        *number = facts->step;
        return true;
    case FACT_EPOCH:
        *number = facts->epoch;
        return true;
    default:
        return false;
    }
}

// Gets the IPv4 address of "host:port". Returns false for a host name.
static bool read_address(const char *address, uint32_t *number)
{
    const char *colon = strrchr(address, ':');
    char host[INET_ADDRSTRLEN];
    size_t size = colon ? (size_t)(colon - address) : strlen(address);
    struct in_addr parsed;

    if (size >= sizeof(host))
        return false;
    memcpy(host, address, size);
    host[size] = 0;
    if (inet_pton(AF_INET, host, &parsed) != 1)
        return false;
    *number = ntohl(parsed.s_addr);
    return true;
}

static bool in_subnet(uint32_t address, const struct cn_rule_part *subnet)
{
    uint32_t mask = subnet->bits ? UINT32_MAX << (32 - subnet->bits) : 0;

    return ((address ^ (uint32_t)subnet->number) & mask) == 0;
}

static bool condition_holds(const struct cn_rule_part *part, const struct cn_rule_facts *facts)
{
    const char *word = part->fact == FACT_NAME    ? facts->name
                       : part->fact == FACT_PHASE ? facts->phase
                       : facts->board.arch        ? "cuda"
                                                  : "none";
    bool wanted = part->relation == RELATION_EQUAL;
    uint64_t number;
    uint32_t address;

    if (part->fact == FACT_DATA && strcmp(facts->data_set ? facts->data_set : "", part->word) != 0)
        return false;
    if (part->fact >= FACT_MEMORY)
        return number_of((enum fact)part->fact, facts, &number) &&
               compare((enum relation)part->relation, number, part->number);
    if (part->fact == FACT_ADDRESS)
        return read_address(facts->address, &address) && in_subnet(address, part) == wanted;
    return (strcmp(word, part->word) == 0) == wanted;
}

bool cn_rule_holds(const struct cn_rule *rule, const struct cn_rule_facts *facts)
{
    bool stack[CN_RULE_PARTS + 1] = {true}; // a rule without parts is true
    uint32_t top = 0;                       // values on the stack

    for (uint32_t i = 0; i < rule->count; i++) {
        const struct cn_rule_part *part = &rule->parts[i];

        if (part->kind == KIND_CONDITION) {
            stack[top++] = condition_holds(part, facts);
        } else if (part->kind == KIND_NOT) {
            stack[top - 1] = !stack[top - 1];
        } else {
            top--;
            stack[top - 1] = part->kind == KIND_AND ? stack[top - 1] && stack[top]
                                                    : stack[top - 1] || stack[top];
        }
    }
    return stack[0];
}

static bool speaks_of(const struct cn_rule *rule, enum fact fact)
{
    for (uint32_t i = 0; i < rule->count; i++)
        if (rule->parts[i].kind == KIND_CONDITION && rule->parts[i].fact == fact)
            return true;
    return false;
}

bool cn_rule_needs_step(const struct cn_rule *rule)
{
    return speaks_of(rule, FACT_STEP);
}

bool cn_rule_needs_link(const struct cn_rule *rule)
{
    return speaks_of(rule, FACT_LINK);
}

bool cn_rule_needs_live(const struct cn_rule *rule)
{
    return speaks_of(rule, FACT_BATTERY) || speaks_of(rule, FACT_BYTES);
}

bool cn_rule_needs_data(const struct cn_rule *rule)
{
    return speaks_of(rule, FACT_DATA);
}

bool cn_rule_needs_gpu(const struct cn_rule *rule)
{
    return speaks_of(rule, FACT_GPU) || speaks_of(rule, FACT_ARCH);
}

bool cn_rule_is_of_gateway(const struct cn_rule *rule)
{
    for (uint32_t i = 0; i < rule->count; i++) {
        const struct cn_rule_part *part = &rule->parts[i];

        if (part->kind == KIND_CONDITION && part->fact != FACT_NAME && part->fact != FACT_MEMORY &&
            part->fact != FACT_CORES && part->fact != FACT_GPU && part->fact != FACT_ARCH &&
            part->fact != FACT_BATTERY && part->fact != FACT_BYTES && part->fact != FACT_DATA)
            return false;
    }
    return true;
}

bool cn_rule_is_of_registration(const struct cn_rule *rule)
{
    return cn_rule_is_of_gateway(rule) && !cn_rule_needs_live(rule) && !cn_rule_needs_data(rule);
}
