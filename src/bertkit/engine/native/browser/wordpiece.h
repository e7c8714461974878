/* BERT's WordPiece tokenizer: a text in UTF-8 to pieces with their ids and places.
 *
 * The same steps as bertkit/tokenization/reference.py and equal to BertTokenizer: clean, space out Chinese characters,
 * strip accents, lower-case, split into words, and take at each place the longest entry that fits.
 */
#ifndef BERTKIT_WORDPIECE_H
#define BERTKIT_WORDPIECE_H

#include "../bertkit.h"

typedef struct {
    const char *entries; /* in the order of their ids, a line feed after each; read as long as the tokenizer lives */
    size_t size;         /* bytes of it */
    int32_t lower, strip_accents, chinese; /* 1: yes */
    int32_t longest_word; /* characters; a longer word becomes `unknown` */
    int32_t unknown;      /* the id of what stands for a word that cannot be covered */
    int32_t num_whole;    /* entries that are found anywhere in a text and never cut, and their ids; at most 8 */
    const int32_t *whole;
} wordpiece_options;

/* One piece. `word` counts from 0 in its text; a whole entry is a word of its own. `start` and `end` count the characters
 * (code points) of the text. */
typedef struct {
    int32_t id, word, start, end;
} wordpiece_piece;

typedef struct wordpiece wordpiece;

/* NULL, RANGE, NO_MEMORY. */
bertkit_status wordpiece_new(const wordpiece_options *options, wordpiece **made, bertkit_error *error);
void wordpiece_free(wordpiece *w);
int32_t wordpiece_num_entries(const wordpiece *w);
/* An entry and its bytes; `id` is in range. */
const char *wordpiece_entry(const wordpiece *w, int32_t id, int32_t *size);
/* The pieces of a text of `size` bytes, which stay until the next call. Bytes that are not UTF-8 are removed, as U+FFFD
 * is. One thread at a time. NULL, RANGE, NO_MEMORY. */
bertkit_status wordpiece_cut(
    wordpiece *w, const char *text, size_t size, const wordpiece_piece **pieces, int32_t *count, bertkit_error *error);

#endif
