#include "boards/flash/image/l4t_release.h"

#include <stdio.h>
#include <string.h>

#include "boards/flash/tool/console.h"
#include "runtime/command/command.h"

// The JetPack of a release, as NVIDIA's archive of Jetson Linux lists them (November 2026).
static const struct {
    struct cn_l4t_release release;
    const char *jetpack;
} known[] = {
    {{36, 3, 0}, "6.0"}, {{36, 4, 0}, "6.1"}, {{36, 4, 3}, "6.2"}, {{36, 4, 4}, "6.2.1"},
    {{38, 2, 0}, "7.0"}, {{38, 2, 1}, "7.0"}, {{38, 4, 0}, "7.1"}, {{39, 2, 0}, "7.2"},
};

bool cn_l4t_release_read(const char *text, struct cn_l4t_release *release)
{
    *release = (struct cn_l4t_release){0};
    return sscanf(text, "# R%3u (release), REVISION: %3u.%3u", &release->major, &release->minor,
                  &release->patch) == 3;
}

static const char *name_jetpack(const struct cn_l4t_release *release)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].release.major == release->major && known[i].release.minor == release->minor &&
            known[i].release.patch == release->patch)
            return known[i].jetpack;
    return release->major >= 38                           ? "7"
           : release->major == 36                         ? "6"
           : release->major == 34 || release->major == 35 ? "5"
                                                          : "4 or older";
}

// Tells whether the release's driver runs code of this major version of CUDA. JetPack 6.1, which is
// 36.4, and later ones have CUDA 12.6; JetPack 7 has CUDA 13.
static bool has_driver(const struct cn_l4t_release *release, unsigned cuda)
{
    if (release->major >= 38)
        return true;
    return cuda == 12 && release->major == 36 && release->minor >= 4;
}

int cn_l4t_release_check(const char *text, const struct cn_payload *payload, const char *what)
{
    const char *driver = payload->cuda == 12 ? "CUDA 12.6, which comes with JetPack 6.1"
                                             : "CUDA 13, which comes with JetPack 7 (Orin: 7.2)";
    struct cn_l4t_release release;

    if (!cn_l4t_release_read(text, &release))
        return CN_EXIT_DONE;
    cn_console_step("system", "%s has Jetson Linux %u.%u.%u (JetPack %s)", what, release.major,
                    release.minor, release.patch, name_jetpack(&release));
    if (has_driver(&release, payload->cuda) || payload->device == CN_DEVICE_CPU)
        return CN_EXIT_DONE;
    if (payload->device == CN_DEVICE_CUDA) {
        cn_console_error("'device: auto' trains on the processor there",
                         "%s: the profile says 'device: cuda', but for its GPU the packages need "
                         "the driver of %s",
                         what, driver);
        return CN_EXIT_FAILED;
    }
    cn_console_step("note",
                    "%s will train on its processor: for its GPU the packages need the driver of "
                    "%s",
                    what, driver);
    return CN_EXIT_DONE;
}

int cn_l4t_release_check_image(const struct cn_image_file *image, const struct cn_payload *payload)
{
    struct cn_process_result result;
    char text[256] = "";

    if (cn_image_file_cat(image, CN_L4T_RELEASE_FILE, &result) == CN_OK && result.out.size)
        snprintf(text, sizeof(text), "%.*s", (int)result.out.size, (const char *)result.out.data);
    cn_process_deinit(&result);
    return cn_l4t_release_check(text, payload, image->name);
}
