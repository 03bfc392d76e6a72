// scratch_posix.c - arrays in unnamed files, which are mapped; small ones on the heap.
//
// A header before the array says how to free it. The blocks of a file are reserved before it is
// mapped: writing to a page without a block on a full disk would end the process. File systems that
// write to another block each time cannot reserve one, so arrays do not lie there. Which folder is
// used is a property of the process, as its limits are: any code allocates.
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/port/scratch.h"

#define HEADER_SIZE 64             // bytes before an array; keeps it aligned
#define FOLDER_SIZE 512            // bytes of a path, with its terminating 0
#define SIZE_MOST (SIZE_MAX >> 25) // half a TiB: no array is larger

// Lies directly before the array.
struct header {
    void *mapping; // NULL: on the heap
    size_t size;   // bytes of the mapping
};

_Static_assert(sizeof(struct header) <= HEADER_SIZE, "the header lies before the array");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char folder_used[FOLDER_SIZE]; // "": none
static uint64_t free_wanted;
static bool fell_back; // logged, for this folder
static _Atomic(uint64_t) in_files;

void cn_scratch_use(const char *folder, uint64_t keep_free)
{
    pthread_mutex_lock(&lock);
    if (!folder || strlen(folder) >= FOLDER_SIZE)
        folder = "";
    fell_back &= strcmp(folder, folder_used) == 0;
    memcpy(folder_used, folder, strlen(folder) + 1);
    free_wanted = keep_free;
    pthread_mutex_unlock(&lock);
}

static struct header *header_of(void *array)
{
    return (struct header *)(void *)((char *)array - sizeof(struct header));
}

// Returns whether files of this file system lie in memory, or need new blocks when they are written
// again.
static bool is_unfit(long type)
{
    static const long types[] = {TMPFS_MAGIC, RAMFS_MAGIC, BTRFS_SUPER_MAGIC, 0x2fc12fc1 /* ZFS */,
                                 0xca451a4e /* bcachefs */};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if ((uint32_t)type == (uint32_t)types[i])
            return true;
    return false;
}

// Returns whether the folder lies on a disk with room for size bytes and what must stay free.
static bool has_room(const char *folder, size_t size, uint64_t keep_free)
{
    struct statfs fs;
    uint64_t room;

    if (statfs(folder, &fs) || is_unfit((long)fs.f_type))
        return false;
    room = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    return room >= size && room - size >= keep_free;
}

static int open_unnamed(const char *folder)
{
    char name[FOLDER_SIZE + 32];
    int file = open(folder, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);

    if (file >= 0)
        return file;
    // A store removes what begins with ".new-" when it is opened.
    snprintf(name, sizeof(name), "%s/.new-scratch-XXXXXX", folder);
    file = mkostemp(name, O_CLOEXEC);
    if (file >= 0)
        unlink(name);
    return file;
}

// Maps a new file of size bytes. Returns NULL when the folder cannot have it.
static void *map_file(const char *folder, size_t size)
{
    int file = open_unnamed(folder);
    void *mapping = MAP_FAILED;

    if (file < 0)
        return NULL;
    if (!fallocate(file, 0, 0, (off_t)size))
        mapping = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return mapping == MAP_FAILED ? NULL : mapping;
}

bool cn_scratch_has_room(const char *folder, uint64_t keep_free, size_t size)
{
    void *mapping = has_room(folder, size, keep_free) ? map_file(folder, CN_SCRATCH_LEAST) : NULL;

    if (mapping)
        munmap(mapping, CN_SCRATCH_LEAST);
    return mapping != NULL;
}

static void tell_fall_back(const char *folder, size_t size)
{
    bool told;

    pthread_mutex_lock(&lock);
    told = fell_back;
    fell_back = true;
    pthread_mutex_unlock(&lock);
    if (!told)
        cn_log(CN_LOG_WARN, "session",
               "%s has no room for another file of %zu MiB: copies of the model lie in memory, "
               "more than memory.train_max counts",
               folder, size >> 20);
}

// Returns an array of a file of size bytes. Returns NULL when the folder cannot have it.
static void *allocate_in(const char *folder, uint64_t keep_free, size_t size)
{
    char *mapping = has_room(folder, size, keep_free) ? map_file(folder, size) : NULL;

    if (!mapping)
        return NULL;
    *header_of(mapping + HEADER_SIZE) = (struct header){mapping, size};
    atomic_fetch_add(&in_files, size);
    return mapping + HEADER_SIZE;
}

static void *allocate_in_file(size_t size)
{
    char folder[FOLDER_SIZE];
    uint64_t keep_free;
    void *array;

    pthread_mutex_lock(&lock);
    memcpy(folder, folder_used, sizeof(folder));
    keep_free = free_wanted;
    pthread_mutex_unlock(&lock);
    if (!folder[0])
        return NULL;
    array = allocate_in(folder, keep_free, size);
    if (!array)
        tell_fall_back(folder, size);
    return array;
}

void *cn_scratch_allocate(size_t size)
{
    char *memory = NULL;

    if (size > SIZE_MOST)
        return NULL;
    if (size >= CN_SCRATCH_LEAST)
        memory = allocate_in_file(size + HEADER_SIZE);
    if (memory)
        return memory;
    memory = calloc(1, size + HEADER_SIZE);
    return memory ? memory + HEADER_SIZE : NULL;
}

void *cn_scratch_allocate_in(const char *folder, uint64_t keep_free, size_t size)
{
    void *array = NULL;

    if (size > SIZE_MOST)
        return NULL;
    if (size >= CN_SCRATCH_LEAST && strlen(folder) < FOLDER_SIZE)
        array = allocate_in(folder, keep_free, size + HEADER_SIZE);
    return array ? array : cn_scratch_allocate(size);
}

void cn_scratch_free(void *array)
{
    struct header header;

    if (!array)
        return;
    header = *header_of(array);
    if (!header.mapping) {
        free((char *)array - HEADER_SIZE);
        return;
    }
    munmap(header.mapping, header.size);
    atomic_fetch_sub(&in_files, header.size);
}

uint64_t cn_scratch_in_files(void)
{
    return atomic_load(&in_files);
}
