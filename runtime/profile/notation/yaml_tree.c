#include "runtime/profile/notation/yaml_tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct builder {
    struct cn_diagnostics *report;
    struct cn_yaml_node *root;
    struct cn_yaml_node *newest;
    struct cn_yaml_node *open[CN_YAML_DEPTH_MAX]; // maps and lists that have not ended
    size_t depth;
    char *key; // the key whose value comes next
    struct cn_mark key_mark;
    size_t documents;
    bool done; // nothing more can be read
};

__attribute__((format(printf, 4, 0))) static void add_line(struct cn_diagnostics *report,
                                                           struct cn_mark mark, const char *kind,
                                                           const char *format, va_list arguments)
{
    char message[CN_DIAG_LINE_SIZE];

    vsnprintf(message, sizeof(message), format, arguments);
    cn_diag_add(report->diag, "%s:%zu:%zu: %s: %s", report->file, mark.line, mark.column, kind,
                message);
}

void cn_diagnostics_error(struct cn_diagnostics *report, struct cn_mark mark, const char *format,
                          ...)
{
    va_list arguments;

    va_start(arguments, format);
    add_line(report, mark, "error", format, arguments);
    va_end(arguments);
    report->errors++;
}

void cn_diagnostics_warning(struct cn_diagnostics *report, struct cn_mark mark, const char *format,
                            ...)
{
    va_list arguments;

    va_start(arguments, format);
    add_line(report, mark, "warning", format, arguments);
    va_end(arguments);
}

const char *cn_quote(char quoted[CN_QUOTE_SIZE], const char *text)
{
    size_t length = strlen(text), room = CN_QUOTE_SIZE - sizeof("'...'");
    bool cut = length > room;

    if (cut) {
        length = room;
        while (length &&
               ((unsigned char)text[length] & 0xc0) == 0x80) // do not cut inside a UTF-8 character
            length--;
    }
    snprintf(quoted, CN_QUOTE_SIZE, "'%.*s%s'", (int)length, text, cut ? "..." : "");
    for (char *c = quoted; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return quoted;
}

static struct cn_mark mark_of(yaml_mark_t mark)
{
    return (struct cn_mark){mark.line + 1, mark.column + 1};
}

static void free_node(struct cn_yaml_node *node)
{
    free(node->key);
    free(node->text);
    free(node);
}

// CN_YAML_DEPTH_MAX bounds the depth of this recursion.
void cn_yaml_free(struct cn_yaml_node *root) // NOLINT(misc-no-recursion)
{
    if (!root)
        return;
    for (struct cn_yaml_node *child = root->first, *next; child; child = next) {
        next = child->next;
        cn_yaml_free(child);
    }
    free_node(root);
}

const struct cn_yaml_node *cn_yaml_get(const struct cn_yaml_node *node, const char *key)
{
    if (!node || node->type != CN_YAML_MAP)
        return NULL;
    for (const struct cn_yaml_node *child = node->first; child; child = child->next)
        if (strcmp(child->key, key) == 0)
            return child;
    return NULL;
}

// Adds node, with the pending key, to the open map or list. Takes node.
static void attach(struct builder *builder, struct cn_yaml_node *node)
{
    struct cn_yaml_node *parent = builder->depth ? builder->open[builder->depth - 1] : NULL;

    node->key = builder->key;
    node->key_mark = builder->key ? builder->key_mark : node->mark;
    builder->key = NULL;
    builder->newest = node;
    if (!parent) {
        builder->root = node;
        return;
    }
    if (parent->last)
        parent->last->next = node;
    else
        parent->first = node;
    parent->last = node;
    if (++parent->count > CN_YAML_ENTRIES_MAX) {
        cn_diagnostics_error(builder->report, node->key_mark,
                             "too many entries; expected at most %d", CN_YAML_ENTRIES_MAX);
        builder->done = true;
    }
}

// Returns whether text has control characters, a byte order mark, or line breaks that YAML knows
// beyond ASCII (U+0085, U+2028, U+2029).
static bool has_control(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return true;
    return strstr(text, "\xc2\x85") || strstr(text, "\xe2\x80\xa8") ||
           strstr(text, "\xe2\x80\xa9") || strstr(text, "\xef\xbb\xbf");
}

static void check_plain_yaml(struct builder *builder, struct cn_mark mark, const void *anchor,
                             const void *tag)
{
    if (anchor)
        cn_diagnostics_error(builder->report, mark, "an anchor (&); expected the value alone");
    if (tag)
        cn_diagnostics_error(builder->report, mark, "a tag (!); expected the value alone");
}

static void report_control(struct builder *builder, struct cn_mark mark)
{
    cn_diagnostics_error(builder->report, mark, "a control character; expected text in one line");
}

// Takes a key of the open map. A duplicate is reported, but its value is kept for further checks.
static cn_err take_key(struct builder *builder, const char *text, size_t length,
                       struct cn_mark mark)
{
    const struct cn_yaml_node *same = cn_yaml_get(builder->open[builder->depth - 1], text);
    char quoted[CN_QUOTE_SIZE];

    if (has_control(text, length))
        report_control(builder, mark);
    if (same)
        cn_diagnostics_error(builder->report, mark, "duplicate key %s; the first is in line %zu",
                             cn_quote(quoted, text), same->key_mark.line);
    builder->key = strdup(text);
    builder->key_mark = mark;
    return builder->key ? CN_OK : CN_ENOMEM;
}

static bool wants_key(const struct builder *builder)
{
    const struct cn_yaml_node *top = builder->depth ? builder->open[builder->depth - 1] : NULL;

    return top && top->type == CN_YAML_MAP && !builder->key;
}

static cn_err take_scalar(struct builder *builder, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    struct cn_mark mark = mark_of(event->start_mark);
    struct cn_yaml_node *node;

    check_plain_yaml(builder, mark, event->data.scalar.anchor, event->data.scalar.tag);
    if (wants_key(builder))
        return take_key(builder, text, event->data.scalar.length, mark);
    node = calloc(1, sizeof(*node));
    if (!node)
        return CN_ENOMEM;
    *node = (struct cn_yaml_node){
        .type = CN_YAML_SCALAR,
        .mark = mark,
        .plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE,
        .bad = has_control(text, event->data.scalar.length),
        .text = strdup(text),
    };
    if (node->bad)
        report_control(builder, mark);
    attach(builder, node);
    return node->text ? CN_OK : CN_ENOMEM;
}

static cn_err take_alias(struct builder *builder, const yaml_event_t *event)
{
    struct cn_mark mark = mark_of(event->start_mark);
    struct cn_yaml_node *node;

    cn_diagnostics_error(builder->report, mark,
                         "an alias (*); expected the value itself, or quotes around a text with *");
    if (wants_key(builder)) {
        builder->done = true;
        return CN_OK;
    }
    node = calloc(1, sizeof(*node));
    if (!node)
        return CN_ENOMEM;
    *node = (struct cn_yaml_node){.mark = mark, .bad = true, .text = strdup("")};
    attach(builder, node);
    return node->text ? CN_OK : CN_ENOMEM;
}

static cn_err take_start(struct builder *builder, const yaml_event_t *event)
{
    bool map = event->type == YAML_MAPPING_START_EVENT;
    struct cn_mark mark = mark_of(event->start_mark);
    struct cn_yaml_node *node;

    check_plain_yaml(builder, mark,
                     map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor,
                     map ? event->data.mapping_start.tag : event->data.sequence_start.tag);
    if (wants_key(builder)) {
        cn_diagnostics_error(builder->report, mark, "a %s as a key; expected a word",
                             map ? "map" : "list");
        builder->done = true;
        return CN_OK;
    }
    if (builder->depth == CN_YAML_DEPTH_MAX) {
        cn_diagnostics_error(builder->report, mark, "too deep; expected at most %d levels",
                             CN_YAML_DEPTH_MAX);
        builder->done = true;
        return CN_OK;
    }
    node = calloc(1, sizeof(*node));
    if (!node)
        return CN_ENOMEM;
    *node = (struct cn_yaml_node){.type = map ? CN_YAML_MAP : CN_YAML_LIST, .mark = mark};
    attach(builder, node);
    builder->open[builder->depth++] = node;
    return CN_OK;
}

static void take_document(struct builder *builder, const yaml_event_t *event)
{
    struct cn_mark mark = mark_of(event->start_mark);

    if (event->data.document_start.version_directive ||
        event->data.document_start.tag_directives.start !=
            event->data.document_start.tag_directives.end)
        cn_diagnostics_error(builder->report, mark, "a directive (%%); expected none");
    if (++builder->documents > 1) {
        cn_diagnostics_error(builder->report, mark, "a second document; expected one in a file");
        builder->done = true;
    }
}

static cn_err take_event(struct builder *builder, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        take_document(builder, event);
        return CN_OK;
    case YAML_SCALAR_EVENT:
        return take_scalar(builder, event);
    case YAML_ALIAS_EVENT:
        return take_alias(builder, event);
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        return take_start(builder, event);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        builder->depth--;
        return CN_OK;
    case YAML_STREAM_END_EVENT:
        builder->done = true;
        return CN_OK;
    default:
        return CN_OK;
    }
}

static cn_err report_syntax(struct builder *builder, const yaml_parser_t *parser, const char *text,
                            size_t size)
{
    struct cn_mark mark = mark_of(parser->problem_mark);
    bool alias = parser->context && strstr(parser->context, "alias");

    if (parser->error == YAML_MEMORY_ERROR)
        return CN_ENOMEM;
    if (parser->error == YAML_READER_ERROR) { // this kind of error has an offset but no mark
        mark = (struct cn_mark){1, 1};
        for (size_t i = 0; i < parser->problem_offset && i < size; i++) {
            mark.line += text[i] == '\n';
            mark.column = text[i] == '\n' ? 1 : mark.column + 1;
        }
    }
    cn_diagnostics_error(builder->report, mark, "not YAML: %s%s%s%s",
                         parser->problem ? parser->problem : "unreadable",
                         parser->context ? " " : "", parser->context ? parser->context : "",
                         alias ? "; expected quotes around a text that begins with *" : "");
    if (builder->newest)
        builder->newest->bad = true; // the node may have swallowed the text before the mistake
    builder->done = true;
    return CN_OK;
}

// Reports tabs before a line's first word. libyaml would complain about something else in another
// place.
static void check_tabs(const char *text, size_t size, struct cn_diagnostics *report)
{
    struct cn_mark mark = {1, 1};
    bool indent = true;

    for (size_t i = 0; i < size; i++) {
        if (indent && text[i] == '\t') {
            cn_diagnostics_error(report, mark, "a tab; expected spaces");
            indent = false;
        } else if (text[i] == '\n') {
            mark = (struct cn_mark){mark.line + 1, 0};
            indent = true;
        } else if (text[i] != ' ') {
            indent = false;
        }
        mark.column++;
    }
}

cn_err cn_yaml_parse(const char *text, size_t size, struct cn_diagnostics *report,
                     struct cn_yaml_node **root)
{
    struct builder builder = {.report = report};
    size_t errors = report->errors;
    yaml_parser_t parser;
    yaml_event_t event;
    cn_err err = CN_OK;

    *root = NULL;
    // A byte order mark, which some editors write first.
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        size -= 3;
    }
    if (memchr(text, 0, size))
        cn_diagnostics_error(report, (struct cn_mark){1, 1}, "not a text file; expected YAML");
    else
        check_tabs(text, size, report);
    if (report->errors > errors)
        return CN_OK;
    if (!yaml_parser_initialize(&parser))
        return CN_ENOMEM;
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    while (err == CN_OK && !builder.done) {
        if (!yaml_parser_parse(&parser, &event)) {
            err = report_syntax(&builder, &parser, text, size);
        } else {
            err = take_event(&builder, &event);
            yaml_event_delete(&event);
        }
    }
    yaml_parser_delete(&parser);
    free(builder.key);
    if (err) {
        cn_yaml_free(builder.root);
        return err;
    }
    *root = builder.root;
    return CN_OK;
}
