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
#include "runtime/port/platform.h"

#define FILE_THERE CN_PAYLOAD_ETC "/node.yaml"
#define BOARD_MS 300000 // longest time for one board
// Exit codes of the script below.
#define REFUSED 10 // check refused the new profile; nothing has changed
#define BACK 11    // the node did not run with it; the old one is back
#define LOST 12    // and does not run with the old one, either
#define BUSY 13    // another run changes this board's profile

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

// What root does there, in single quotes. $1 is the profile's digest; the profile is read from
// standard input. Prints "same" or "new". It does not end with the connection, so that a profile is
// never left untried. After a power cut while it was tried, node.yaml.trying is there; then
// node.yaml.old is still the profile that worked.
static const char script[] = CN_REMOTE_ROOT
    "$s flock -n -E 13 /run/lock/cairn-profile sh -c '"
    "f=" FILE_THERE "\n"
    "trap \"\" HUP PIPE\n"
    "fail() { code=$1; shift; rm -f \"$f.new\"; echo \"$*\" >&2; exit \"$code\"; }\n"
    "runs() {\n"
    "    systemctl restart cairn-node >/dev/null 2>&1 || return 1\n"
    "    for second in 1 2 3 4 5; do\n"
    "        sleep 1\n"
    "        systemctl is-active --quiet cairn-node || return 1\n"
    "    done\n"
    "}\n"
    "test -f \"$f\" || fail 1 \"it has no $f: put Cairn on it first\"\n"
    "umask 022\n"
    "cat >\"$f.new\" && echo \"$1  $f.new\" | sha256sum -c >/dev/null 2>&1 ||\n"
    "    fail 1 \"the profile did not arrive whole\"\n"
    "if cmp -s \"$f\" \"$f.new\" && ! test -e \"$f.trying\" &&\n"
    "    systemctl is-active --quiet cairn-node; then\n"
    "    rm -f \"$f.new\"; echo same; exit 0\n"
    "fi\n"
    "said=$(cairn-node check \"$f.new\" 2>&1 >/dev/null) || fail 10 \"$said\"\n"
    "{ test -e \"$f.trying\" || cp -p \"$f\" \"$f.old\"; } && : >\"$f.trying\" && sync &&\n"
    "    mv -fT \"$f.new\" \"$f\" && sync || fail 1 \"it cannot be written\"\n"
    "if runs; then rm -f \"$f.trying\"; sync; echo new; exit 0; fi\n"
    "cp -p \"$f.old\" \"$f.new\" && sync && mv -fT \"$f.new\" \"$f\" && rm -f \"$f.trying\" && "
    "sync ||\n"
    "    fail 12 \"cairn-node did not run with it, and $f.old cannot be put back\"\n"
    "runs || fail 12 \"cairn-node does not run with the old profile either\"\n"
    "fail 11 \"cairn-node did not run with it; it runs with the old profile again\"\n"
    "' sh ";

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
    case BUSY:
        return "wait for it and run this again";
    default:
        return "is ssh and sudo possible without a password? Run this again";
    }
}

static const char *complaint(struct cn_process_job *job)
{
    if (cn_process_interrupted())
        return "interrupted; what was begun there ends by itself";
    if (job->result.late)
        return "it has not answered in time; what was begun there ends by itself";
    return job->result.code == BUSY ? "another run changes its profile"
                                    : cn_process_complaint(&job->result);
}

static int send_profile(const struct cn_board_row *row, const struct cn_payload_file *file)
{
    char digest[2 * CN_DIGEST_SIZE + 1], line[sizeof(script) + sizeof(digest)];
    const char *const argv[] = CN_REMOTE_COMMAND(row->place, line);
    struct cn_process_job job = {.argv = argv, .in = open(file->source, O_RDONLY | O_CLOEXEC)};
    const struct cn_buffer *out = &job.result.out;
    int code = CN_EXIT_FAILED;

    cn_hex(digest, file->digest, CN_DIGEST_SIZE);
    snprintf(line, sizeof(line), "%s%s", script, digest);
    if (job.in < 0) {
        cn_console_error(NULL, "%s: the profile cannot be read", row->name);
        return code;
    }
    cn_process_run_all(&job, 1, cn_platform_now_ms() + BOARD_MS, NULL, NULL);
    close(job.in);
    if (!job.err && job.result.code == 0)
        code = CN_EXIT_DONE;
    if (code)
        cn_console_error(next_step(job.result.code), "%s: %s", row->name, complaint(&job));
    else if (out->size >= 4 && memcmp(out->data, "same", 4) == 0)
        cn_console_step("same", "%s has this profile", row->name);
    else
        cn_console_step("updated", "%s runs with the new profile", row->name);
    cn_process_deinit(&job.result);
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
    return cn_process_interrupted() ? CN_EXIT_INTERRUPTED : code;
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
