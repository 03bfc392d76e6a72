// cairn-flash cards: writes the cards of many boards from one base image.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boards/flash/card/card_maker.h"
#include "boards/flash/commands.h"
#include "boards/flash/image/l4t_release.h"
#include "boards/flash/image/vendor_image.h"
#include "boards/flash/tool/console.h"
#include "boards/flash/tool/draft.h"
#include "boards/flash/tool/process.h"
#include "runtime/port/crypto.h"

#define DRAFT "image"   // the common image's name until it is whole
#define COMMON "common" // in its manifest, in place of a board's name
#define ROOT_MIN 4096   // the first bytes of a card, which are written last
#define REMOVE_ALL "remove the image and its .json and .cards, or choose another -o"

static const char help[] =
    "Usage: cairn-flash cards LIST --base IMAGE --deb FILE... --site PROFILE\n"
    "                         --gateway PROFILE -o OUT [--yes] [--fixed]\n"
    "\n"
    "Writes the cards of many boards. LIST has a line for each: NAME DEVICE [GROUP].\n"
    "A device may occur again, for cards that are changed between. OUT is made of\n"
    "IMAGE once, with the packages and without a key; it is not copied for a board.\n"
    "Each card is written, read back, and gets its board's profile and a new key. A\n"
    "card that fails does not stop the others; the last lines name it, with its exit\n"
    "code. OUT.cards has the progress: run the same command again to go on.\n"
    "\n"
    "  --base IMAGE       the vendor's image\n"
    "  --partition P      its root, by name, label or number, when it cannot be told\n"
    "  -o OUT             the common image\n"
    "  --deb FILE         package to install, up to 4 times in order\n"
    "  --site FILE        profile of the site; paths in it are paths on the board\n"
    "  --board TYPE       the site's profile must be of this type of board\n"
    "  --gateway PROFILE  enrol at the aggregator of this profile, here or at\n"
    "                     ssh://HOST/PATH\n"
    "  --add FILE:PATH    another file, readable by all on the board, up to 16 times\n"
    "  --yes              do not ask; each device may occur once\n"
    "  --fixed            devices may be ones that cannot be taken out\n"
    "  --dry-run          make all checks, write nothing\n"
    "  --json             one object a line; needs --yes or --dry-run\n";

// Tells whether two names are those of one device, perhaps by way of links.
static bool is_same_device(const char *one, const char *other)
{
    struct stat first, second;

    return strcmp(one, other) == 0 ||
           (stat(one, &first) == 0 && stat(other, &second) == 0 && S_ISBLK(first.st_mode) &&
            S_ISBLK(second.st_mode) && first.st_rdev == second.st_rdev);
}

static bool is_twice(const struct cn_board_table *table, const struct cn_board_row *row)
{
    for (size_t i = 0; &table->rows[i] != row; i++)
        if (is_same_device(table->rows[i].place, row->place))
            return true;
    return false;
}

// Checks the list and the profile of each board, before anything is written.
static int check_boards(struct cn_card_maker *maker, const struct cn_board_table *table)
{
    static struct cn_payload payload;
    struct cn_workspace space = {0};
    int code = CN_EXIT_DONE;

    for (size_t i = 0; i < table->count && !code; i++) {
        const struct cn_board_row *row = &table->rows[i];

        if (maker->permission.yes && is_twice(table, row)) {
            cn_console_error("without --yes you are asked for each card",
                             "line %u: %s is the device of another board, too", row->line,
                             row->place);
            return CN_EXIT_USAGE;
        }
        if (cn_workspace_open(&space))
            return CN_EXIT_FAILED;
        payload = (struct cn_payload){0};
        maker->order.name = row->name;
        code = cn_payload_make_identity(&maker->order, &space, &payload);
        maker->device = payload.device;
        cn_workspace_close(&space);
    }
    return code;
}

// Hashes what all cards have in common: the base image by path, size and time, the files by their
// content.
static int digest_order(const struct cn_target_options *order, const struct cn_payload *payload,
                        uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_sha256 sha;
    struct stat info;
    char text[5000], *path = realpath(order->base, NULL);

    if (!path || stat(path, &info)) {
        cn_console_error(NULL, "%s: %s", order->base, strerror(errno));
        free(path);
        return CN_EXIT_FAILED;
    }
    cn_sha256_init(&sha);
    snprintf(text, sizeof(text), "%s %" PRId64 " %" PRId64 ".%09ld %s\n", path,
             (int64_t)info.st_size, (int64_t)info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
             order->partition ? order->partition : "");
    free(path);
    cn_sha256_add(&sha, text, strlen(text));
    for (size_t i = 0; i < payload->count; i++) {
        cn_sha256_add(&sha, payload->files[i].target, strlen(payload->files[i].target) + 1);
        cn_sha256_add(&sha, payload->files[i].digest, CN_DIGEST_SIZE);
    }
    cn_sha256_finish(&sha, digest);
    return CN_EXIT_DONE;
}

static int check_root(struct cn_card_maker *maker, const char *path,
                      const struct cn_payload *payload)
{
    struct cn_image_file *image = &maker->image;
    int code = cn_image_file_open(path, path, maker->order.partition, payload->architecture, image);

    if (!code && image->root.offset < ROOT_MIN) {
        cn_console_error("'image' and 'write' can write it, a board at a time",
                         "%s has no partition table", path);
        code = CN_EXIT_FAILED;
    }
    return code ? code : cn_l4t_release_check_image(image, payload);
}

// Makes the common image in the draft: the base image with the packages.
static int fill_draft(struct cn_card_maker *maker, const struct cn_draft *draft,
                      const struct cn_workspace *space, const struct cn_payload *payload)
{
    const struct cn_target_options *order = &maker->order;
    char copy[CN_DRAFT_PATH];
    uint64_t size;
    int code = cn_manifest_file_check_free(order->out);

    cn_draft_path(draft, DRAFT, copy);
    if (!code)
        code = cn_vendor_image_copy(order->base, copy, &size);
    if (!code)
        code = check_root(maker, copy, payload);
    if (!code)
        code = cn_image_file_check_free(&maker->image, payload, false);
    if (!code)
        code = cn_image_file_inject(&maker->image, space, payload);
    if (!code)
        code = cn_manifest_file_make(copy, COMMON, payload);
    return !code && cn_process_interrupted() ? CN_EXIT_INTERRUPTED : code;
}

static int make_common(struct cn_card_maker *maker, const struct cn_workspace *space,
                       const struct cn_payload *payload)
{
    struct cn_draft draft;
    int code = cn_draft_open(maker->order.out, &draft);

    if (code)
        return code;
    code = cn_draft_clear(&draft);
    if (!code)
        code = fill_draft(maker, &draft, space, payload);
    if (!code)
        code = cn_draft_publish(&draft, DRAFT, ".json");
    cn_draft_close(&draft);
    if (!code)
        cn_console_step("common", "%s is made: %" PRIu64 " MiB, without a key", maker->order.out,
                        maker->image.size >> 20);
    return code;
}

// Makes the file of progress and the common image, as far as they are not there. The file is first:
// it says of what the image is made, also if this program is killed.
static int make_missing(struct cn_card_maker *maker, const struct cn_workspace *space,
                        const struct cn_payload *payload, const uint8_t digest[CN_DIGEST_SIZE],
                        bool resumed)
{
    int code = CN_EXIT_DONE;
    bool again;

    if (!resumed && access(maker->order.out, F_OK) == 0) {
        cn_console_error("remove it, or choose another -o", "%s: %s", maker->order.out,
                         strerror(EEXIST));
        return CN_EXIT_FAILED;
    }
    if (!resumed)
        code = cn_card_log_open(maker->order.out, digest, CN_CARD_LOG_MAKE, &maker->log, &again);
    if (!code && access(maker->order.out, F_OK))
        code = make_common(maker, space, payload);
    if (code && !resumed)
        cn_card_log_remove(maker->order.out, &maker->log);
    return code;
}

// Opens the common image, which must be this user's. Returns an exit code after printing the fault.
static int open_common(struct cn_card_maker *maker)
{
    const char *path = maker->order.out;
    struct stat info;

    maker->file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (maker->file < 0 || fstat(maker->file, &info)) {
        cn_console_error(NULL, "%s: %s", path, strerror(errno));
        return CN_EXIT_FAILED;
    }
    if (S_ISREG(info.st_mode) && info.st_uid == geteuid())
        return CN_EXIT_DONE;
    cn_console_error(REMOVE_ALL, "%s is not a file of this user", path);
    return CN_EXIT_FAILED;
}

// Loads the common image, checked against its manifest. An image of one board holds its key.
static int load_common(struct cn_card_maker *maker, const struct cn_payload *payload)
{
    const char *path = maker->order.out;
    int code = open_common(maker);

    if (!code)
        code = cn_manifest_file_load(path, &maker->manifest);
    if (!code)
        code = cn_manifest_file_verify(&maker->manifest, maker->file, path, "check the image");
    if (!code)
        code = check_root(maker, path, payload);
    if (code)
        return code;
    if (strcmp(maker->manifest.name, COMMON) == 0 &&
        !cn_image_file_has(&maker->image, CN_PAYLOAD_ETC "/node.key"))
        return CN_EXIT_DONE;
    cn_console_error(REMOVE_ALL, "%s is the image of the board %s", path, maker->manifest.name);
    return CN_EXIT_FAILED;
}

// Makes or finds the common image and the file of progress.
static int prepare(struct cn_card_maker *maker)
{
    static struct cn_payload payload;
    struct cn_workspace space = {0};
    uint8_t digest[CN_DIGEST_SIZE];
    bool resumed = false, made;
    int code;

    if (cn_workspace_open(&space))
        return CN_EXIT_FAILED;
    payload.device = maker->device;
    code = cn_payload_make_common(&maker->order, &space, &payload);
    if (!code)
        code = digest_order(&maker->order, &payload, digest);
    if (!code)
        code = cn_card_log_open(maker->order.out, digest,
                                maker->permission.dry_run ? CN_CARD_LOG_LOOK : CN_CARD_LOG_TAKE,
                                &maker->log, &resumed);
    made = resumed && access(maker->order.out, F_OK) == 0;
    if (!code && !made) {
        cn_payload_print(&payload);
        if (!maker->permission.dry_run)
            code = make_missing(maker, &space, &payload, digest, resumed);
        else if (!cn_vendor_image_is_packed(maker->order.base))
            code = check_root(maker, maker->order.base, &payload);
        made = !maker->permission.dry_run;
    }
    if (!code && made)
        code = load_common(maker, &payload);
    if (!made)
        maker->manifest.size = maker->image.size;
    cn_workspace_close(&space);
    return code;
}

static int write_all(struct cn_card_maker *maker, const struct cn_board_table *table, int *codes)
{
    size_t done = 0, earlier = 0;
    int first = CN_EXIT_DONE;

    for (size_t i = 0; i < table->count; i++) {
        const struct cn_board_row *row = &table->rows[i];

        codes[i] = CN_EXIT_INTERRUPTED; // unless its turn comes
        if (cn_process_interrupted())
            continue;
        if (cn_card_log_find(&maker->log, row->name) == CN_CARD_WRITTEN) {
            codes[i] = CN_EXIT_DONE;
            earlier++;
            continue;
        }
        cn_console_step("card", "card %zu of %zu: %s on %s", i + 1, table->count, row->name,
                        row->place);
        codes[i] = cn_card_maker_make(maker, row);
        done += codes[i] == CN_EXIT_DONE;
        if (!codes[i])
            cn_console_step("ready",
                            maker->permission.dry_run ? "%s can become the card of %s"
                                                      : "%s is ready for %s; take it out",
                            row->place, row->name);
    }
    if (earlier)
        cn_console_step("earlier", "%zu cards were written earlier", earlier);
    cn_console_step("done",
                    maker->permission.dry_run ? "%zu of %zu cards can be written"
                                              : "%zu of %zu cards are written",
                    done + (maker->permission.dry_run ? 0 : earlier), table->count);
    for (size_t i = 0; i < table->count; i++) {
        if (codes[i])
            cn_console_error("run the same command again to write it",
                             "%s on %s is not written: exit code %d", table->rows[i].name,
                             table->rows[i].place, codes[i]);
        if (!first)
            first = codes[i];
    }
    return cn_process_interrupted() ? CN_EXIT_INTERRUPTED : first;
}

static int check_options(const struct cn_target_options *order)
{
    const char *missing = !order->positional || order->positional[0] == '-' ? "LIST"
                          : !order->base                                    ? "--base"
                          : !order->out                                     ? "-o OUT"
                                                                            : NULL;

    if (missing)
        cn_console_error("--help describes the options", "%s is missing", missing);
    else if (order->group || order->replace)
        cn_console_error("the list names the groups; no card is written over another board's files",
                         "--group and --replace are for one board");
    else if (strlen(order->out) > 512)
        cn_console_error(NULL, "-o: a path of at most 512 bytes is needed");
    else
        return CN_EXIT_DONE;
    return CN_EXIT_USAGE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static struct cn_card_maker maker = {.order = {.many = true}, .file = -1, .log = {.file = -1}};
    struct cn_board_table table = {0};
    int *codes = NULL, code = cn_target_options_parse(argc, argv, help, &maker.order);

    (void)ports;
    if (!code)
        code = check_options(&maker.order);
    if (!code)
        code = cn_board_table_load(maker.order.positional, &table);
    if (code)
        return code;
    maker.permission = (struct cn_card_permission){.yes = maker.order.yes,
                                                   .fixed = maker.order.fixed,
                                                   .dry_run = maker.order.dry_run,
                                                   .json = maker.order.json};
    cn_process_catch_signals();
    codes = calloc(table.count, sizeof(*codes));
    code = codes ? check_boards(&maker, &table) : CN_EXIT_FAILED;
    if (!code)
        code = prepare(&maker);
    if (code && cn_process_interrupted())
        code = CN_EXIT_INTERRUPTED;
    if (!code)
        code = write_all(&maker, &table, codes);
    if (maker.file >= 0)
        close(maker.file);
    free(codes);
    cn_manifest_file_deinit(&maker.manifest);
    cn_card_log_close(&maker.log);
    cn_board_table_deinit(&table);
    return code;
}

const struct cn_command cn_flash_cards = {
    .name = "cards",
    .summary = "write the cards of many boards from one image",
    .help = help,
    .run = run,
};
