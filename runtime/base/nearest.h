// nearest.h - which known word a person probably meant. Threading: none.
#pragma once

#include <stddef.h>

#define CN_NEAREST_WORD 32 // longer words are near to none

// Returns the edit distance of two words of at most CN_NEAREST_WORD letters: the least number of
// letters to add, drop or change (Levenshtein).
size_t cn_nearest_distance(const char *a, const char *b);

// Returns a distance at which a word no longer counts as a misspelling: one wrong letter is
// allowed, and in words of more than three letters two.
size_t cn_nearest_limit(const char *word);
