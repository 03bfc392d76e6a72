// variate.h - control variates: rows that groups add to their gradients to approach one optimum.
//
// (SCAFFOLD, Karimireddy et al. 2020, algorithm 1 with option II.) Groups with different data drift
// apart in a round of many steps. The control variate of a group is the gradient that it had in its
// last round; the server's is the mean of the groups' ones. Each step uses the gradient
//
//   gradient + (server - own)
//
// so a group moves in the direction in which all groups would move. Both variates are rows of
// layout->total floats, zeros at first. They stay zeros in tensors that the group keeps for itself
// and in statistics.
//
// No variate of a group travels: everything follows from the update that the gateway gets anyway.
// With sent the values that the group's accepted frame decodes to, S the server's variate as the
// boards had it in the round, and D the distance of the round's steps (below), per value:
//
//   own = (own - S) - sent * inverse,  inverse = 1 / D as float32
//
// The server's own new variate is in aggregator/merge/variate_fold.h. Boards get it as a frame of
// mode q8 beside the version, and S is what that frame decodes to, on the gateway too.
//
// Epochs: the variates of all groups belong together. When the set of enrolled groups changes, a
// group has lost its variate, or a version was not made from its updates, the gateway begins
// another epoch. An epoch has the number of its first round. All variates are then zeros again.
//
// D is how far the steps of a round go along a constant gradient of 1, from D = r = 0, in double,
// for each step of the round with its learning rate:
//
//   g = 1 - proximal * D;  r = momentum * r + g;  D = D + rate * r
//
// or with Nesterov's momentum D = D + rate * (g + momentum * r). Each line is computed from left to
// right, each value of a row by float32 operations. Pure functions. Threading: none.
#pragma once

#include "runtime/update/update.h"

// Returns D for the first steps of a round, at least 1e-30.
double cn_variate_distance(const struct cn_job *job, uint32_t round, uint64_t steps);

// Returns 1 / D in float32.
float cn_variate_inverse(double distance);

// Returns the bytes of both rows.
uint64_t cn_variate_memory(const struct cn_layout *layout);

// Returns whether control variates have the values of a tensor.
bool cn_variate_has(const struct cn_tensor_info *tensor);

// Replaces own by its successor after the frame of a round was accepted. The frame was checked. A
// frame of mode skip changes nothing. server may be NULL for zeros.
cn_err cn_variate_advance(const struct cn_layout *layout, const uint8_t *frame, size_t size,
                          const float *server, float inverse, float *own);

// Encodes the server's variate after a version, for the boards, into an empty buffer. Values are
// limited to those of updates. decoded, if it is not NULL, gets what the frame decodes to.
cn_err cn_variate_encode(const struct cn_layout *layout, uint64_t run, uint32_t version,
                         const uint8_t digest[CN_DIGEST_SIZE], const float *server, float *decoded,
                         struct cn_buffer *out);

// Checks that a frame holds the server's variate for a version, and decodes it into server. Returns
// the errors of cn_update_check, and CN_ESTALE for another version's.
cn_err cn_variate_decode(const struct cn_layout *layout, uint64_t run, uint32_t version,
                         const uint8_t digest[CN_DIGEST_SIZE], const uint8_t *frame, size_t size,
                         struct cn_diag *diag, float *server);
