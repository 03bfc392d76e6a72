// cairn-flash profile: gives running boards another profile.
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "boards/flash/board/board_table.h"
#include "boards/flash/board/payload.h"
#include "boards/flash/commands.h"
#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "boards/flash/tool/remote.h"
#include "runtime/command/command.h"

#define FILE_THERE CN_PAYLOAD_ETC "/node.yaml"
// Exit codes of the script below.
#define REFUSED 10 // check refused the new profile; nothing has changed
#define BACK 11    // the node did not run with it; the old one is back
#define LOST 12    // and does not run with the old one, either

static const char help[] =
    "Usage: cairn-flash profile BOARDS --site PROFILE [--dry-run] [--json]\n"
    "\n"
    "Gives running boards another profile, one after the other. BOARDS is a file\n"
    "with a line 'NAME USER@HOST' for each; ssh and sudo need no password there.\n"
    "Each gets the site's profile with its own name. The board's cairn-node checks\n"
    "it there, with the board's own files, before it replaces the old one, which\n"
    "stays beside it as node.yaml.old. The node is restarted; if it does not run\n"
    "with the new profile, it gets the old one back. After a failure the boards that\n"
    "follow are as they were. Run it again to go on: boards that have the profile\n"
    "are passed over.\n"
    "\n"
    "  --site FILE  profile of the site; paths in it are paths on the board\n"
    "  --dry-run    check what can be checked here, write nothing\n"
    "  --json       one object a line\n";

// Reads the profile from standard input. Prints "same" or "new". A restart that has to be undone is
// not left to a connection that may break: the output goes to files meanwhile.
static const char script[] = CN_REMOTE_ROOT
    "f=" FILE_THERE "\n"
    "fail() { code=$1; shift; $s rm -f \"$f.new\"; echo \"$*\" >&2; exit \"$code\"; }\n"
    "trap '' HUP PIPE\n"
    "$s sh -c 'umask 022; cat >\"$1.new\"' sh \"$f\" || exit 1\n"
    "$s test -s \"$f.new\" || fail 1 'nothing arrived'\n"
    "if $s cmp -s \"$f\" \"$f.new\"; then $s rm -f \"$f.new\"; echo same; exit 0; fi\n"
    "$s test -f \"$f\" || fail 1 \"it has no $f: put Cairn on it first\"\n"
    "said=$($s cairn-node check \"$f.new\" 2>&1 >/dev/null) || fail 10 \"$said\"\n"
    "$s sh -c 'cp -p \"$1\" \"$1.old\" && sync && mv -fT \"$1.new\" \"$1\" && sync' sh \"$f\" || "
    "fail 1 'it cannot be written'\n"
    "runs() {\n"
    "    $s systemctl restart cairn-node >/dev/null 2>&1 || return 1\n"
    "    for second in 1 2 3 4 5; do\n"
    "        sleep 1\n"
    "        $s systemctl is-active --quiet cairn-node || return 1\n"
    "    done\n"
    "}\n"
    "if runs; then echo new; exit 0; fi\n"
    "$s sh -c 'cp -p \"$1.old\" \"$1.new\" && sync && mv -fT \"$1.new\" \"$1\" && sync' sh \"$f\"\n"
    "runs || fail 12 'cairn-node does not run, with the old profile neither'\n"
    "fail 11 'cairn-node did not run with it; it runs with the old profile again'\n";

struct profile_options {
    const char *list, *site;
    bool dry_run;
};

static const char *next_step(int code)
{
    switch (code) {
    case REFUSED:
        return "nothing has changed there: mend the profile and run this again";
    case BACK:
        return "'journalctl -u cairn-node' there says why: mend the profile and run this again";
    case LOST:
        return "'journalctl -u cairn-node' there says why";
    default:
        return "is ssh and sudo possible without a password? Run this again";
    }
}

static int send_profile(const struct cn_board_row *row, const struct cn_payload_file *file)
{
    struct cn_process_result result = {0};
    int from = open(file->source, O_RDONLY | O_CLOEXEC), code = CN_EXIT_FAILED;

    if (from >= 0) {
        code = cn_remote_run(row->place, script, from, &result);
        close(from);
    }
    if (code)
        cn_console_error(next_step(result.code), "%s: %s", row->name,
                         from < 0 ? "the profile cannot be read" : cn_process_complaint(&result));
    else if (result.out.size >= 4 && memcmp(result.out.data, "same", 4) == 0)
        cn_console_step("same", "%s has this profile", row->name);
    else
        cn_console_step("updated", "%s runs with the new profile", row->name);
    cn_process_deinit(&result);
    return code;
}

// Makes the profile of one board, and sends it unless this is a dry run.
static int serve(const struct profile_options *options, const struct cn_workspace *space,
                 const struct cn_board_row *row)
{
    const struct cn_target_options order = {.site = options->site, .name = row->name};
    static struct cn_payload payload;
    int code;

    payload = (struct cn_payload){0};
    code = cn_payload_make_identity(&order, space, &payload);
    if (code || !options->dry_run)
        return code ? code : send_profile(row, &payload.files[0]);
    cn_console_step("checked", "%s would get %s with its name", row->name, options->site);
    return CN_EXIT_DONE;
}

static int serve_all(const struct profile_options *options, const struct cn_board_table *table)
{
    struct cn_workspace space;
    size_t done = 0;
    int code = CN_EXIT_DONE;

    if (cn_workspace_open(&space)) {
        cn_console_error(NULL, "no folder could be made in /dev/shm or /tmp");
        return CN_EXIT_FAILED;
    }
    while (done < table->count && !code && !cn_process_interrupted()) {
        code = serve(options, &space, &table->rows[done]);
        done += !code;
    }
    cn_workspace_close(&space);
    if (!options->dry_run)
        cn_console_step("done", "%zu of %zu boards have the profile", done, table->count);
    return code ? code : cn_process_interrupted() ? CN_EXIT_INTERRUPTED : CN_EXIT_DONE;
}

static int parse(int argc, char **argv, struct profile_options *options)
{
    static const struct option known[] = {
        {"site", required_argument, NULL, 's'},
        {"dry-run", no_argument, NULL, 'n'},
        {"json", no_argument, NULL, 'j'},
        {0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 's')
            options->site = optarg;
        else if (option == 'n')
            options->dry_run = true;
        else if (option == 'j')
            cn_console_set_json(true);
        else
            return CN_EXIT_USAGE;
    }
    if (!options->site || optind + 1 != argc) {
        fputs(help, stderr);
        return CN_EXIT_USAGE;
    }
    options->list = argv[optind];
    return CN_EXIT_DONE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    struct profile_options options = {0};
    struct cn_board_table table = {0};
    int code = parse(argc, argv, &options);

    (void)ports;
    if (!code)
        code = cn_board_table_load(options.list, &table);
    if (code)
        return code;
    cn_process_catch_signals();
    code = serve_all(&options, &table);
    cn_board_table_deinit(&table);
    return code;
}

const struct cn_command cn_flash_profile = {
    .name = "profile",
    .summary = "give running boards another profile",
    .help = help,
    .run = run,
};
