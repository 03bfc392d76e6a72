// nearest.h - which known word a person probably meant. Threading: none.
//
// Words are compared by their edit distance: the least number of letters to add, drop or change
// (Levenshtein). One wrong letter is allowed, and in words of more than three letters two.
#pragma once

#include <stddef.h>

#define CN_NEAREST_WORD 32 // longer words are near to none

// A search for the known word that is nearest to a word.
struct cn_nearest {
    const char *word;                // borrowed while the search goes on
    size_t limit;                    // a known word is near at a distance less than this
    char found[CN_NEAREST_WORD + 1]; // result: the nearest word so far; "": none is near
};

void cn_nearest_begin(struct cn_nearest *search, const char *word);

// Compares the word with a known one of this length. Of equally near words the first stays.
void cn_nearest_compare(struct cn_nearest *search, const char *known, size_t length);
