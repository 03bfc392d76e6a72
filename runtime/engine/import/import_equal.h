// import_equal.h - lets equal known values share memory, for import.c.
#pragma once

#include "runtime/engine/graph/graph.h"

#define CN_IMPORT_EQUAL_PLACES 1024
#define CN_IMPORT_EQUAL_WORDS 1024 // values of fewer words do not share memory

// Zeroed at first.
struct cn_import_equal {
    uint32_t latest[CN_IMPORT_EQUAL_PLACES]; // the latest large value with a hash; 0: none
};

// Adds a value to a graph whose first value is an input. A large known value, whose elements are
// the last of their pool, is compared with the latest one of the same hash. If they are equal, the
// new value shares the memory of the other, and its elements are removed from the pool. Takes time
// in proportion to the value's elements.
cn_err cn_import_equal_add(struct cn_import_equal *equal, struct cn_graph *graph,
                           const struct cn_value *value, uint32_t *index);
