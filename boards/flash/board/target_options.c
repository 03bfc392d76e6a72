#include "boards/flash/board/target_options.h"

#include <stdio.h>
#include <string.h>

#include "boards/flash/tool/console.h"
#include "runtime/base/name.h"
#include "runtime/command/command.h"

enum option_code {
    DEB = 1,
    ADD,
    BOARD,
    SITE,
    NAME,
    GATEWAY,
    GROUP,
    KEY,
    BASE,
    PARTITION,
    REPLACE,
    JSON,
    DRY,
    YES,
    FIXED
};

static const struct option known[] = {
    {"deb", required_argument, NULL, DEB},     {"add", required_argument, NULL, ADD},
    {"board", required_argument, NULL, BOARD}, {"site", required_argument, NULL, SITE},
    {"name", required_argument, NULL, NAME},   {"gateway", required_argument, NULL, GATEWAY},
    {"group", required_argument, NULL, GROUP}, {"key", required_argument, NULL, KEY},
    {"base", required_argument, NULL, BASE},   {"partition", required_argument, NULL, PARTITION},
    {"replace", no_argument, NULL, REPLACE},   {"json", no_argument, NULL, JSON},
    {"dry-run", no_argument, NULL, DRY},       {"yes", no_argument, NULL, YES},
    {"fixed", no_argument, NULL, FIXED},       {0},
};

static bool append(const char **list, size_t *count, size_t limit, const char *what,
                   const char *value)
{
    if (*count == limit) {
        cn_console_error(NULL, "at most %zu of --%s", limit, what);
        return false;
    }
    list[(*count)++] = value;
    return true;
}

bool cn_target_add_package(struct cn_target_options *order, const char *path)
{
    return append(order->packages, &order->package_count, CN_TARGET_PACKAGES, "deb", path);
}

bool cn_target_add_extra(struct cn_target_options *order, const char *extra)
{
    return append(order->extras, &order->extra_count, CN_TARGET_EXTRAS, "add", extra);
}

static bool take(struct cn_target_options *order, int code)
{
    const char **const texts[] = {
        [BOARD] = &order->board,     [SITE] = &order->site,           [NAME] = &order->name,
        [GATEWAY] = &order->gateway, [GROUP] = &order->group,         [KEY] = &order->key,
        [BASE] = &order->base,       [PARTITION] = &order->partition,
    };

    switch (code) {
    case DEB:
        return cn_target_add_package(order, optarg);
    case ADD:
        return cn_target_add_extra(order, optarg);
    case REPLACE:
        order->replace = true;
        return true;
    case DRY:
        order->dry_run = true;
        return true;
    case JSON:
        order->json = true;
        cn_console_set_json(true);
        return true;
    case YES:
    case FIXED:
        *(code == YES ? &order->yes : &order->fixed) = true;
        if (!order->many)
            cn_console_error("'write' and 'cards' take them", "--yes and --fixed are not for this");
        return order->many;
    case 'o':
        order->out = optarg;
        return true;
    default:
        if (code < BOARD || code > PARTITION)
            return false;
        *texts[code] = optarg;
        return true;
    }
}

static int require(const struct cn_target_options *order)
{
    const char *missing = !order->site                   ? "--site"
                          : !order->name && !order->many ? "--name"
                          : !order->package_count        ? "--deb"
                          : order->gateway || order->key ? NULL
                          : order->many                  ? "--gateway"
                                                         : "--gateway (or --key)";

    if (missing)
        cn_console_error("--help describes the options", "%s is missing", missing);
    else if (order->many && (order->name || order->key))
        cn_console_error("each board of the list gets a key of its own",
                         "--name and --key are for one board");
    else if (!order->many && !cn_name_valid(order->name))
        cn_console_error(NULL, "--name '%s': 1 to 63 of a-z 0-9 . _ -, the first a letter or digit",
                         order->name);
    else if (order->gateway && order->key)
        cn_console_error("--key takes a key that was made before; --gateway makes one",
                         "--key and --gateway exclude each other");
    else
        return CN_EXIT_DONE;
    return CN_EXIT_USAGE;
}

int cn_target_options_parse(int argc, char **argv, const char *help,
                            struct cn_target_options *order)
{
    int code;

    while ((code = getopt_long(argc, argv, "o:", known, NULL)) != -1)
        if (!take(order, code))
            return CN_EXIT_USAGE;
    if (argc == 1 || argc - optind > 1) {
        fputs(help, stderr);
        return CN_EXIT_USAGE;
    }
    order->positional = argc > optind ? argv[optind] : NULL;
    return require(order);
}
