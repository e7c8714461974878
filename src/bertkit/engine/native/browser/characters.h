/* Characters with their places in a text, and what BERT's tokenizer does to them. Functions that return an int return 0
 * where there is no memory. */
#ifndef BERTKIT_CHARACTERS_H
#define BERTKIT_CHARACTERS_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of a character at most. */
#define MOST_UTF8 4

enum { OTHER, REMOVED, SPACE, PUNCTUATION, CHINESE, ACCENT };

/* What Unicode says of a character, as BERT asks: its kind, its combining class, and what leads to the small letter when
 * it is added. */
typedef struct {
    uint8_t kind, combining;
    int32_t lower;
} Character;

typedef struct {
    uint32_t code;
    int32_t place; /* of the character of the text that it comes from */
} Placed;

typedef struct {
    Placed *items;
    size_t count, room;
} Characters;

const Character *character(uint32_t code);
/* The code point that begins here, and its bytes. A lone surrogate is one, as Python has them; any other byte that does
 * not belong to UTF-8 is U+FFFD. */
uint32_t read_utf8(const char *text, size_t size, int32_t *bytes);
/* The bytes that it wrote. */
int32_t write_utf8(uint32_t code, char *text);

int add_character(Characters *text, uint32_t code, int32_t place);
void free_characters(Characters *text);
/* Canonical decomposition (NFD) without the accents. */
int strip_accents(Characters *text, Characters *scratch);
/* Each character by itself: a final sigma becomes an ordinary one. */
int lower_case(Characters *text, Characters *scratch);

#endif
