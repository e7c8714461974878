#include "characters.h"

#include <stdlib.h>
#include <string.h>

#include "unicode_tables.h"

/* Syllables of Hangul, composed by arithmetic of a leading consonant, a vowel and, where `T` is not 0, a trailing one. */
enum { HANGUL = 0xac00, SYLLABLES = 11172, L = 0x1100, V = 0x1161, T = 0x11a7, NUM_V = 21, NUM_T = 28 };
/* Capital I with a dot: the only one whose small form has two characters. */
enum { DOTTED_I = 0x130, DOT_ABOVE = 0x307 };
#define REPLACEMENT 0xfffdu

const Character *character(uint32_t code) {
    const uint32_t middle_mask = (1u << MIDDLE_BITS) - 1, leaf_mask = (1u << LEAF_BITS) - 1;
    uint32_t block = (uint32_t)TOP[code >> (LEAF_BITS + MIDDLE_BITS)] << MIDDLE_BITS;
    uint32_t leaf = (uint32_t)MIDDLE[block | (code >> LEAF_BITS & middle_mask)] << LEAF_BITS;
    return &CHARACTERS[LEAF[leaf | (code & leaf_mask)]];
}

/* ---- UTF-8 ---- */

uint32_t read_utf8(const char *text, size_t size, int32_t *bytes) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t first = (uint8_t)text[0];
    int length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
    *bytes = 1;
    if (length == 1) return first;
    if (!length || (size_t)length > size) return REPLACEMENT;
    uint32_t code = first & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        uint8_t next = (uint8_t)text[i];
        if (next >> 6 != 2) return REPLACEMENT;
        code = code << 6 | (next & 0x3f);
    }
    if (code < least[length] || code > 0x10ffff) return REPLACEMENT;
    *bytes = length;
    return code;
}

int32_t write_utf8(uint32_t code, char *text) {
    if (code < 0x80) {
        text[0] = (char)code;
        return 1;
    }
    int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--, code >>= 6) text[i] = (char)(0x80 | (code & 0x3f));
    text[0] = (char)((0xf00 >> length & 0xff) | code);
    return length;
}

/* ---- Characters ---- */

int add_character(Characters *text, uint32_t code, int32_t place) {
    if (text->count == text->room) {
        size_t room = text->room ? 2 * text->room : 1024;
        Placed *grown = realloc(text->items, room * sizeof *grown);
        if (!grown) return 0;
        text->items = grown, text->room = room;
    }
    text->items[text->count++] = (Placed){code, place};
    return 1;
}

void free_characters(Characters *text) {
    free(text->items);
    *text = (Characters){0};
}

static void swap(Characters *a, Characters *b) {
    Characters kept = *a;
    *a = *b, *b = kept;
}

int lower_case(Characters *text, Characters *scratch) {
    scratch->count = 0;
    for (size_t i = 0; i < text->count; i++) {
        Placed from = text->items[i];
        int dotted = from.code == DOTTED_I;
        uint32_t small = dotted ? 'i' : from.code + (uint32_t)character(from.code)->lower;
        if (!add_character(scratch, small, from.place)) return 0;
        if (dotted && !add_character(scratch, DOT_ABOVE, from.place)) return 0;
    }
    swap(text, scratch);
    return 1;
}

/* ---- Decomposition ----
 *
 * Marks that follow each other are sorted by their combining classes. Where marks change places, a part is said to come
 * from the character whose turn it is, as the published fast tokenizers say; see decompose() in reference.py. Until all
 * marks are in order, `place` of a part therefore has its number, and whether it is the first of its character. */

static int by_code(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

/* The parts of a character, and how many. */
static int parts_of(uint32_t code, uint32_t parts[MOST_PARTS]) {
    parts[0] = code;
    if (code < 0xc0) return 1;
    if (code - HANGUL < SYLLABLES) {
        uint32_t syllable = code - HANGUL, trailing = syllable % NUM_T;
        parts[0] = L + syllable / (NUM_V * NUM_T), parts[1] = V + syllable / NUM_T % NUM_V, parts[2] = T + trailing;
        return trailing ? 3 : 2;
    }
    const uint32_t *found = bsearch(&code, COMPOSED, NUM_COMPOSED, sizeof *COMPOSED, by_code);
    if (!found) return 1;
    int count = 0;
    while (count < MOST_PARTS && found[1 + count]) parts[count] = found[1 + count], count++;
    return count;
}

static int by_class(const void *a, const void *b) {
    const Placed *left = a, *right = b;
    int order = character(left->code)->combining - character(right->code)->combining;
    return order ? order : (left->place > right->place) - (left->place < right->place); /* so that it is stable */
}

static void sort_marks(Characters *parts) {
    for (size_t start = 0, end; start < parts->count; start = end + 1) {
        end = start;
        while (end < parts->count && character(parts->items[end].code)->combining) end++;
        if (end - start > 1) qsort(parts->items + start, end - start, sizeof *parts->items, by_class);
    }
}

static int decompose(const Characters *text, Characters *parts) {
    parts->count = 0;
    for (size_t i = 0; i < text->count; i++) {
        uint32_t found[MOST_PARTS];
        int count = parts_of(text->items[i].code, found);
        for (int part = 0; part < count; part++)
            if (!add_character(parts, found[part], (int32_t)(2 * parts->count + (part == 0)))) return 0;
    }
    sort_marks(parts);
    size_t turn = 0;
    for (size_t i = 0; i < parts->count; i++) {
        turn += parts->items[i].place & 1;
        parts->items[i].place = text->items[turn ? turn - 1 : 0].place;
    }
    return 1;
}

int strip_accents(Characters *text, Characters *scratch) {
    if (!decompose(text, scratch)) return 0;
    size_t kept = 0;
    for (size_t i = 0; i < scratch->count; i++)
        if (character(scratch->items[i].code)->kind != ACCENT) scratch->items[kept++] = scratch->items[i];
    scratch->count = kept;
    swap(text, scratch);
    return 1;
}
