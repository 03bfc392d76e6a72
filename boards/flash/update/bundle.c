#include "boards/flash/update/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boards/flash/image/extents.h"
#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "runtime/command/command.h"
#include "runtime/port/crypto.h"

#define CHUNK (1u << 20)
#define HASHED 4096 // bytes; RAUC's index of hashes is for whole blocks of this size
#define SYSTEM_CONF "/etc/rauc/system.conf"

int cn_bundle_open(struct cn_bundle *bundle)
{
    char content[CN_DRAFT_PATH];
    int code = cn_draft_open(bundle->out, &bundle->draft);

    if (code)
        return code;
    code = cn_draft_clear(&bundle->draft);
    if (code)
        return code;
    cn_draft_path(&bundle->draft, "content", content);
    if (mkdir(content, 0700) == 0)
        return CN_EXIT_DONE;
    cn_console_error(NULL, "%s: %s", content, strerror(errno));
    return CN_EXIT_FAILED;
}

// --- What may be in a root ---

static int refuse_identities(const struct cn_image_file *image)
{
    // What belongs to one board. Paths of a gateway, too: a root may come from one.
    static const char *const own[] = {
        CN_PAYLOAD_ETC "/node.key",
        CN_PAYLOAD_ETC "/node.yaml",
        CN_PAYLOAD_ETC "/gateway.yaml",
        "/var/lib/cairn/checkpoint.a",
        "/var/lib/cairn/checkpoint.b",
        "/var/lib/private/cairn/checkpoint.a",
        "/var/lib/private/cairn/checkpoint.b",
        "/var/lib/cairn-aggregator/ledger.sqlite",
        "/var/lib/private/cairn-aggregator/ledger.sqlite",
        "/etc/ssh/ssh_host_ed25519_key",
        "/etc/ssh/ssh_host_rsa_key",
        "/etc/ssh/ssh_host_ecdsa_key",
    };

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (!cn_image_file_has(image, own[i]))
            continue;
        cn_console_error("take an image that no board has run from",
                         "the root has %s, which belongs to one board; a bundle is for all",
                         own[i]);
        return CN_EXIT_FAILED;
    }
    return CN_EXIT_DONE;
}

static int check_size(const struct cn_bundle *bundle, const struct cn_image_file *image)
{
    if (!bundle->slot_size || image->superblock.size <= bundle->slot_size)
        return CN_EXIT_DONE;
    cn_console_error("take a base image with a smaller root, or shrink it with resize2fs",
                     "the root has %" PRIu64 " MiB, the smallest slot %" PRIu64 " MiB",
                     image->superblock.size >> 20, bundle->slot_size >> 20);
    return CN_EXIT_FAILED;
}

// Writes the keyring of the root into the folder, for RAUC.
static int take_keyring(const struct cn_bundle *bundle, const struct cn_image_file *image)
{
    struct cn_process_result result = {0};
    char path[CN_DRAFT_PATH];
    FILE *file;
    bool whole = false;

    cn_draft_path(&bundle->draft, "keyring.pem", path);
    file = fopen(path, "we");
    if (file && cn_image_file_has(image, bundle->conf.keyring) &&
        cn_image_file_cat(image, bundle->conf.keyring, &result) == CN_OK && result.out.size)
        whole = fwrite(result.out.data, 1, result.out.size, file) == result.out.size;
    if (file)
        whole = fclose(file) == 0 && whole;
    cn_process_deinit(&result);
    if (!whole)
        cn_console_error("--add ca.pem:PATH puts it there",
                         "the root has no keyring %s, which its " SYSTEM_CONF " names",
                         bundle->conf.keyring);
    return whole ? CN_EXIT_DONE : CN_EXIT_FAILED;
}

int cn_bundle_check_root(struct cn_bundle *bundle, const struct cn_image_file *image)
{
    struct cn_process_result result = {0};
    int code = refuse_identities(image);

    if (!code)
        code = check_size(bundle, image);
    if (code)
        return code;
    if (cn_image_file_has(image, SYSTEM_CONF) &&
        cn_image_file_cat(image, SYSTEM_CONF, &result) == CN_OK && result.out.size &&
        !cn_buffer_append(&result.out, "", 1))
        cn_rauc_conf_read((const char *)result.out.data, &bundle->conf);
    cn_process_deinit(&result);
    if (!bundle->conf.compatible[0] || !bundle->conf.keyring[0]) {
        cn_console_error("a board with this system could not be updated again; --add "
                         "system.conf:" SYSTEM_CONF " puts it there",
                         "the root has no " SYSTEM_CONF " with 'compatible' and a keyring");
        return CN_EXIT_FAILED;
    }
    return take_keyring(bundle, image);
}

// --- Making it ---

// Copies [from, to) of one file into another, which has zeros there.
static bool copy_range(int in, int out, uint64_t from, uint64_t to, uint64_t base, uint8_t *chunk)
{
    while (from < to && !cn_process_interrupted()) {
        size_t want = to - from < CHUNK ? (size_t)(to - from) : CHUNK;
        ssize_t got = pread(in, chunk, want, (off_t)from);

        if (got <= 0 || pwrite(out, chunk, (size_t)got, (off_t)(from - base)) != got)
            return false;
        from += (uint64_t)got;
    }
    return from >= to;
}

// Copies the root without the blocks that its file system calls free: they may hold what was
// deleted.
static bool copy_root(int in, int out, const struct cn_image_file *image,
                      const struct cn_extents *unused)
{
    uint64_t base = image->root.offset, at = base, end = base + image->superblock.size;
    uint8_t *chunk = malloc(CHUNK);
    bool copied = chunk && ftruncate(out, (off_t)image->superblock.size) == 0;

    for (size_t i = 0; i < unused->count && copied; i++) {
        uint64_t from = unused->list[i].offset, to = from + unused->list[i].size;

        if (from >= end || to <= at)
            continue;
        if (from > at)
            copied = copy_range(in, out, at, from, base, chunk);
        at = to;
    }
    if (at < end)
        copied = copied && copy_range(in, out, at, end, base, chunk);
    free(chunk);
    return copied;
}

static int take_root(const struct cn_bundle *bundle, const struct cn_image_file *image)
{
    struct cn_extents unused = {0};
    char path[CN_DRAFT_PATH];
    int in = open(image->path, O_RDONLY | O_CLOEXEC), out;
    bool copied;

    cn_draft_path(&bundle->draft, "content/rootfs.ext4", path);
    out = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    copied = in >= 0 && out >= 0 && cn_extents_read_free(image->path, &unused) &&
             copy_root(in, out, image, &unused);
    if (in >= 0)
        close(in);
    if (out >= 0 && close(out))
        copied = false;
    cn_extents_deinit(&unused);
    if (!copied && !cn_process_interrupted())
        cn_console_error(NULL, "%s could not be written: %s", path, strerror(errno));
    return copied ? CN_EXIT_DONE : CN_EXIT_FAILED;
}

static int write_manifest(const struct cn_bundle *bundle, const struct cn_image_file *image)
{
    bool indexed = image->superblock.size % HASHED == 0, failed;
    char path[CN_DRAFT_PATH];
    FILE *file;

    cn_draft_path(&bundle->draft, "content/manifest.raucm", path);
    file = fopen(path, "we");
    if (!file) {
        cn_console_error(NULL, "%s: %s", path, strerror(errno));
        return CN_EXIT_FAILED;
    }
    fprintf(file, "[update]\ncompatible=%s\nversion=%s\n\n[bundle]\nformat=verity\n\n",
            bundle->conf.compatible, bundle->version);
    fprintf(file, "[image.rootfs]\nfilename=rootfs.ext4\n%s",
            indexed ? "adaptive=block-hash-index\n" : "");
    failed = fclose(file) != 0;
    if (failed)
        cn_console_error(NULL, "%s: %s", path, strerror(errno));
    return failed ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

// Runs RAUC. what says what was tried, for the message.
static int run_rauc(const char *const argv[], const char *what, int fault)
{
    struct cn_process_result result;
    bool ran = cn_process_run(argv, -1, &result) == CN_OK && result.code == 0;

    if (!ran && result.code == 127)
        cn_console_error("install rauc 1.8 or later and squashfs-tools", "rauc is needed");
    else if (!ran && !cn_process_interrupted())
        cn_console_error(NULL, "%s: %s", what, cn_process_complaint(&result));
    cn_process_deinit(&result);
    return ran ? CN_EXIT_DONE : fault;
}

cn_err cn_bundle_digest(const char *path, uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_sha256 sha;
    uint8_t *chunk = malloc(CHUNK);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;

    cn_sha256_init(&sha);
    while (chunk && file >= 0 && (got = read(file, chunk, CHUNK)) > 0)
        cn_sha256_add(&sha, chunk, (size_t)got);
    cn_sha256_finish(&sha, digest);
    if (file >= 0)
        close(file);
    free(chunk);
    return got == 0 ? CN_OK : CN_EIO;
}

// Extracts the bundle again, with the keyring that boards will have, and compares the root.
static int read_back(const struct cn_bundle *bundle, const char *made, const char *keyring)
{
    char folder[CN_DRAFT_PATH], again[CN_DRAFT_PATH], root[CN_DRAFT_PATH];
    const char *const extract[] = {"rauc", "--keyring", keyring, "extract", made, folder, NULL};
    uint8_t wanted[CN_DIGEST_SIZE], found[CN_DIGEST_SIZE];
    int code;

    cn_draft_path(&bundle->draft, "again", folder);
    cn_draft_path(&bundle->draft, "again/rootfs.ext4", again);
    cn_draft_path(&bundle->draft, "content/rootfs.ext4", root);
    code = run_rauc(extract, "the bundle cannot be read again", CN_EXIT_VERIFY);
    if (code)
        return code;
    if (cn_bundle_digest(root, wanted) || cn_bundle_digest(again, found) ||
        memcmp(wanted, found, CN_DIGEST_SIZE) != 0) {
        cn_console_error(NULL, "the root in the bundle is not the one that was put there");
        return CN_EXIT_VERIFY;
    }
    return CN_EXIT_DONE;
}

int cn_bundle_make(struct cn_bundle *bundle, const struct cn_image_file *image)
{
    char made[CN_DRAFT_PATH], content[CN_DRAFT_PATH], keyring[CN_DRAFT_PATH];
    const char *const sign[] = {"rauc",  "--cert",    bundle->certificate,
                                "--key", bundle->key, "--keyring",
                                keyring, "bundle",    content,
                                made,    NULL};
    struct stat info;
    int code = take_root(bundle, image);

    cn_draft_path(&bundle->draft, "bundle", made);
    cn_draft_path(&bundle->draft, "content", content);
    cn_draft_path(&bundle->draft, "keyring.pem", keyring);
    if (!code)
        code = write_manifest(bundle, image);
    if (!code)
        code = run_rauc(sign, "the bundle cannot be signed", CN_EXIT_FAILED);
    if (!code)
        code = read_back(bundle, made, keyring);
    if (!code && cn_process_interrupted())
        code = CN_EXIT_INTERRUPTED;
    if (!code)
        code = cn_draft_publish(&bundle->draft, "bundle", NULL);
    if (!code && stat(bundle->out, &info) == 0)
        cn_console_step(
            "done", "%s is ready: version %s for %s, %" PRIu64 " MiB for a slot of %" PRIu64 " MiB",
            bundle->out, bundle->version, bundle->conf.compatible, (uint64_t)info.st_size >> 20,
            image->superblock.size >> 20);
    return code;
}
