#include "wordpiece.h"

#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "characters.h"

#define MOST_WHOLE 8
#define MOST_BYTES ((size_t)1 << 28)
/* FNV-1a. */
#define HASH_START 2166136261u
#define HASH_FACTOR 16777619u
static const char PREFIX[] = "##"; /* of entries that continue a word */
#define PREFIX_SIZE ((int32_t)sizeof PREFIX - 1)

struct wordpiece {
    wordpiece_options options;
    int32_t whole[MOST_WHOLE];
    int32_t num_entries, longest_entry; /* bytes */
    uint32_t *starts;                   /* [num_entries + 1]: where each entry begins */
    int32_t *slots;                     /* ids by hash, -1: free */
    uint32_t mask;                      /* slots - 1 */
    Characters segment, scratch;        /* text between whole entries */
    char *word;                         /* UTF-8 of one word */
    int32_t *word_starts;               /* [longest_word + 1]: where its characters begin */
    wordpiece_piece *pieces;
    size_t num_pieces, room;
    int32_t num_words;
};

/* ---- Entries by their bytes ---- */

static uint32_t hashed(uint32_t hash, const char *bytes, int32_t size) {
    for (int32_t i = 0; i < size; i++) hash = (hash ^ (uint8_t)bytes[i]) * HASH_FACTOR;
    return hash;
}

const char *wordpiece_entry(const wordpiece *w, int32_t id, int32_t *size) {
    *size = (int32_t)(w->starts[id + 1] - w->starts[id]) - 1; /* without its line feed */
    return w->options.entries + w->starts[id];
}

int32_t wordpiece_num_entries(const wordpiece *w) { return w->num_entries; }

/* The id of what has this hash: a part of a word, after PREFIX where it continues it; -1: there is none. */
static int32_t find(const wordpiece *w, uint32_t hash, int continues, const char *part, int32_t size) {
    int32_t before = continues ? PREFIX_SIZE : 0;
    for (uint32_t slot = hash & w->mask; w->slots[slot] >= 0; slot = (slot + 1) & w->mask) {
        int32_t entry_size;
        const char *entry = wordpiece_entry(w, w->slots[slot], &entry_size);
        if (entry_size == before + size && !memcmp(entry, PREFIX, before) && !memcmp(entry + before, part, size))
            return w->slots[slot];
    }
    return -1;
}

static void list_entries(wordpiece *w) {
    int32_t id = 0;
    for (size_t i = 0; i < w->options.size; i++)
        if (w->options.entries[i] == '\n') w->starts[++id] = (uint32_t)i + 1;
    for (id = 0; id < w->num_entries; id++) {
        int32_t size;
        const char *entry = wordpiece_entry(w, id, &size);
        uint32_t slot = hashed(HASH_START, entry, size) & w->mask;
        while (w->slots[slot] >= 0) slot = (slot + 1) & w->mask;
        w->slots[slot] = id;
        if (size > w->longest_entry) w->longest_entry = size;
    }
}

/* ---- Making one ---- */

static bertkit_status check_options(const wordpiece_options *o, int32_t num_entries, bertkit_error *error) {
    REQUIRE(
        o->size && o->entries[o->size - 1] == '\n', BERTKIT_RANGE, "options.entries do not end with a line feed");
    FORWARD(check_range(o->longest_word, 1, 1 << 16, "options.longest_word", error));
    FORWARD(check_range(o->unknown, 0, num_entries - 1, "options.unknown", error));
    FORWARD(check_range(o->num_whole, 0, MOST_WHOLE, "options.num_whole", error));
    for (int i = 0; i < o->num_whole; i++) FORWARD(check_range(o->whole[i], 0, num_entries - 1, "options.whole", error));
    return BERTKIT_OK;
}

static int allocate(wordpiece *w) {
    uint32_t slots = 16;
    while (slots < 2 * (uint32_t)w->num_entries) slots *= 2;
    w->mask = slots - 1;
    w->starts = calloc((size_t)w->num_entries + 1, sizeof *w->starts);
    w->slots = malloc(slots * sizeof *w->slots);
    w->word = malloc((size_t)w->options.longest_word * MOST_UTF8);
    w->word_starts = malloc(((size_t)w->options.longest_word + 1) * sizeof *w->word_starts);
    if (w->slots) memset(w->slots, -1, slots * sizeof *w->slots);
    return w->starts && w->slots && w->word && w->word_starts;
}

bertkit_status wordpiece_new(const wordpiece_options *options, wordpiece **made, bertkit_error *error) {
    FORWARD(check_pointer(options, sizeof(void *), "options", error));
    FORWARD(check_pointer(made, sizeof(void *), "made", error));
    FORWARD(check_pointer(options->entries, 1, "options.entries", error));
    if (options->num_whole) FORWARD(check_pointer(options->whole, sizeof(int32_t), "options.whole", error));
    REQUIRE(options->size < MOST_BYTES, BERTKIT_RANGE, "options.size is %zu, expected less than %zu", options->size, MOST_BYTES);
    int32_t num_entries = 0;
    for (size_t i = 0; i < options->size; i++) num_entries += options->entries[i] == '\n';
    FORWARD(check_options(options, num_entries, error));
    wordpiece *w = calloc(1, sizeof *w);
    REQUIRE(w, BERTKIT_NO_MEMORY, "no memory for a tokenizer");
    w->options = *options;
    w->num_entries = num_entries;
    if (options->num_whole) memcpy(w->whole, options->whole, options->num_whole * sizeof *w->whole);
    if (!allocate(w)) {
        wordpiece_free(w);
        return fail(error, BERTKIT_NO_MEMORY, "no memory for a vocabulary of %d entries", num_entries);
    }
    list_entries(w);
    *made = w;
    return BERTKIT_OK;
}

void wordpiece_free(wordpiece *w) {
    if (!w) return;
    free(w->starts), free(w->slots), free(w->word), free(w->word_starts), free(w->pieces);
    free_characters(&w->segment), free_characters(&w->scratch);
    free(w);
}

/* ---- From words to pieces; these return 0 where there is no memory ---- */

static int add_piece(wordpiece *w, int32_t id, int32_t start, int32_t end) {
    if (w->num_pieces == w->room) {
        size_t room = w->room ? 2 * w->room : 256;
        wordpiece_piece *grown = realloc(w->pieces, room * sizeof *grown);
        if (!grown) return 0;
        w->pieces = grown, w->room = room;
    }
    w->pieces[w->num_pieces++] = (wordpiece_piece){id, w->num_words, start, end};
    return 1;
}

static int add_unknown(wordpiece *w, const Placed *chars, int32_t count) {
    return add_piece(w, w->options.unknown, chars[0].place, chars[count - 1].place + 1);
}

/* The longest entry that fits the word's characters from `start` on, and where it ends; -1: none does. */
static int32_t longest_entry_at(const wordpiece *w, int32_t start, int32_t count, int32_t *end) {
    const int32_t *starts = w->word_starts;
    const char *part = w->word + starts[start];
    uint32_t hash = start ? hashed(HASH_START, PREFIX, PREFIX_SIZE) : HASH_START;
    int32_t best = -1;
    for (int32_t next = start + 1; next <= count; next++) {
        int32_t size = starts[next] - starts[start];
        if (size > w->longest_entry) break;
        hash = hashed(hash, w->word + starts[next - 1], starts[next] - starts[next - 1]);
        int32_t found = find(w, hash, start > 0, part, size);
        if (found >= 0) best = found, *end = next;
    }
    return best;
}

static int cut_word(wordpiece *w, const Placed *chars, int32_t count) {
    if (count > w->options.longest_word) return add_unknown(w, chars, count);
    w->word_starts[0] = 0;
    for (int32_t i = 0; i < count; i++)
        w->word_starts[i + 1] = w->word_starts[i] + write_utf8(chars[i].code, w->word + w->word_starts[i]);
    size_t before = w->num_pieces;
    for (int32_t start = 0, end = 0; start < count; start = end) {
        int32_t id = longest_entry_at(w, start, count, &end);
        if (id < 0) {
            w->num_pieces = before;
            return add_unknown(w, chars, count);
        }
        if (!add_piece(w, id, chars[start].place, chars[end - 1].place + 1)) return 0;
    }
    return 1;
}

/* ---- From text to words ---- */

/* The words of normalized text: runs without white space, each punctuation character for itself. */
static int cut_words(wordpiece *w, const Placed *chars, size_t count) {
    for (size_t start = 0, end; start < count; start = end) {
        int kind = character(chars[start].code)->kind;
        end = start + 1;
        if (kind == SPACE) continue;
        while (kind != PUNCTUATION && end < count) {
            int next = character(chars[end].code)->kind;
            if (next == SPACE || next == PUNCTUATION) break;
            end++;
        }
        if (!cut_word(w, chars + start, (int32_t)(end - start))) return 0;
        w->num_words++;
    }
    return 1;
}

static int cut_segment(wordpiece *w) {
    Characters *text = &w->segment;
    if (w->options.strip_accents && !strip_accents(text, &w->scratch)) return 0;
    if (w->options.lower && !lower_case(text, &w->scratch)) return 0;
    int done = cut_words(w, text->items, text->count);
    text->count = 0;
    return done;
}

static int add_cleaned(wordpiece *w, uint32_t code, int32_t place) {
    Characters *text = &w->segment;
    switch (character(code)->kind) {
    case REMOVED: return 1;
    case SPACE: return add_character(text, ' ', place);
    case CHINESE:
        if (w->options.chinese)
            return add_character(text, ' ', place) && add_character(text, code, place) && add_character(text, ' ', place);
    }
    return add_character(text, code, place);
}

/* The id of the longest entry that is kept whole and stands here, and its bytes; -1: none does. */
static int32_t whole_at(const wordpiece *w, const char *text, size_t size, int32_t *length) {
    int32_t best = -1;
    *length = 0;
    for (int i = 0; i < w->options.num_whole; i++) {
        int32_t bytes;
        const char *entry = wordpiece_entry(w, w->whole[i], &bytes);
        if (bytes > *length && (size_t)bytes <= size && !memcmp(entry, text, bytes)) best = w->whole[i], *length = bytes;
    }
    return best;
}

static int32_t count_characters(const char *text, int32_t size) {
    int32_t count = 0;
    for (int32_t i = 0; i < size; i++) count += ((uint8_t)text[i] & 0xc0) != 0x80;
    return count;
}

static int cut_text(wordpiece *w, const char *text, size_t size) {
    int32_t place = 0, bytes;
    for (size_t i = 0; i < size; i += bytes) {
        int32_t id = whole_at(w, text + i, size - i, &bytes);
        if (id < 0) {
            uint32_t code = read_utf8(text + i, size - i, &bytes);
            if (!add_cleaned(w, code, place++)) return 0;
            continue;
        }
        int32_t end = place + count_characters(text + i, bytes);
        if (!cut_segment(w) || !add_piece(w, id, place, end)) return 0;
        w->num_words++;
        place = end;
    }
    return cut_segment(w);
}

bertkit_status wordpiece_cut(
    wordpiece *w, const char *text, size_t size, const wordpiece_piece **pieces, int32_t *count, bertkit_error *error) {
    FORWARD(check_pointer(w, sizeof(void *), "w", error));
    FORWARD(check_pointer(pieces, sizeof(void *), "pieces", error));
    FORWARD(check_pointer(count, sizeof *count, "count", error));
    if (size) FORWARD(check_pointer(text, 1, "text", error));
    REQUIRE(size < MOST_BYTES, BERTKIT_RANGE, "the text has %zu bytes, expected less than %zu", size, MOST_BYTES);
    w->num_pieces = 0, w->num_words = 0, w->segment.count = 0;
    REQUIRE(cut_text(w, text, size), BERTKIT_NO_MEMORY, "no memory for a text of %zu bytes", size);
    *pieces = w->pieces, *count = (int32_t)w->num_pieces;
    return BERTKIT_OK;
}
