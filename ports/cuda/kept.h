// kept.h - keeps the loaded kernels and the handles of cuBLASLt and cuDNN when a device closes.
//
// They take long to make. The next device that opens on the same GPU takes them. Only one device at
// a time has them, because a handle of cuDNN belongs to one stream. They are never released: their
// context stays for the rest of the process, too. Threading: any.
#pragma once

#include "ports/cuda/device.h"

// Gives the device the kernels and handles kept for its GPU. Returns false if there are none.
bool cuda_kept_take(struct cuda *cuda);

// Keeps the device's kernels and handles for the next device. Does nothing if some are kept for
// this GPU already, or if the libraries are a test's own. Loaded libraries are the same for all
// devices of a process.
void cuda_kept_leave(struct cuda *cuda);
