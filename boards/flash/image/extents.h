// extents.h - lists of byte extents of an image, and the extents its file systems leave
// unallocated.
//
// Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cn_extent {
    uint64_t offset, size; // bytes
};

// A zeroed list is empty.
struct cn_extents {
    struct cn_extent *list; // in ascending order; no two touch or overlap
    size_t count;
};

void cn_extents_deinit(struct cn_extents *extents);

// Appends the extent [begin, end), which must not begin before the last one ends. An extent that
// touches the last one extends it. Returns false when memory runs out.
bool cn_extents_add(struct cn_extents *extents, uint64_t begin, uint64_t end);

// Lists the blocks that the ext2, ext3 and ext4 file systems of an image call free, as dumpe2fs
// reports them. A file system that e2fsck finds inconsistent counts as having no free blocks. So do
// all file systems when partitions overlap. Returns false when the image cannot be read or memory
// runs out.
bool cn_extents_read_free(const char *image, struct cn_extents *extents);
