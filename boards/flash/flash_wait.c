// cairn-flash wait: waits until the aggregator has heard from the board, the only proof that it
// joined.
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "boards/flash/board/enrol.h"
#include "boards/flash/commands.h"
#include "boards/flash/tool/console.h"
#include "runtime/port/platform.h"
#include "runtime/profile/notation/quantity.h"

#define ASK_MS 1000
#define TIMEOUT "10 min"

static const char help[] =
    "Usage: cairn-flash wait --name NAME --gateway PROFILE [--timeout TIME] [--json]\n"
    "\n"
    "Waits until the aggregator has heard the board NAME. Exits with 6 when it was\n"
    "not heard in time, and says what to look at. A gateway that cannot be reached is\n"
    "asked again until then.\n"
    "\n"
    "  --gateway PROFILE  the aggregator's profile, here or at ssh://HOST/PATH\n"
    "  --timeout TIME     such as '90 s' or '5 min'; default: 10 min\n"
    "  --json             one object a line\n";

// Says why the time is over, from the last answer of the aggregator.
static int give_up(const char *name, uint64_t timeout_ms, const struct cn_enrolment *last)
{
    if (last->away)
        cn_console_error("is the gateway on, and can it be reached from here?",
                         "%s was not heard in %" PRIu64 " s: the aggregator's status: %s", name,
                         timeout_ms / 1000, last->reason);
    else
        cn_console_error("is its power on, its network up, and is UDP to the gateway's port let "
                         "through? a fresh JetPack may wait in its wizard; its console and "
                         "'journalctl -u cairn-node -u cairn-firstboot' say more",
                         "%s was not heard in %" PRIu64 " s", name, timeout_ms / 1000);
    return CN_EXIT_WAIT;
}

// Says once, when answers begin to fail, that the program asks on.
static void note_away(const struct cn_enrolment *found, bool *noted)
{
    if (found->away && !*noted)
        cn_console_step("away", "the aggregator's status: %s; cairn-flash asks again",
                        found->reason);
    *noted = found->away;
}

static int wait_for(const char *gateway, const char *name, uint64_t timeout_ms)
{
    uint64_t begun_ms = cn_platform_now_ms();
    bool noted = false;

    for (;;) {
        struct cn_enrolment found;
        int code = cn_enrol_look(gateway, name, true, &found);
        uint64_t spent_ms = cn_platform_now_ms() - begun_ms;

        if (code && !found.away) {
            if (found.reason[0])
                cn_console_error(NULL, "the aggregator's status: %s", found.reason);
            return code;
        }
        if (!code && (!found.enrolled || found.revoked)) {
            cn_console_error("'cairn-flash image' enrols it", "%s is %s", name,
                             found.revoked ? "revoked" : "not enrolled");
            return CN_EXIT_FAILED;
        }
        if (found.heard) {
            cn_console_step("joined", "%s joined after %" PRIu64 " s", name, spent_ms / 1000);
            return CN_EXIT_DONE;
        }
        if (spent_ms >= timeout_ms)
            return give_up(name, timeout_ms, &found);
        note_away(&found, &noted);
        cn_platform_sleep_ms(ASK_MS);
    }
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"name", required_argument, NULL, 'n'},
        {"gateway", required_argument, NULL, 'g'},
        {"timeout", required_argument, NULL, 't'},
        {"json", no_argument, NULL, 'j'},
        {0},
    };
    const char *name = NULL, *gateway = NULL, *timeout = TIMEOUT;
    uint64_t timeout_ms;
    int option;

    (void)ports;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'n')
            name = optarg;
        else if (option == 'g')
            gateway = optarg;
        else if (option == 't')
            timeout = optarg;
        else if (option == 'j')
            cn_console_set_json(true);
        else
            return CN_EXIT_USAGE;
    }
    if (!name || !gateway || optind != argc) {
        fputs(help, stderr);
        return CN_EXIT_USAGE;
    }
    if (cn_quantity_parse(timeout, cn_units_time, &timeout_ms)) {
        cn_console_error(NULL, "--timeout '%s': expected a time such as '90 s'", timeout);
        return CN_EXIT_USAGE;
    }
    return wait_for(gateway, name, timeout_ms);
}

const struct cn_command cn_flash_wait = {
    .name = "wait",
    .summary = "wait until a board has joined",
    .help = help,
    .exits = "6 not heard in time",
    .run = run,
};
