// cairn-aggregator revocations: shows the keys that were revoked, so that they can be kept apart
// from the state.
#include <getopt.h>
#include <limits.h>
#include <stdio.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/daemon/setup.h"
#include "aggregator/store/revocations.h"
#include "aggregator/store/state_owner.h"

static const char help[] =
    "Usage: cairn-aggregator revocations PROFILE [--import FILE]\n"
    "\n"
    "Prints every key that was ever revoked, one line each: name and fingerprint, no\n"
    "secret. The list is kept in STATE.revocations beside the state directory, so\n"
    "that a copy of the directory that is older than a revocation does not bring the\n"
    "board back: run applies it at each start. Keep what is printed away from the\n"
    "gateway, too (docs/backup.md).\n"
    "\n"
    "  --import FILE    adds the lines of FILE, and revokes those of the boards that\n"
    "                   are enrolled\n";

static int import(struct cn_ledger *ledger, const char *path, const char *from)
{
    struct cn_revocations_report imported, applied;
    cn_err err = cn_revocations_import(path, from, &imported);
    if (err) {
        fprintf(stderr, "%s: error: not imported: %s\n", from, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    if (imported.malformed)
        fprintf(stderr,
                "%s: error: lines that are no revocations: %u; wanted"
                " \"cairn-revoked-1 NAME FINGERPRINT\"\n",
                from, imported.malformed);
    err = cn_revocations_apply(ledger, path, &applied);
    if (err) {
        fprintf(stderr, "%s: error: not applied: %s\n", path, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    printf("%u revocations are new, %u enrolled boards were revoked\n", imported.added,
           applied.revoked);
    return imported.malformed ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int print(struct cn_ledger *ledger, const char *path)
{
    struct cn_revocations_report report;
    char line[256];
    cn_err err = cn_revocations_apply(ledger, path, &report);
    cn_state_owner_leave();
    FILE *file = err ? NULL : fopen(path, "r");
    cn_state_owner_return();
    if (err) {
        fprintf(stderr, "%s: error: %s\n", path, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    while (file && fgets(line, sizeof(line), file))
        fputs(line, stdout);
    if (file)
        fclose(file);
    if (report.unwritten)
        fprintf(stderr, "%s: error: cannot be written, some revocations are missing: %s\n", path,
                cn_err_text(report.unwritten));
    return report.unwritten ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {{"import", required_argument, NULL, 'i'}, {0}};
    const char *positional[1], *from = NULL;
    char path[PATH_MAX];
    int option;
    (void)ports;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option != 'i')
            return CN_EXIT_USAGE;
        from = optarg;
    }
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_ENROLL);
    if (!result && cn_revocations_path(setup.settings->state, path, sizeof(path))) {
        fprintf(stderr, "%s: error: the name of the state directory is too long\n",
                setup.state_name);
        result = CN_EXIT_FAILED;
    }
    if (!result)
        result = from ? import(setup.ledger, path, from) : print(setup.ledger, path);
    cn_setup_deinit(&setup);
    return result;
}

const struct cn_command cn_aggregator_revocations = {
    .name = "revocations",
    .summary = "print or import the keys that were revoked",
    .help = help,
    .run = run,
};
