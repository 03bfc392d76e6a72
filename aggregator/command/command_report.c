// cairn-aggregator report: writes what happened in a run, as a page, as CSV or as JSON.
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/output_file.h"
#include "aggregator/daemon/setup_show.h"
#include "aggregator/page/report_page.h"
#include "aggregator/show/show_csv.h"
#include "aggregator/store/state_owner.h"
#include "runtime/base/build_version.h"
#include "runtime/port/platform.h"
#include "runtime/profile/job_text.h"

static const char help[] =
    "Usage: cairn-aggregator report PROFILE [-o FILE] [--csv[=TABLE]|--json]\n"
    "\n"
    "Writes a page about the run that needs nothing else: a browser shows it\n"
    "anywhere, without a gateway. It has the learning curve, each round and each\n"
    "group's part in it, the boards and what ails them, bytes, versions with their\n"
    "digests, and the settings.\n"
    "Works while the aggregator runs and after the run.\n"
    "\n"
    "  -o FILE          an existing file is replaced; without it: standard output\n"
    "  --csv[=TABLE]    in place of the page, a table for spreadsheets. rounds (also\n"
    "                   without TABLE): a line for each version; groups: a line for\n"
    "                   each group's part in a version, with what its boards\n"
    "                   measured; boards: a line for each board\n"
    "  --json           in place of the page, its data\n";

enum form { FORM_PAGE, FORM_CSV_ROUNDS, FORM_CSV_GROUPS, FORM_CSV_BOARDS, FORM_JSON };

struct request {
    enum form form;
    const char *output; // NULL: standard output
    const char *profile;
};

static cn_err make_data(const struct cn_setup *setup, const struct cn_show_source *source,
                        struct cn_buffer *data)
{
    struct cn_settings *settings = malloc(sizeof(*settings));
    char *text = NULL;
    if (!settings)
        return CN_ENOMEM;
    *settings = *setup->settings;
    settings->job = *source->job;
    cn_err err = cn_job_text_make(settings, &text);
    const struct cn_report_page_facts facts = {.program = cn_build_version, .settings = text};
    if (!err)
        err = cn_report_page_data(source, &facts, data);
    free(text);
    free(settings);
    return err;
}

static cn_err make_page(const struct cn_setup *setup, const struct cn_show_source *source,
                        struct cn_buffer *out)
{
    struct cn_buffer data;
    cn_buffer_init(&data, CN_SHOW_LIMIT);
    cn_err err = make_data(setup, source, &data);
    if (!err)
        err = cn_report_page_write(&data, out);
    cn_buffer_deinit(&data);
    return err;
}

static cn_err make(const struct cn_setup *setup, enum form form, struct cn_buffer *out)
{
    struct cn_setup_show show;
    const struct cn_show_source *source = &show.source;
    cn_err err = cn_setup_show_open(setup, true, &show);
    if (!err && form == FORM_PAGE)
        err = make_page(setup, source, out);
    else if (!err && form == FORM_JSON)
        err = make_data(setup, source, out);
    else if (!err)
        err = form == FORM_CSV_BOARDS   ? cn_show_csv_boards(source, out)
              : form == FORM_CSV_GROUPS ? cn_show_csv_groups(source, out)
                                        : cn_show_csv_rounds(source, out);
    cn_setup_show_close(&show);
    return err;
}

static int write_out(const struct request *request, const struct cn_buffer *out)
{
    if (request->output) {
        cn_state_owner_leave();
        int result = cn_output_file_write(request->output, out);
        cn_state_owner_return();
        if (!result)
            printf("%s\n", request->output);
        return result;
    }
    if (cn_output_file_fill(STDOUT_FILENO, out->data, out->size))
        return CN_EXIT_DONE;
    perror("standard output");
    return CN_EXIT_FAILED;
}

static int report(const struct request *request)
{
    struct cn_setup setup = {0};
    struct cn_buffer out;
    cn_buffer_init(&out, 2 * (size_t)CN_SHOW_LIMIT);
    int result = cn_setup_open(&setup, request->profile, CN_SETUP_LOOK);
    if (!result) {
        cn_err err = make(&setup, request->form, &out);
        if (err) {
            fprintf(stderr, "%s: %s\n", setup.state_name, cn_err_text(err));
            result = CN_EXIT_FAILED;
        } else {
            result = write_out(request, &out);
        }
    }
    cn_buffer_deinit(&out);
    cn_setup_deinit(&setup);
    return result;
}

static bool take_csv(const char *what, enum form *form)
{
    static const struct {
        const char *name;
        enum form form;
    } known[] = {
        {"rounds", FORM_CSV_ROUNDS}, {"groups", FORM_CSV_GROUPS}, {"boards", FORM_CSV_BOARDS}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(what ? what : "rounds", known[i].name) == 0) {
            *form = known[i].form;
            return true;
        }
    fprintf(stderr, "error: --csv=%s: there are rounds, groups and boards; see --help\n", what);
    return false;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"output", required_argument, NULL, 'o'},
        {"csv", optional_argument, NULL, 'c'},
        {"json", no_argument, NULL, 'j'},
        {0},
    };
    struct request request = {.form = FORM_PAGE};
    const char *positional[1];
    unsigned forms = 0;
    int option;
    (void)ports;
    while ((option = getopt_long(argc, argv, "o:", known, NULL)) != -1) {
        if (option == 'o')
            request.output = optarg;
        else if (option == 'j')
            request.form = FORM_JSON;
        else if (option != 'c' || !take_csv(optarg, &request.form))
            return CN_EXIT_USAGE;
        forms += option != 'o';
    }
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    request.profile = positional[0];
    if (forms > 1) {
        fprintf(stderr, "error: --csv and --json exclude each other; see --help\n");
        return CN_EXIT_USAGE;
    }
    if (request.form == FORM_PAGE && !request.output && isatty(STDOUT_FILENO)) {
        fprintf(stderr, "error: -o FILE is missing; see --help\n");
        return CN_EXIT_USAGE;
    }
    return report(&request);
}

const struct cn_command cn_aggregator_report = {
    .name = "report",
    .summary = "write a page, CSV or JSON about the run",
    .help = help,
    .run = run,
};
