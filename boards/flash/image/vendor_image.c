#include "boards/flash/image/vendor_image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "runtime/command/command.h"
#include "runtime/port/platform.h"

#define CHUNK ((size_t)256 << 10) // a chunk of zeros becomes a hole

static const struct {
    const char *ending;
    const char *argv[4]; // the image's path is appended
} packers[] = {
    {".zst", {"zstd", "-dcq", "--"}},
    {".xz", {"xz", "-dcq", "--"}},
    {".gz", {"gzip", "-dcq", "--"}},
};

static bool ends_with(const char *text, const char *ending)
{
    size_t length = strlen(text), tail = strlen(ending);

    return length > tail && strcmp(text + length - tail, ending) == 0;
}

bool cn_vendor_image_is_packed(const char *base)
{
    for (size_t i = 0; i < sizeof(packers) / sizeof(packers[0]); i++)
        if (ends_with(base, packers[i].ending))
            return true;
    return false;
}

// Files that are no raw image, by their first bytes.
static const struct {
    const char *magic;
    size_t size; // bytes of magic
    const char *kind, *remedy;
} odd_files[] = {
    {"PK\3\4", 4, "is a zip archive", "unzip it, and take the .img that is in it"},
    {"\x3a\xff\x26\xed", 4, "is a sparse image of Android",
     "'simg2img IMAGE OUT.img' makes a raw one"},
    {"QFI\xfb", 4, "is a qcow2 image", "'qemu-img convert -O raw IMAGE OUT.img' makes a raw one"},
    {"\xfd"
     "7zXZ",
     5, "is packed with xz", "let its name end in .xz"},
    {"\x1f\x8b", 2, "is packed with gzip", "let its name end in .gz"},
    {"\x28\xb5\x2f\xfd", 4, "is packed with zstd", "let its name end in .zst"},
};

int cn_vendor_image_check_raw(const char *path, const char *name)
{
    char head[8] = "";
    FILE *file = fopen(path, "re");
    size_t got = file ? fread(head, 1, sizeof(head), file) : 0;

    if (file)
        fclose(file);
    for (size_t i = 0; i < sizeof(odd_files) / sizeof(odd_files[0]); i++) {
        if (got < odd_files[i].size || memcmp(head, odd_files[i].magic, odd_files[i].size) != 0)
            continue;
        cn_console_error(odd_files[i].remedy, "%s %s, not the raw image of a card", name,
                         odd_files[i].kind);
        return CN_EXIT_FAILED;
    }
    return CN_EXIT_DONE;
}

// Reads a full chunk, or less at the end of the stream.
static ssize_t read_chunk(int from, uint8_t *chunk)
{
    size_t size = 0;

    while (size < CHUNK) {
        ssize_t got = read(from, chunk + size, CHUNK - size);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        size += (size_t)got;
    }
    return (ssize_t)size;
}

static bool copy(int from, int to, uint64_t total, uint64_t *size)
{
    uint8_t *chunk = malloc(CHUNK);
    uint64_t begun_ms = cn_platform_now_ms();
    ssize_t got = -1;

    *size = 0;
    while (chunk && !cn_process_interrupted() && (got = read_chunk(from, chunk)) > 0) {
        bool zero = chunk[0] == 0 && memcmp(chunk, chunk + 1, (size_t)got - 1) == 0;

        if (!zero && pwrite(to, chunk, (size_t)got, (off_t)*size) != got) {
            got = -1;
            break;
        }
        *size += (uint64_t)got;
        if (total)
            cn_console_progress("copy", *size, total, begun_ms);
    }
    cn_console_progress_end();
    free(chunk);
    if (cn_process_interrupted())
        errno = EINTR;
    return got == 0 && !cn_process_interrupted() && ftruncate(to, (off_t)*size) == 0;
}

static int unpack(const char *base, const char *const argv[], int to, uint64_t *size)
{
    int from, saved, code;
    pid_t child;
    bool copied;

    if (cn_process_start(argv, &child, &from))
        return CN_EXIT_FAILED;
    errno = 0;
    copied = copy(from, to, 0, size);
    saved = errno;
    close(from);
    code = cn_process_wait(child);
    if (copied && code == 0)
        return CN_EXIT_DONE;
    if (cn_process_interrupted())
        return CN_EXIT_INTERRUPTED;
    if (code == 127)
        cn_console_error("install it", "%s needs the program %s", base, argv[0]);
    else if (code)
        cn_console_error("download it again", "%s is not a whole file for %s", base, argv[0]);
    else
        cn_console_error(NULL, "%s could not be unpacked: %s", base, strerror(saved));
    return CN_EXIT_FAILED;
}

static int copy_plain(const char *base, int to, uint64_t *size)
{
    int from = open(base, O_RDONLY | O_CLOEXEC), code = CN_EXIT_FAILED;
    struct stat info;

    if (from < 0 || fstat(from, &info) || !S_ISREG(info.st_mode))
        cn_console_error(NULL, "%s: %s", base, from < 0 ? strerror(errno) : "it is not a file");
    else if (!copy(from, to, (uint64_t)info.st_size, size))
        cn_console_error(NULL, "%s could not be copied: %s", base, strerror(errno));
    else
        code = CN_EXIT_DONE;
    if (from >= 0)
        close(from);
    return code;
}

int cn_vendor_image_copy(const char *base, const char *out, uint64_t *size)
{
    int to, code = -1;

    if (access(base, R_OK)) {
        cn_console_error(NULL, "%s: %s", base, strerror(errno));
        return CN_EXIT_FAILED;
    }
    if (!cn_vendor_image_is_packed(base) && cn_vendor_image_check_raw(base, base))
        return CN_EXIT_FAILED;
    to = open(out, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (to < 0) {
        cn_console_error(errno == EEXIST ? "remove it, or choose another -o" : NULL, "%s: %s", out,
                         strerror(errno));
        return CN_EXIT_FAILED;
    }
    for (size_t i = 0; i < sizeof(packers) / sizeof(packers[0]); i++) {
        const char *const *words = packers[i].argv;
        const char *const argv[] = {words[0], words[1], words[2], base, NULL};

        if (ends_with(base, packers[i].ending))
            code = unpack(base, argv, to, size);
    }
    if (code < 0)
        code = copy_plain(base, to, size);
    close(to);
    if (code)
        unlink(out);
    return code;
}
