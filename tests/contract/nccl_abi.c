// Compiled where NCCL's header is installed: the port's own declarations are the library's.
#include <nccl.h>
#include <stddef.h>

#include "ports/nccl/library.h"

_Static_assert((int)NCCL_REMOTE_ERROR == (int)ncclRemoteError, "results");
_Static_assert((int)NCCL_IN_PROGRESS == (int)ncclInProgress, "results");
_Static_assert((int)NCCL_INT64 == (int)ncclInt64, "types");
_Static_assert((int)NCCL_FLOAT16 == (int)ncclFloat16, "types");
_Static_assert((int)NCCL_FLOAT32 == (int)ncclFloat32, "types");
_Static_assert((int)NCCL_BFLOAT16 == (int)ncclBfloat16, "types");
_Static_assert((int)NCCL_SUM == (int)ncclSum, "reductions");
_Static_assert(NCCL_ID_SIZE == NCCL_UNIQUE_ID_BYTES, "id");
_Static_assert(sizeof(struct nccl_id) == sizeof(ncclUniqueId), "id");
_Static_assert(NCCL_NO_COLOR == NCCL_SPLIT_NOCOLOR, "color");
_Static_assert(NCCL_UNSET == NCCL_CONFIG_UNDEF_INT, "unset");
_Static_assert(sizeof(struct nccl_config) <= sizeof(ncclConfig_t), "config");

#define SAME(ours, theirs)                                                                         \
    _Static_assert(offsetof(struct nccl_config, ours) == offsetof(ncclConfig_t, theirs), "config")

SAME(size, size);
SAME(magic, magic);
SAME(version, version);
SAME(blocking, blocking);
SAME(cga_cluster_size, cgaClusterSize);
SAME(min_ctas, minCTAs);
SAME(max_ctas, maxCTAs);
SAME(net_name, netName);
SAME(split_share, splitShare);
