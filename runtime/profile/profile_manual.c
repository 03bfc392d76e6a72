// profile_manual.c - prints the manual page cairn-profile(5) from the table of all keys.
//
// A program of the build, not shipped: the packages contain the page.
// Usage: profile_manual VERSION DATE
#include <stdio.h>
#include <string.h>

#include "runtime/profile/profile_value.h"

static const char head[] =
    ".SH NAME\n"
    "cairn-profile \\- what a board is, where it stands and what it trains\n"
    ".SH DESCRIPTION\n"
    "A profile is a file in YAML. Its first line says which layer it is:\n"
    ".TP\n.B schema: cairn/board/v1\nwhat the hardware is\n"
    ".TP\n.B schema: cairn/site/v1\nwhere one device stands: its paths, addresses and limits\n"
    ".TP\n.B schema: cairn/job/v1\nwhat to train and by which rules\n"
    ".PP\n"
    "A file is laid over the one that it extends. Single keys replace single keys; lists,\n"
    ".B group.members\nand\n.B data\nare replaced as a whole. A path counts from the directory of "
    "the file that has it.\n"
    ".PP\n"
    "A dot in a name below stands for a section:\n.B memory.train_max\nis written as\n"
    ".PP\n.RS\n.nf\nmemory:\n  train_max: 4 GiB\n.fi\n.RE\n"
    ".PP\n"
    "Every quantity has its unit. Only 0 needs none.\n"
    ".BR \"cairn-node check\" (1)\nprints a profile with all defaults, or every mistake in it.\n";

static const char job_head[] =
    ".SH KEYS OF A JOB\n"
    "As they stand here in the file of a job; in the section\n.B job\nof a site the same.\n";

static const char tail[] =
    ".SH EXAMPLES\n"
    "A board of a group of two:\n"
    ".PP\n.RS\n.nf\n"
    "schema: cairn/site/v1\n"
    "extends: generic\\-x86\\-64\n"
    "name: board\\-1\n"
    "state: /var/lib/cairn\n"
    "aggregator: {address: \"192.168.1.10:5684\", key: /etc/cairn/node.key}\n"
    "group:\n"
    "  listen: \"0.0.0.0:7101\"\n"
    "  members: {board\\-1: \"192.168.1.11:7101\", board\\-2: \"192.168.1.12:7101\"}\n"
    "data:\n"
    "  digits: {inputs: /data/images.npy, labels: /data/labels.npy}\n"
    ".fi\n.RE\n"
    ".PP\n"
    "The gateway with its job:\n"
    ".PP\n.RS\n.nf\n"
    "schema: cairn/site/v1\n"
    "name: gateway\n"
    "state: /var/lib/cairn\\-aggregator\n"
    "gateway: {listen: \"0.0.0.0:5684\"}\n"
    "job:\n"
    "  name: digits\n"
    "  model: digits.onnx\n"
    "  data: {set: digits}\n"
    "  rounds: {count: 30, quorum: 1}\n"
    ".fi\n.RE\n"
    ".SH FILES\n"
    ".TP\n.I /etc/cairn/node.yaml\nThe profile that the service of a board runs.\n"
    ".TP\n.I /etc/cairn/gateway.yaml\nThe profile that the service of a gateway runs.\n"
    ".TP\n.I /usr/share/cairn/boards\nTypes of boards, for\n.BR extends .\n"
    ".SH SEE ALSO\n"
    ".BR cairn\\-node (1),\n.BR cairn\\-aggregator (1)\n";

// Prints text as roff reads it back: a hyphen stays one, and no line begins with a request.
static void print_text(const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (; *text; text++)
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else
            putchar(*text);
}

static void print_layers(const struct cn_schema_row *row)
{
    const char *before = " Set by ";

    for (int layer = 0; layer < CN_LAYER_COUNT; layer++)
        if (row->layers & (1u << layer)) {
            printf("%s%s", before, cn_layer_name((enum cn_layer)layer));
            before = ", ";
        }
    puts(".");
}

static void print_key(const struct cn_schema_row *row, const char *name)
{
    char wanted[CN_WANTED_SIZE];

    fputs(".TP\n.B ", stdout);
    print_text(name);
    putchar('\n');
    print_text(row->about);
    fputs(".\n.br\n", stdout);
    fputs("Takes ", stdout);
    print_text(cn_value_wanted(wanted, row));
    if (row->initial) {
        fputs("; default: ", stdout);
        print_text(row->initial);
    }
    putchar('.');
    print_layers(row);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: profile_manual VERSION DATE\n", stderr);
        return 2;
    }
    printf(".TH CAIRN-PROFILE 5 \"%s\" \"Cairn %s\" \"Cairn\"\n", argv[2], argv[1]);
    fputs(head, stdout);
    puts(".SH KEYS OF A BOARD OR SITE");
    for (size_t i = 0; i < cn_schema_count; i++) // schema is in the description
        if (strncmp(cn_schema[i].path, "job.", 4) != 0 && strcmp(cn_schema[i].path, "schema") != 0)
            print_key(&cn_schema[i], cn_schema[i].path);
    fputs(job_head, stdout);
    for (size_t i = 0; i < cn_schema_count; i++)
        if (strncmp(cn_schema[i].path, "job.", 4) == 0)
            print_key(&cn_schema[i], cn_schema[i].path + 4);
    fputs(tail, stdout);
    return ferror(stdout) || fflush(stdout) ? 1 : 0;
}
