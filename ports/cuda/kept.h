// kept.h - what takes long to make and serves any device that this process opens: the loaded
// kernels and the handles of cuBLASLt and cuDNN.
//
// A device that closes leaves them, and the next one that opens on the same GPU takes them. Only
// one at a time has them, because a handle of cuDNN belongs to one stream. They are never released:
// their context stays for the rest of the process, too. Threading: any.
#pragma once

#include "ports/cuda/device.h"

// Gives the device what another left on this GPU. Returns false if there is nothing.
bool cuda_kept_take(struct cuda *cuda);

// Leaves what the device has, for the next one. Does nothing if the GPU's place is taken, or if the
// libraries are a test's own and not loaded ones, which are the same for all devices of a process.
void cuda_kept_leave(struct cuda *cuda);
