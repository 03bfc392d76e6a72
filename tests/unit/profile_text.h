// profile_text.h - profiles of a few lines, and files of the test data, for tests of profiles.
//
// The working directory is tests/data/profiles: profile_enter_data is a group's set-up. An
// unexpected message fails the test.
#pragma once

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/profile/profile.h"

static struct cn_diag diag; // the messages of the last call

// Makes the directory of the test data the working one.
static inline int profile_enter_data(void **state)
{
    (void)state;
    return chdir(CAIRN_TEST_DATA "/profiles");
}

// Parses text, which may extend files of the test data. The caller frees the profile.
static inline struct cn_profile *profile_parse(const char *text)
{
    struct cn_profile *profile = NULL;

    cn_diag_init(&diag);
    if (cn_profile_parse("test.yaml", text, strlen(text), &diag, &profile))
        fail_msg("%s", cn_diag_first(&diag));
    return profile;
}

// Loads a file. The caller frees the profile.
static inline struct cn_profile *profile_load(const char *path)
{
    struct cn_profile *profile = NULL;

    cn_diag_init(&diag);
    if (cn_profile_load(path, &diag, &profile))
        fail_msg("%s", cn_diag_first(&diag));
    return profile;
}

// Returns the first message of text, which has a mistake.
static inline const char *profile_mistake(const char *text)
{
    struct cn_profile *profile = (struct cn_profile *)&diag;

    cn_diag_init(&diag);
    assert_int_equal(cn_profile_parse("test.yaml", text, strlen(text), &diag, &profile), CN_EINVAL);
    assert_null(profile);
    return cn_diag_first(&diag);
}

// Returns the whole printed profile, to be freed.
static inline char *profile_print(const struct cn_profile *profile, bool origin)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);

    assert_non_null(stream);
    cn_profile_print(profile, origin, stream);
    fclose(stream);
    return text;
}
