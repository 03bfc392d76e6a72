// cairn-flash ssh: puts Cairn on a running board.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "boards/flash/commands.h"
#include "boards/flash/delivery.h"
#include "boards/flash/image/l4t_release.h"
#include "boards/flash/image/system.h"
#include "boards/flash/tool/console.h"
#include "boards/flash/tool/remote.h"

static const char help[] =
    "Usage: cairn-flash ssh USER@HOST --deb FILE... --site PROFILE --name NAME\n"
    "                       --gateway PROFILE\n"
    "\n"
    "Puts the packages, the profile and the key on a running board and installs them\n"
    "there. The user needs ssh without a password and sudo without one, or is root.\n"
    "Nothing is written there before the board's architecture, glibc and free space\n"
    "were checked.\n"
    "\n" CN_TARGET_HELP;

// Checks the board's answer, such as "arm64 2.35-0ubuntu3.8 1048576": architecture, version of
// libc6, KiB free in /var/lib. On a Jetson its release is in the next line.
static int check_answer(const char *answer, const struct cn_payload *payload, const char *host)
{
    struct cn_system system = {0};
    unsigned long long free_kib = 0;
    const char *release = strchr(answer, '\n');
    int code;

    if (sscanf(answer, "%15s %63s %llu", system.architecture, system.libc, &free_kib) != 3) {
        cn_console_error("its system must be Debian or Ubuntu", "%s: it has no libc6, or no df",
                         host);
        return CN_EXIT_FAILED;
    }
    code = cn_system_check(&system, payload->architecture, host);
    if (!code && release)
        code = cn_l4t_release_check(release + 1, payload, host);
    return code ? code : cn_system_check_free((uint64_t)free_kib << 10, payload, host);
}

static int check_board(const struct cn_target_options *order, const struct cn_payload *payload)
{
    struct cn_process_result result;
    char script[768], answer[512] = "";
    int code;

    snprintf(
        script, sizeof(script),
        "%s$s true && { %s ! $s test -e " CN_PAYLOAD_ETC
        "/node.key || { echo 'it has the key of a board already' >&2; exit 1; }; } && "
        "echo $(dpkg --print-architecture) $(dpkg-query -W -f '${Version}\\n' libc6 | head -n1) "
        "$(df -Pk /var/lib | awk 'NR == 2 {print $4}') && "
        "{ head -n1 " CN_L4T_RELEASE_FILE " 2>/dev/null || true; }",
        CN_REMOTE_ROOT, order->replace ? "true ||" : "");
    code = cn_remote_run(order->positional, script, -1, &result);
    if (code)
        cn_console_error("is ssh and sudo possible without a password? --replace writes over a key",
                         "%s: %s", order->positional, cn_process_complaint(&result));
    else
        snprintf(answer, sizeof(answer), "%.*s", (int)result.out.size,
                 result.out.data ? (const char *)result.out.data : "");
    cn_process_deinit(&result);
    return code ? code : check_answer(answer, payload, order->positional);
}

// Sends one file through standard input to TARGET.new. The file has its final mode before it gets
// its final name.
static int send(const char *host, const struct cn_payload_file *file)
{
    struct cn_process_result result;
    char script[2048];
    int from = open(file->source, O_RDONLY | O_CLOEXEC), code;

    snprintf(script, sizeof(script),
             "%sf=%s; $s mkdir -p \"${f%%/*}\" && { ! $s test -d \"$f\" || "
             "{ echo \"$f is a folder\" >&2; exit 1; }; } && "
             "$s sh -c 'umask 077; cat >\"$1.new\" && chmod %03o \"$1.new\" && sync' sh \"$f\" && "
             "$s sha256sum \"$f.new\"",
             CN_REMOTE_ROOT, file->target, file->mode);
    code = from < 0 ? CN_EXIT_FAILED : cn_remote_run(host, script, from, &result);
    if (from < 0)
        return code;
    close(from);
    if (!code) {
        char digest[2 * CN_DIGEST_SIZE + 1];

        cn_hex(digest, file->digest, CN_DIGEST_SIZE);
        if (result.out.size < strlen(digest) ||
            memcmp(result.out.data, digest, strlen(digest)) != 0)
            code = CN_EXIT_VERIFY;
    }
    if (code)
        cn_console_error("nothing was started there: mend it and run this again",
                         "%s: %s was not written: %s", host, file->target,
                         code == CN_EXIT_VERIFY ? "it reads back differently"
                                                : cn_process_complaint(&result));
    cn_process_deinit(&result);
    return code;
}

static int install(const char *host)
{
    struct cn_process_result result;
    char script[512];
    int code;

    snprintf(script, sizeof(script), "%s$s sh " CN_PAYLOAD_SEED "/firstboot", CN_REMOTE_ROOT);
    code = cn_remote_run(host, script, -1, &result);
    if (code)
        cn_console_error("its journal says more; run " CN_PAYLOAD_SEED "/firstboot there again",
                         "%s: the packages were not installed: %s", host,
                         cn_process_complaint(&result));
    cn_process_deinit(&result);
    return code;
}

static int check(struct cn_delivery *delivery)
{
    return check_board(&delivery->order, &delivery->payload);
}

static bool is_sent(const struct cn_payload_file *file)
{
    return strcmp(file->target, CN_PAYLOAD_UNIT) !=
           0; // not needed: ssh installs at once, without a first boot
}

// Renames all files to their final names after all were sent. The key is the last one.
static int put_in_place(const char *host, const struct cn_payload *payload)
{
    char script[CN_PAYLOAD_FILES * (CN_PAYLOAD_TARGET * 2 + 24) + 128];
    struct cn_process_result result;
    size_t length = (size_t)snprintf(script, sizeof(script), "%strue", CN_REMOTE_ROOT);
    int code;

    for (size_t i = 0; i < payload->count; i++)
        if (is_sent(&payload->files[i]))
            length += (size_t)snprintf(script + length, sizeof(script) - length,
                                       " && $s mv -fT %s.new %s", payload->files[i].target,
                                       payload->files[i].target);
    code = cn_remote_run(host, script, -1, &result);
    if (code)
        cn_console_error("nothing was started there: mend it and run this again",
                         "%s: the files were not put in their places: %s", host,
                         cn_process_complaint(&result));
    cn_process_deinit(&result);
    return code;
}

// Removes the *.new files of a failed delivery, if the board can be reached. Files already in their
// places stay.
static void take_back(const char *host, const struct cn_payload *payload)
{
    char script[CN_PAYLOAD_FILES * (CN_PAYLOAD_TARGET + 8) + 128];
    struct cn_process_result result;
    size_t length = (size_t)snprintf(script, sizeof(script), "%s$s rm -f", CN_REMOTE_ROOT);

    for (size_t i = 0; i < payload->count; i++)
        if (is_sent(&payload->files[i]))
            length += (size_t)snprintf(script + length, sizeof(script) - length, " %s.new",
                                       payload->files[i].target);
    if (cn_remote_run(host, script, -1, &result) == CN_EXIT_DONE)
        cn_console_step("removed", "what was written to %s is removed again", host);
    else
        cn_console_error(
            "remove the files *.new in " CN_PAYLOAD_ETC " and " CN_PAYLOAD_SEED " there",
            "%s: it holds a part of the files: %s", host, cn_process_complaint(&result));
    cn_process_deinit(&result);
}

static int send_all(struct cn_delivery *delivery)
{
    const char *host = delivery->order.positional;
    const struct cn_payload *payload = &delivery->payload;
    int code = CN_EXIT_DONE;

    for (size_t i = 0; i < payload->count && !code; i++)
        if (is_sent(&payload->files[i]))
            code = send(host, &payload->files[i]);
    if (!code)
        code = put_in_place(host, payload);
    if (code) {
        take_back(host, payload);
        return code;
    }
    delivery->delivered = true;
    code = install(host);
    if (!code)
        cn_console_step("done", "%s runs as %s", host, delivery->order.name);
    return code;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct cn_delivery_target target = {
        .help = help, .operand = "USER@HOST", .check = check, .write = send_all};

    (void)ports;
    return cn_delivery_run(&target, argc, argv);
}

const struct cn_command cn_flash_ssh = {
    .name = "ssh",
    .summary = "put Cairn on a board that runs",
    .help = help,
    .run = run,
};
