// library.h - the functions of NCCL and of the CUDA driver that this port calls, as one table.
//
// Both libraries are loaded while the program runs. So one program works with and without them, and
// a test can use a table of its own. The functions are declared here, so the machine that builds
// needs no CUDA. tests/contract/nccl_abi.c compares them with nccl.h where that is installed.
// Source: NCCL 2.18 to 2.28 (nccl.h), CUDA driver API 12.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/error.h"

#define NCCL_ID_SIZE 128
#define NCCL_MAGIC 0xcafebeefu
// The version with the fields below; a later library uses its defaults for newer ones.
#define NCCL_CONFIG_VERSION 21800
#define NCCL_UNSET (-2147483647 - 1)
#define NCCL_NO_COLOR (-1)

enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7,
};

enum nccl_type {
    NCCL_INT64 = 4,
    NCCL_FLOAT16 = 6,
    NCCL_FLOAT32 = 7,
    NCCL_BFLOAT16 = 9,
};

enum nccl_reduction {
    NCCL_SUM = 0,
};

struct nccl_id { // secret: whoever knows it can join
    char bytes[NCCL_ID_SIZE];
};

struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
};

typedef struct nccl_comm *nccl_comm;
typedef struct cuda_stream *cuda_stream;
typedef struct cuda_event *cuda_event;
typedef unsigned long long cuda_pointer;

#define CUDA_SUCCESS 0
#define CUDA_NOT_READY 600

// Functions with the libraries' own types. They return enum nccl_result or CUresult. copy_in and
// copy_out are asynchronous on their stream.
struct nccl_library {
    unsigned abort_ms; // limit for an abort: what the library's own threads may take to notice it

    int (*get_version)(int *version);
    int (*get_unique_id)(struct nccl_id *id);
    int (*comm_init)(nccl_comm *comm, int size, struct nccl_id id, int rank,
                     struct nccl_config *config);
    int (*comm_split)(nccl_comm comm, int color, int key, nccl_comm *child,
                      struct nccl_config *config);
    int (*comm_error)(nccl_comm comm, int *result);
    int (*comm_finalize)(nccl_comm comm);
    int (*comm_destroy)(nccl_comm comm);
    int (*comm_abort)(nccl_comm comm);
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int how, nccl_comm comm,
                      cuda_stream stream);
    int (*reduce)(const void *from, void *to, size_t count, int type, int how, int root,
                  nccl_comm comm, cuda_stream stream);
    int (*broadcast)(const void *from, void *to, size_t count, int type, int root, nccl_comm comm,
                     cuda_stream stream);
    int (*send)(const void *from, size_t count, int type, int to, nccl_comm comm,
                cuda_stream stream);
    int (*receive)(void *to, size_t count, int type, int from, nccl_comm comm, cuda_stream stream);
    int (*group_start)(void);
    int (*group_end)(void);

    int (*device_enter)(unsigned number); // makes device number (from 0) current for this thread
    int (*stream_create)(cuda_stream *stream, unsigned flags);
    int (*stream_destroy)(cuda_stream stream);
    int (*event_create)(cuda_event *event, unsigned flags);
    int (*event_record)(cuda_event event, cuda_stream stream);
    int (*event_query)(cuda_event event);
    int (*event_destroy)(cuda_event event);
    int (*memory_take)(cuda_pointer *memory, size_t size);
    int (*memory_free)(cuda_pointer memory);
    int (*copy_in)(cuda_pointer to, const void *from, size_t size, cuda_stream stream);
    int (*copy_out)(void *to, cuda_pointer from, size_t size, cuda_stream stream);
};

// Loads both libraries, once. Returns the table, which stays valid until the process ends. Returns
// NULL when a library or any device is missing; *why then says which. Threading: any.
const struct nccl_library *nccl_library_load(const char **why);
