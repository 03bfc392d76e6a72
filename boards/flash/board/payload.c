#include "boards/flash/board/payload.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boards/flash/board/target_path.h"
#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "runtime/command/command.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"

#define FILE_MAX (1ull << 32)

// The first-boot script; plain enough for busybox. It removes SHA256SUMS last: while that file
// exists, the installation is not complete.
static const char firstboot[] =
    "#!/bin/sh\n"
    "# Installs the packages of this folder, once, if they are whole. Made by cairn-flash.\n"
    "cd " CN_PAYLOAD_SEED " && [ -f SHA256SUMS ] || exit 0\n"
    "if ! sha256sum -c SHA256SUMS; then\n"
    "    echo 'cairn-firstboot: a package is damaged; nothing is installed. Flash the card "
    "again.'\n"
    "    exit 1\n"
    "fi\n"
    "# dpkg's words are read below, so they must be English.\n"
    "export DEBIAN_FRONTEND=noninteractive LC_ALL=C\n"
    "set --\n"
    "while read -r _ file; do set -- \"$@\" \"./$file\"; done <SHA256SUMS\n"
    "# Files that somebody edited stay; busybox's dpkg has no such options, nor a version.\n"
    "keep='--force-confdef --force-confold'\n"
    "dpkg --version >/dev/null 2>&1 || keep=\n"
    "# apt, cloud-init or a wizard may hold the lock for minutes.\n"
    "tries=60\n"
    "until dpkg $keep -i \"$@\" </dev/null 2>errors; do\n"
    "    cat errors >&2\n"
    "    grep -q 'locked by another process' errors && [ $tries -gt 0 ] || exit 1\n"
    "    tries=$((tries - 1))\n"
    "    sleep 10\n"
    "done\n"
    "cat errors >&2\n"
    "sync\n"
    "rm -f \"$@\" SHA256SUMS errors\n"
    "sync\n"
    "echo 'cairn-firstboot: installed'\n";

// The unit is wanted by basic.target, because a fresh JetPack boots to nv-oem-config.target, which
// excludes multi-user.target.
static const char unit[] = "[Unit]\n"
                           "Description=Cairn, first boot: install the packages of the image\n"
                           "ConditionPathExists=" CN_PAYLOAD_SEED "/SHA256SUMS\n"
                           "After=local-fs.target\n"
                           "StartLimitIntervalSec=0\n"
                           "\n"
                           "[Service]\n"
                           "Type=oneshot\n"
                           "ExecStart=/bin/sh " CN_PAYLOAD_SEED "/firstboot\n"
                           "Restart=on-failure\n"
                           "RestartSec=30\n"
                           "StandardOutput=journal+console\n"
                           "\n"
                           "[Install]\n"
                           "WantedBy=basic.target\n";

int cn_payload_add(struct cn_payload *payload, const char *source, const char *target,
                   uint32_t mode)
{
    struct cn_payload_file *file = &payload->files[payload->count];
    struct cn_mapping mapping;
    char real[4096]; // absolute, because the links to it are staged in another folder
    cn_err err;

    if (!realpath(source, real))
        snprintf(real, sizeof(real), "%s", source);
    if (payload->count == CN_PAYLOAD_FILES || strlen(real) >= sizeof(file->source) ||
        strlen(target) >= sizeof(file->target)) {
        cn_console_error(NULL,
                         "%s: cannot be put at '%s': there are too many files, or a path is "
                         "too long",
                         source, target);
        return CN_EXIT_USAGE;
    }
    for (size_t i = 0; i < payload->count; i++) {
        const char *clash = cn_target_path_clash(target, payload->files[i].target);

        if (clash) {
            cn_console_error("choose another path", "%s: '%s' %s", source, target, clash);
            return CN_EXIT_USAGE;
        }
    }
    err = cn_platform_map(source, FILE_MAX, &mapping);
    if (err) {
        cn_console_error(NULL, "%s: %s", source, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    *file = (struct cn_payload_file){.mode = mode, .size = mapping.size};
    snprintf(file->source, sizeof(file->source), "%.511s", real);
    snprintf(file->target, sizeof(file->target), "%s", target);
    cn_crypto_digest(mapping.data ? (const void *)mapping.data : "", mapping.size, file->digest);
    cn_platform_unmap(&mapping);
    payload->count++;
    return CN_EXIT_DONE;
}

static int add_text(struct cn_payload *payload, const struct cn_workspace *space, const char *name,
                    const char *text, const char *target, uint32_t mode)
{
    char path[CN_WORKSPACE_PATH + 64];
    FILE *file;
    bool written;

    snprintf(path, sizeof(path), "%s/%s", space->path, name);
    file = fopen(path, "we");
    written = file && fputs(text, file) >= 0;
    if (!file || fclose(file) || !written) {
        cn_console_error(NULL, "%s cannot be written", path);
        return CN_EXIT_FAILED;
    }
    return cn_payload_add(payload, path, target, mode);
}

// Building the profile: the site's, with the board's name and the paths of the packaged service.

// Writes path relative to the working directory, without a leading slash. Relative paths in the
// profile then stay relative and can be detected.
static bool make_relative(const char *path, char *relative, size_t size)
{
    char *real = realpath(path, NULL), *here = getcwd(NULL, 0);
    size_t length = 0;
    bool fits = real && here;

    relative[0] = '\0';
    for (const char *at = here; fits && at && *at; at++)
        if (*at == '/' && at[1])
            fits = (length += (size_t)snprintf(relative + length, size - length, "../")) < size - 4;
    if (fits)
        fits = (size_t)snprintf(relative + length, size - length, "%s", real + 1) < size - length;
    free(real);
    free(here);
    return fits;
}

// Returns a path of the data set that is not absolute; NULL: all are. Labels may be missing.
static const char *find_relative(const struct cn_data_paths *paths)
{
    if (paths->labels[0] && paths->labels[0] != '/')
        return paths->labels;
    for (uint32_t i = 0; i < paths->file_count; i++)
        if (paths->files[i].path[0] != '/')
            return paths->files[i].path;
    return paths->inputs[0] == '/' ? NULL : paths->inputs;
}

// Checks that every path that the board uses in the effective profile is absolute.
static bool paths_are_absolute(const struct cn_target_options *order,
                               const struct cn_settings *settings)
{
    const char *relative = settings->state[0] == '/' ? NULL : settings->state;

    for (uint32_t i = 0; !relative && i < settings->data_count; i++)
        relative = find_relative(&settings->data[i]);
    if (relative)
        cn_console_error("write it as an absolute path, such as /data/images.npy",
                         "%s: '%s' is a path on this machine, not on the board", order->site,
                         relative);
    return !relative;
}

static int check_board(const struct cn_target_options *order, const struct cn_settings *settings)
{
    if (order->board && strcmp(order->board, settings->board_type) != 0) {
        cn_console_error("change its 'extends:', or --board",
                         "%s is a profile for the board '%s', not '%s'", order->site,
                         settings->board_type[0] ? settings->board_type : "(none)", order->board);
        return CN_EXIT_PROFILE;
    }
    return paths_are_absolute(order, settings) ? CN_EXIT_DONE : CN_EXIT_PROFILE;
}

static int parse_profile(const struct cn_target_options *order, struct cn_profile **profile)
{
    static struct cn_diag diag;
    char relative[1024], name[1100], text[1400];
    const char *base;
    char *slash;

    cn_diag_init(&diag);
    if (!make_relative(order->site, relative, sizeof(relative))) {
        cn_console_error(NULL, "%s: there is no such file", order->site);
        return CN_EXIT_PROFILE;
    }
    slash = strrchr(relative, '/');
    base = slash ? slash + 1 : relative;
    snprintf(name, sizeof(name), "%.*s(%s)", (int)(base - relative), relative, order->name);
    snprintf(text, sizeof(text),
             "schema: cairn/site/v1\nextends: \"./%s\"\nname: \"%s\"\nstate: /var/lib/cairn\n"
             "aggregator: {key: " CN_PAYLOAD_ETC "/node.key}\n",
             base, order->name);
    if (cn_profile_parse(name, text, strlen(text), &diag, profile) ||
        cn_profile_require(*profile, CN_PROFILE_NODE, &diag)) {
        for (size_t i = 0; i < diag.count && i < CN_DIAG_LINES; i++)
            cn_console_error(NULL, "%s", diag.lines[i]);
        cn_profile_free(*profile);
        *profile = NULL;
        return CN_EXIT_PROFILE;
    }
    return CN_EXIT_DONE;
}

static int add_profile(const struct cn_target_options *order, const struct cn_workspace *space,
                       struct cn_payload *payload)
{
    struct cn_profile *profile = NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *stream;
    int code = parse_profile(order, &profile);

    if (!code)
        code = check_board(order, cn_profile_settings(profile));
    if (!code) {
        snprintf(payload->board, sizeof(payload->board), "%s",
                 cn_profile_settings(profile)->board_type);
        payload->device = cn_profile_settings(profile)->device;
        stream = open_memstream(&text, &size);
        if (stream) {
            cn_profile_print(profile, false, stream);
            fclose(stream);
        }
        code = text ? add_text(payload, space, "node.yaml", text, CN_PAYLOAD_ETC "/node.yaml", 0644)
                    : CN_EXIT_FAILED;
        free(text);
    }
    cn_profile_free(profile);
    return code;
}

// Reading the packages.

static void read_field(const char *text, const char *field, char *value, size_t size)
{
    const char *at = strstr(text, field);

    value[0] = '\0';
    if (at)
        snprintf(value, size, "%.*s", (int)strcspn(at + strlen(field), "\n"), at + strlen(field));
}

// Reads the version of CUDA from a package's "Provides: cairn-node-cuda (= 13.0.88)".
static unsigned read_cuda(const char *text)
{
    char provides[256];
    const char *at;
    unsigned major = 0;

    read_field(text, "\nProvides: ", provides, sizeof(provides));
    at = strstr(provides, "cairn-node-cuda (= ");
    return at && sscanf(at, "cairn-node-cuda (= %3u.", &major) == 1 ? major : 0;
}

static int inspect(const char *path, struct cn_package *package)
{
    const char *const fields[] = {"dpkg-deb", "--field", path, NULL};
    const char *const list[] = {"dpkg-deb", "--contents", path, NULL};
    struct cn_process_result result;
    char text[4096] = "\n", kib[32];
    bool whole;

    whole = cn_process_run(fields, -1, &result) == CN_OK && result.code == 0;
    if (whole) {
        snprintf(text + 1, sizeof(text) - 1, "%.*s", (int)result.out.size,
                 (const char *)result.out.data);
        read_field(text, "\nPackage: ", package->name, sizeof(package->name));
        read_field(text, "\nVersion: ", package->version, sizeof(package->version));
        read_field(text, "\nArchitecture: ", package->architecture, sizeof(package->architecture));
        read_field(text, "\nInstalled-Size: ", kib, sizeof(kib));
        package->installed_size = strtoull(kib, NULL, 10) * 1024;
        package->cuda = read_cuda(text);
        cn_process_deinit(&result);
        whole = cn_process_run(list, -1, &result) == CN_OK && result.code == 0;
    }
    if (!whole || !package->name[0])
        cn_console_error(result.code == 127 ? "install dpkg" : "download or build it again",
                         "%s is not a whole package: %s", path, cn_process_complaint(&result));
    cn_process_deinit(&result);
    return whole && package->name[0] ? CN_EXIT_DONE : CN_EXIT_VERIFY;
}

static int add_package(struct cn_payload *payload, const char *path)
{
    struct cn_package *package = &payload->packages[payload->package_count];
    char target[CN_PAYLOAD_TARGET];
    int code = inspect(path, package);

    if (code)
        return code;
    payload->package_count++;
    if (package->cuda)
        payload->cuda = package->cuda;
    if (strcmp(package->architecture, "all") != 0) {
        if (payload->architecture[0] && strcmp(payload->architecture, package->architecture) != 0) {
            cn_console_error(NULL, "%s is for %s, another package for %s", path,
                             package->architecture, payload->architecture);
            return CN_EXIT_FAILED;
        }
        memcpy(payload->architecture, package->architecture, sizeof(payload->architecture));
    }
    snprintf(target, sizeof(target), CN_PAYLOAD_SEED "/%s_%s.deb", package->name,
             package->architecture);
    return cn_payload_add(payload, path, target, 0644);
}

static int add_packages(const struct cn_target_options *order, const struct cn_workspace *space,
                        struct cn_payload *payload)
{
    char sums[CN_TARGET_PACKAGES * 400] = "", digest[2 * CN_DIGEST_SIZE + 1];
    size_t first = payload->count, length = 0;
    int code = CN_EXIT_DONE;

    for (size_t i = 0; i < order->package_count && !code; i++)
        code = add_package(payload, order->packages[i]);
    for (size_t i = first; i < payload->count && !code; i++) {
        cn_hex(digest, payload->files[i].digest, CN_DIGEST_SIZE);
        length += (size_t)snprintf(sums + length, sizeof(sums) - length, "%s  %s\n", digest,
                                   strrchr(payload->files[i].target, '/') + 1);
    }
    if (!payload->architecture[0])
        snprintf(payload->architecture, sizeof(payload->architecture), "all");
    if (!code)
        code = add_text(payload, space, "firstboot", firstboot, CN_PAYLOAD_SEED "/firstboot", 0755);
    if (!code)
        code = add_text(payload, space, "unit", unit, CN_PAYLOAD_UNIT, 0644);
    // The digests come last: without them the script does nothing.
    return code ? code
                : add_text(payload, space, "sums", sums, CN_PAYLOAD_SEED "/SHA256SUMS", 0644);
}

static int add_extras(const struct cn_target_options *order, struct cn_payload *payload)
{
    for (size_t i = 0; i < order->extra_count; i++) {
        const char *colon = strrchr(order->extras[i], ':');
        const char *fault;
        char source[512];
        int code;

        if (!colon || (size_t)(colon - order->extras[i]) >= sizeof(source)) {
            cn_console_error(NULL, "--add '%s': expected FILE:/path/on/board", order->extras[i]);
            return CN_EXIT_USAGE;
        }
        fault = cn_target_path_fault(colon + 1);
        if (fault) {
            cn_console_error("choose another path", "--add '%s': '%s' %s", order->extras[i],
                             colon + 1, fault);
            return CN_EXIT_USAGE;
        }
        snprintf(source, sizeof(source), "%.*s", (int)(colon - order->extras[i]), order->extras[i]);
        code = cn_payload_add(payload, source, colon + 1, 0644);
        if (code)
            return code;
    }
    return CN_EXIT_DONE;
}

int cn_payload_make_identity(const struct cn_target_options *order,
                             const struct cn_workspace *space, struct cn_payload *payload)
{
    return add_profile(order, space, payload);
}

int cn_payload_make_common(const struct cn_target_options *order, const struct cn_workspace *space,
                           struct cn_payload *payload)
{
    int code = add_extras(order, payload);

    return code ? code : add_packages(order, space, payload);
}

int cn_payload_make(const struct cn_target_options *order, const struct cn_workspace *space,
                    struct cn_payload *payload)
{
    int code = cn_payload_make_identity(order, space, payload);

    return code ? code : cn_payload_make_common(order, space, payload);
}

uint64_t cn_payload_size(const struct cn_payload *payload)
{
    uint64_t size = 0;

    for (size_t i = 0; i < payload->count; i++)
        size += payload->files[i].size;
    for (size_t i = 0; i < payload->package_count; i++)
        size += payload->packages[i].installed_size;
    return size;
}

// Says what the GPU of a Jetson needs, because a board without it trains on its processor. Packages
// that do not say their CUDA are taken for those of CUDA 13.
static void print_gpu_needs(const struct cn_payload *payload)
{
    const char *board = payload->board;
    bool orin =
        strncmp(board, "jetson-orin-", 12) == 0 || strncmp(board, "jetson-agx-orin-", 16) == 0;

    if (orin && payload->cuda == 12)
        cn_console_step("gpu", "its GPU needs JetPack 6.1 or later (CUDA 12.6)");
    else if (orin)
        cn_console_step("gpu", "its GPU needs JetPack 7.2 or later (CUDA 13); with JetPack 6 this "
                               "cairn-node trains on the processor");
    else if (strncmp(board, "jetson-", 7) == 0)
        cn_console_step("gpu", "its GPU needs JetPack 7 or later (CUDA 13)");
}

void cn_payload_print(const struct cn_payload *payload)
{
    char digest[2 * CN_DIGEST_SIZE + 1];

    for (size_t i = 0; i < payload->package_count; i++)
        cn_console_step("package", "%s %s (%s), installed at the first boot",
                        payload->packages[i].name, payload->packages[i].version,
                        payload->packages[i].architecture);
    print_gpu_needs(payload);
    for (size_t i = 0; i < payload->count; i++) {
        cn_hex(digest, payload->files[i].digest, CN_DIGEST_SIZE);
        cn_console_step("file", "%04o %10" PRIu64 " %.12s %s", payload->files[i].mode,
                        payload->files[i].size, digest, payload->files[i].target);
    }
}
