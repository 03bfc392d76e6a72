#include "boards/flash/card/card_maker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/fs.h>

#include "boards/flash/board/enrol.h"
#include "boards/flash/card/card.h"
#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "runtime/command/command.h"

// Opens the card so that nothing else can claim it. Returns -1 after printing why it cannot.
static int claim(const char *path)
{
    int card = open(path, O_RDWR | O_EXCL | O_CLOEXEC);

    if (card < 0)
        cn_console_error(errno == EBUSY ? "something uses it" : NULL, "%s: %s", path,
                         strerror(errno));
    return card;
}

// Drops what the kernel keeps of the card, so that what is read next comes from the card.
static void drop_cache(int card)
{
    fsync(card);
    ioctl(card, BLKFLSBUF, 0);
    posix_fadvise(card, 0, 0, POSIX_FADV_DONTNEED);
}

static int explain_write(const char *path, uint64_t done)
{
    cn_console_error("is it still there? run the command again, or take another card",
                     "%s: %s after %" PRIu64 " MiB; the card is incomplete and will not boot", path,
                     strerror(errno), done >> 20);
    return cn_process_interrupted() ? CN_EXIT_INTERRUPTED : CN_EXIT_FAILED;
}

// Writes the common image without its partition table and reads it back.
static int write_common(const struct cn_card_maker *maker, const char *path, uint64_t card_size)
{
    uint64_t done = 0;
    int card = claim(path), code;

    if (card < 0)
        return CN_EXIT_UNSAFE;
    if (cn_card_write_body(&maker->manifest, maker->file, card, card_size, &done)) {
        drop_cache(card);
        code = cn_card_compare(&maker->manifest, maker->file, card, true, path);
    } else {
        code = explain_write(path, done);
    }
    close(card);
    return code;
}

static int write_table(const struct cn_card_maker *maker, const char *path)
{
    int card = claim(path), code;

    if (card < 0)
        return CN_EXIT_UNSAFE;
    if (cn_card_write_head(&maker->manifest, maker->file, card)) {
        drop_cache(card);
        code = cn_card_compare(&maker->manifest, maker->file, card, false, path);
        ioctl(card, BLKRRPART); // an error does no harm: the kernel knows no partitions of the card
    } else {
        code = explain_write(path, 0);
    }
    close(card);
    return code;
}

// Reads the board's files from the card itself, not from the kernel's cache.
static int read_back(const struct cn_image_file *root, const struct cn_payload *payload)
{
    int card = claim(root->path);

    if (card < 0)
        return CN_EXIT_UNSAFE;
    drop_cache(card);
    close(card);
    return cn_image_file_reread(root, payload);
}

// Writes the board's files into the root on the card.
static int write_identity(const struct cn_card_maker *maker, const char *path,
                          const struct cn_workspace *space, const struct cn_payload *payload)
{
    static struct cn_image_file root;
    int code;

    root = maker->image;
    root.path = root.name = path;
    snprintf(root.target, sizeof(root.target), "%s?offset=%" PRIu64, path, root.root.offset);
    code = cn_image_file_inject(&root, space, payload);
    return code ? code : read_back(&root, payload);
}

static int note(struct cn_card_maker *maker, const struct cn_board_row *row,
                enum cn_card_state state)
{
    cn_err err = cn_card_log_note(&maker->log, row->name, state, row->place);

    if (err)
        cn_console_error(NULL, "%s.cards: %s", maker->order.out, cn_err_text(err));
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

// Finds out whether the board whose card is perhaps complete has it. The gateway forgets when it
// restarts that it heard a board, so one that was not heard is not revoked here.
static int ask_for_board(const struct cn_card_maker *maker, bool *complete)
{
    const struct cn_target_options *order = &maker->order;
    struct cn_enrolment found;
    int code = cn_enrol_look(order->gateway, order->name, false, &found);

    if (code || !found.enrolled || found.revoked)
        return code;
    *complete = found.heard;
    if (found.heard)
        return CN_EXIT_DONE;
    cn_console_error("start the board and run this again; or revoke it with 'cairn-aggregator "
                     "revoke', and another card is written",
                     "a killed cairn-flash may have completed the card of %s, and the gateway has "
                     "not heard the board",
                     order->name);
    return CN_EXIT_FAILED;
}

// Takes up what a killed run left behind. An enrolment whose key is on no complete card is revoked.
// When the partition table was perhaps written and the board was heard, its card is *complete.
static int settle(struct cn_card_maker *maker, const struct cn_board_row *row, bool *complete)
{
    enum cn_card_state state = cn_card_log_find(&maker->log, row->name);
    int code;

    if (state != CN_CARD_BEGUN && state != CN_CARD_TABLE)
        return CN_EXIT_DONE;
    code = state == CN_CARD_TABLE ? ask_for_board(maker, complete)
                                  : cn_enrol_settle(&maker->order, complete);
    if (!code && *complete)
        cn_console_step("heard", "%s was heard: its card was written", row->name);
    return code ? code : note(maker, row, *complete ? CN_CARD_WRITTEN : CN_CARD_NEW);
}

struct card_note {
    struct cn_card_maker *maker;
    const struct cn_board_row *row;
};

static int note_enrolment(void *context, bool enrolled)
{
    const struct card_note *card = context;

    return note(card->maker, card->row, enrolled ? CN_CARD_BEGUN : CN_CARD_NEW);
}

// Enrols the board and completes its card.
static int complete(struct cn_card_maker *maker, const struct cn_board_row *row,
                    const struct cn_workspace *space, struct cn_payload *payload)
{
    struct card_note card = {maker, row};
    char key[512];
    int code = cn_enrol_make(&maker->order, space, note_enrolment, &card, key, sizeof(key));

    if (code)
        return code;
    code = cn_payload_add(payload, key, CN_PAYLOAD_ETC "/node.key", 0600);
    if (!code)
        code = write_identity(maker, row->place, space, payload);
    if (!code && cn_process_interrupted())
        code = CN_EXIT_INTERRUPTED;
    if (!code)
        code = note(maker, row, CN_CARD_TABLE);
    if (!code)
        code = write_table(maker, row->place);
    if (!code)
        return note(maker, row, CN_CARD_WRITTEN);
    // The card counts as incomplete from here on, whatever is on it.
    if (note(maker, row, cn_enrol_revoke(&maker->order) ? CN_CARD_BEGUN : CN_CARD_NEW))
        return CN_EXIT_FAILED;
    return code;
}

static int make_card(struct cn_card_maker *maker, const struct cn_board_row *row,
                     uint64_t card_size)
{
    static struct cn_payload payload;
    struct cn_workspace space = {0};
    int code;

    if (cn_workspace_open(&space)) {
        cn_console_error(NULL, "no folder for the key could be made in /dev/shm or /tmp");
        return CN_EXIT_FAILED;
    }
    payload = (struct cn_payload){0};
    code = cn_payload_make_identity(&maker->order, &space, &payload);
    if (!code)
        code = write_common(maker, row->place, card_size);
    if (!code)
        code = complete(maker, row, &space, &payload);
    cn_workspace_close(&space);
    return code;
}

int cn_card_maker_make(struct cn_card_maker *maker, const struct cn_board_row *row)
{
    struct cn_disk device = {0};
    bool complete = false;
    int code;

    maker->order.name = row->name;
    maker->order.group = row->group[0] ? row->group : NULL;
    code =
        strchr(row->place, '?')
            ? cn_card_device_refuse(NULL, row->place, "a path without '?' is needed")
            : cn_card_device_check(row->place, maker->manifest.size, &maker->permission, &device);
    if (!code)
        code = cn_card_device_confirm(row->place, &device, row->name, &maker->permission);
    if (code || maker->permission.dry_run)
        return code;
    code = settle(maker, row, &complete);
    return code || complete ? code : make_card(maker, row, device.size);
}
