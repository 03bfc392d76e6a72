// extents.h - a list of extents of an image, and those that its file systems have not allocated.
//
// Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cn_extent {
    uint64_t offset, size; // bytes
};

// Zeroed, the list is empty.
struct cn_extents {
    struct cn_extent *list; // in rising order, none touches another
    size_t count;
};

void cn_extents_deinit(struct cn_extents *extents);

// Appends the extent from begin to end, which must not begin before the last one ends; one that
// touches the last one makes it longer. False when memory is out.
bool cn_extents_add(struct cn_extents *extents, uint64_t begin, uint64_t end);

// Finds what the ext2, 3 and 4 file systems of an image call free, by dumpe2fs. A file system that
// e2fsck does not find consistent, and partitions that overlap, have nothing free. False when the
// image cannot be read or memory is out.
bool cn_extents_read_free(const char *image, struct cn_extents *extents);
