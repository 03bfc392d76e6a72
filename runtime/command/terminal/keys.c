#include "runtime/command/terminal/keys.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define ESCAPE '\033'
#define CONTROL_Z '\032'

static bool set_modes(const struct termios *modes)
{
    // A program in the background would be stopped by SIGTTOU.
    return tcgetpgrp(STDIN_FILENO) == getpgrp() && tcsetattr(STDIN_FILENO, TCSADRAIN, modes) == 0;
}

static bool take(const struct cn_keys *keys)
{
    struct termios modes = keys->before;
    modes.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    modes.c_cc[VMIN] = 0;
    modes.c_cc[VTIME] = 0;
    modes.c_cc[VSUSP] = _POSIX_VDISABLE;
    return set_modes(&modes);
}

bool cn_keys_open(struct cn_keys *keys)
{
    if (isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &keys->before) == 0)
        keys->open = take(keys);
    return keys->open;
}

void cn_keys_close(struct cn_keys *keys)
{
    if (keys->open)
        (void)set_modes(&keys->before);
    keys->open = false;
}

// Stops the program as the terminal would have done, with the terminal as it was before.
static void suspend(const struct cn_keys *keys)
{
    (void)set_modes(&keys->before);
    (void)kill(0, SIGTSTP);
    (void)take(keys);
}

static enum cn_key find_letter(char letter)
{
    switch (letter) {
    case 'q':
    case 'Q':
        return CN_KEY_QUIT;
    case ' ':
    case 'p':
        return CN_KEY_PAUSE;
    case 'k':
        return CN_KEY_UP;
    case 'j':
        return CN_KEY_DOWN;
    case CONTROL_Z:
        return CN_KEY_SUSPEND;
    default:
        return CN_KEY_OTHER;
    }
}

// Returns the key that a control sequence ends with: ESC [ A is an arrow, ESC [ 5 ~ a page.
static enum cn_key find_end(char parameter, char end)
{
    if (end == 'A')
        return CN_KEY_UP;
    if (end == 'B')
        return CN_KEY_DOWN;
    if (end == '~' && parameter == '5')
        return CN_KEY_PAGE_UP;
    return end == '~' && parameter == '6' ? CN_KEY_PAGE_DOWN : CN_KEY_OTHER;
}

enum cn_key cn_keys_parse(const char *bytes, size_t size, size_t *used)
{
    *used = 1;
    if (bytes[0] != ESCAPE)
        return find_letter(bytes[0]);
    if (size < 2 || (bytes[1] != '[' && bytes[1] != 'O'))
        return CN_KEY_OTHER;
    for (size_t i = 2; i < size; i++) { // the last byte of a sequence is from @ to ~
        *used = i + 1;
        if (bytes[i] >= '@' && bytes[i] <= '~')
            return find_end(bytes[2], bytes[i]);
    }
    *used = size;
    return CN_KEY_OTHER;
}

static enum cn_key take_held(struct cn_keys *keys)
{
    size_t used;
    enum cn_key key = cn_keys_parse(keys->held, keys->count, &used);
    keys->count -= used;
    memmove(keys->held, keys->held + used, keys->count);
    if (key == CN_KEY_SUSPEND)
        suspend(keys);
    return key;
}

// Says whether the terminal hands over keys. Takes it again when it came back with other modes, as
// after bg and fg. A program in the background would be stopped by reading.
static bool hold(const struct cn_keys *keys)
{
    struct termios modes;
    if (tcgetpgrp(STDIN_FILENO) != getpgrp() || tcgetattr(STDIN_FILENO, &modes) != 0)
        return false;
    return !(modes.c_lflag & (tcflag_t)(ICANON | ECHO)) || take(keys);
}

// Reads what was typed. Another program may have read it first, which is no end of the terminal.
static enum cn_key read_key(struct cn_keys *keys)
{
    ssize_t size = read(STDIN_FILENO, keys->held, sizeof(keys->held));
    if (size < 0 && errno != EINTR && errno != EAGAIN)
        return CN_KEY_QUIT; // nothing comes from a terminal that is gone
    if (size <= 0)
        return CN_KEY_NONE;
    keys->count = (size_t)size;
    return take_held(keys);
}

enum cn_key cn_keys_wait(struct cn_keys *keys, uint32_t timeout_ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (keys->count)
        return take_held(keys);
    if (!hold(keys))
        input.events = 0; // only whether the terminal is gone
    if (poll(&input, 1, (int)timeout_ms) <= 0)
        return CN_KEY_NONE;
    if (input.revents & (POLLHUP | POLLERR | POLLNVAL))
        return CN_KEY_QUIT;
    return read_key(keys);
}
