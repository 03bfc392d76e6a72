#include "runtime/base/error.h"

#include <errno.h>
#include <stddef.h>

static const char *const texts[] = {
    [-CN_OK] = "done",
    [-CN_ENOMEM] = "out of memory",
    [-CN_EIO] = "input or output failed",
    [-CN_ENOSPC] = "the disk is full",
    [-CN_EINVAL] = "invalid setting",
    [-CN_EFORMAT] = "malformed data",
    [-CN_ENOTSUP] = "not supported",
    [-CN_ERANGE] = "out of range",
    [-CN_ENOTFOUND] = "not found",
    [-CN_EEXIST] = "exists already",
    [-CN_EPEER] = "a peer is lost",
    [-CN_EAUTH] = "not authorised",
    [-CN_ESTALE] = "out of date",
    [-CN_ECONFLICT] = "conflicts with what was accepted",
    [-CN_EDIGEST] = "the digest does not match",
    [-CN_ETIMEOUT] = "timed out",
    [-CN_EAGAIN] = "not ready",
    [-CN_ECANCELED] = "stopped on request",
    [-CN_EDIVERGED] = "a number is not finite",
    [-CN_EWEDGED] = "this process cannot go on",
    [-CN_EVERSION] = "of another version of Cairn",
    [-CN_EBUSY] = "not its turn yet",
};

const char *cn_err_text(cn_err err)
{
    int index = -(int)err;

    if (index < 0 || (size_t)index >= sizeof(texts) / sizeof(texts[0]))
        return "unknown error";
    return texts[index];
}

const char *cn_err_reason(cn_err err)
{
    switch (err == CN_EIO ? errno : 0) {
    case EACCES:
        return "permission denied";
    case EPERM:
        return "operation not permitted";
    case EROFS:
        return "the file system is read-only";
    case ENOTDIR:
        return "it is a file, or a part of its path is one";
    case EISDIR:
        return "it is a directory";
    case ENAMETOOLONG:
        return "the name is too long";
    default:
        return cn_err_text(err);
    }
}

cn_err cn_err_from_errno(int number)
{
    switch (number) {
    case ENOMEM:
        return CN_ENOMEM;
    case ENOSPC:
    case EDQUOT:
        return CN_ENOSPC;
    case ENOENT:
        return CN_ENOTFOUND;
    case EEXIST:
        return CN_EEXIST;
    case ETIMEDOUT:
        return CN_ETIMEOUT;
    case EAGAIN:
        return CN_EAGAIN;
    case ECONNRESET:
    case EPIPE:
    case ECONNREFUSED:
        return CN_EPEER;
    default:
        return CN_EIO;
    }
}
