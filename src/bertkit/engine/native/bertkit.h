/* bertkit: the layers of BERT and its descendants on a CPU, over sequences without padding.
 *
 * A program describes an encoder (bertkit_shape), gives its weights to a builder one by one, seals it, and computes:
 *
 *     bertkit_builder *builder;
 *     bertkit_encoder *encoder;
 *     bertkit_error error;
 *     bertkit_builder_new(&shape, -1, &builder, &error);
 *     ... bertkit_builder_set_matrix, _set_norm, _set_attention for each stored layer ...
 *     bertkit_builder_seal(&builder, &encoder, &error);
 *     bertkit_encode(encoder, &batch, result, threads, &error);
 *     bertkit_encoder_free(encoder);
 *
 * Every function that can fail returns a status, BERTKIT_OK (0) if all went well, and says in `error` (which may be
 * NULL) what was wrong with which argument. Arguments are checked before anything is written. A structure with a field
 * struct_size must have its size in bytes there, output or not, so that a library of another version refuses it. Arrays
 * are row-major and without gaps; floats are 32 bits. A value that is not finite is data, no error: it stays in the
 * sequence that has it.
 *
 * Threads: a builder belongs to one thread at a time. A sealed encoder never changes, and any number of threads may
 * compute with it at once; all share one pool of workers. A forked child starts without workers. A library that has
 * packed or computed with several threads must stay loaded: its workers never end.
 */
#ifndef BERTKIT_H
#define BERTKIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define BERTKIT_API __declspec(dllexport)
#elif defined(__GNUC__)
#define BERTKIT_API __attribute__((visibility("default")))
#else
#define BERTKIT_API
#endif

/* Rises with every change that a caller can notice; a loader compares it with bertkit_api_version(). */
#define BERTKIT_API_VERSION 7

/* ---- Status ---- */

typedef int32_t bertkit_status;
enum {
    BERTKIT_OK = 0,
    /* Arguments. */
    BERTKIT_NULL = 10,        /* a pointer that must not be NULL is */
    BERTKIT_RANGE = 11,       /* a number is out of its range */
    BERTKIT_SHAPE = 12,       /* sizes do not fit each other */
    BERTKIT_OVERFLOW = 13,    /* sizes whose product no memory could hold */
    BERTKIT_ALIGNMENT = 14,   /* an address that its type does not allow */
    BERTKIT_STRUCT_SIZE = 15, /* a structure of another version */
    /* State. */
    BERTKIT_TWICE = 20,       /* this part is already set */
    BERTKIT_INCOMPLETE = 21,  /* a part is missing */
    /* Memory. */
    BERTKIT_NO_MEMORY = 30,
    /* Variants. */
    BERTKIT_NO_VARIANT = 40,  /* the library has none of this name or number */
    BERTKIT_CANNOT_RUN = 41,  /* the processor, or its operating system, lacks what the variant needs */
    BERTKIT_NO_KIND = 42,     /* the variant does not multiply this kind of weights */
    /* Data. */
    BERTKIT_NO_ROW = 50,      /* an id outside its table */
    BERTKIT_TOO_LONG = 51     /* a sequence longer than the tables of positions */
};

typedef struct {
    bertkit_status status;
    char text[252]; /* which argument, its value, what was expected; ends with NUL */
} bertkit_error;

/* ---- The library; none of these fails, and any thread may call them ---- */

BERTKIT_API int32_t bertkit_api_version(void);
/* The compiler that built it, and when the text ends. Static. */
BERTKIT_API const char *bertkit_build_info(void);
/* "BERTKIT_RANGE" ...; "unknown" for any other number. Static. */
BERTKIT_API const char *bertkit_status_name(bertkit_status status);

/* ---- Variants: the same functions for several instruction sets, the best first ---- */

/* Kinds of weights. F24: the upper 24 bits of a float. */
enum { BERTKIT_F32, BERTKIT_F24, BERTKIT_F16, BERTKIT_BF16, BERTKIT_I8, BERTKIT_NUM_KINDS };

typedef struct {
    size_t struct_size;
    const char *name;     /* static */
    int32_t runs;         /* 1: on this processor under this operating system */
    int32_t lanes;        /* floats of a vector */
    int32_t kinds;        /* bit 1 << kind for each kind of weights that it multiplies */
    int32_t fast_bytes;   /* 1: products of I8 are faster than those of floats */
    const char *lacks;    /* the first instruction set that is missing here; "" if it runs. Static */
} bertkit_variant_info;

BERTKIT_API int32_t bertkit_num_variants(void);
/* RANGE, NULL, ALIGNMENT, STRUCT_SIZE. `number` counts from 0. */
BERTKIT_API bertkit_status bertkit_variant_info_of(int32_t number, bertkit_variant_info *info, bertkit_error *error);
/* The number of a variant by name, or with NULL of the best that runs here. NULL, ALIGNMENT, NO_VARIANT, CANNOT_RUN. */
BERTKIT_API bertkit_status bertkit_find_variant(const char *name, int32_t *number, bertkit_error *error);

/* ---- Building ---- */

/* Activations of the feed-forward block. */
enum { BERTKIT_GELU = 1, BERTKIT_GELU_TANH = 2, BERTKIT_RELU = 3 };
/* Matrices of a layer: of query, key and value together, attention's output, both of the feed-forward block. */
enum { BERTKIT_QKV, BERTKIT_OUT, BERTKIT_UP, BERTKIT_DOWN, BERTKIT_NUM_MATRICES };
/* Normalizations of a layer: after attention and after the feed-forward block; where layers are gated, before the
 * feed-forward block and before attention. */
enum { BERTKIT_NORM_ATTENTION, BERTKIT_NORM_FFN, BERTKIT_NUM_NORMS };

/* An encoder without its weights.
 *
 * Layers are x = norm(x + attention(x)), x = norm(x + ffn(x)) (Devlin et al. 2019) or, gated, x = x +
 * attention(norm(x)), x = x + ffn(norm(x)) with ffn(x) = down(activation(a) * b), a and b side by side in up(x) (Warner
 * et al. 2024).
 */
typedef struct {
    size_t struct_size;
    int32_t num_layers;   /* at least 1 */
    int32_t num_stored;   /* layers with weights of their own */
    const int32_t *order; /* [num_layers], the stored layer at each depth; NULL: each its own. Copied */
    int32_t width;        /* a multiple of heads */
    int32_t heads;
    int32_t inner;        /* width of the feed-forward block: rows of up, half of them where layers are gated */
    int32_t activation;
    float eps;            /* of the normalizations; at least 0 */
    int32_t gated;
    int32_t threads;      /* that pack each matrix; counts the caller's, below 1 is 1 */
} bertkit_shape;

/* y = x W^T + b.
 *
 * The rows of BERTKIT_QKV that make queries, and their bias, are multiplied by log2(e) / sqrt(width / heads) by the
 * caller: scores are exponents of two.
 */
typedef struct {
    size_t struct_size;
    int32_t kind;
    int32_t outputs, inputs;
    const void *weights; /* [outputs][inputs]: floats (F32, F24), halves in multiples of unit (F16), bf16, int8 */
    const float *bias;   /* [outputs] */
    float unit;          /* F16: a power of two that keeps the weights in range; else 1 */
    /* The rest is for I8: weights are multiples of scale; an input x is rounded as x * smooth (+ shift, where not NULL:
     * then inputs have a least value). */
    const float *scale;  /* [outputs] */
    const float *smooth; /* [inputs]; 0 for outliers */
    const float *shift;  /* [inputs] or NULL */
    int32_t narrow;      /* 1: all weights are -63 ... 63 */
    int32_t num_outliers; /* inputs that stay floats */
    const int32_t *outliers;      /* [num_outliers] */
    const float *outlier_weights; /* [num_outliers][outputs] */
} bertkit_matrix;

typedef struct bertkit_builder bertkit_builder;
typedef struct bertkit_encoder bertkit_encoder;

/* Begins an encoder for a variant (-1: the best). NULL, ALIGNMENT, STRUCT_SIZE, RANGE, SHAPE, NO_MEMORY, NO_VARIANT,
 * CANNOT_RUN. */
BERTKIT_API bertkit_status bertkit_builder_new(
    const bertkit_shape *shape, int32_t variant, bertkit_builder **builder, bertkit_error *error);
/* Packs a matrix; its arrays may be freed then. NULL, STRUCT_SIZE, RANGE, SHAPE, ALIGNMENT, NO_KIND, TWICE, NO_MEMORY. */
BERTKIT_API bertkit_status bertkit_builder_set_matrix(
    bertkit_builder *builder, int32_t layer, int32_t which, const bertkit_matrix *matrix, bertkit_error *error);
/* Packs a matrix of any sizes besides the layers', for bertkit_multiply: a layer of a head, or one before the encoder.
 * At most 256; `number` counts from 0. NULL, STRUCT_SIZE, RANGE, ALIGNMENT, NO_KIND, NO_MEMORY. */
BERTKIT_API bertkit_status bertkit_builder_add_matrix(
    bertkit_builder *builder, const bertkit_matrix *matrix, int32_t *number, bertkit_error *error);
/* Scale and shift, [width] each, of a stored layer, or, where layers are gated, with layer -1 and BERTKIT_NORM_ATTENTION
 * after the top one. A gated layer may be without BERTKIT_NORM_FFN, the one before attention: it then reads rows as they
 * are. NULL, ALIGNMENT, RANGE, SHAPE, TWICE, NO_MEMORY. */
BERTKIT_API bertkit_status bertkit_builder_set_norm(
    bertkit_builder *builder, int32_t layer, int32_t which, const float *scale, const float *shift,
    bertkit_error *error);
/* How the scores of a stored layer depend on positions; without it they do not.
 *
 * half_window: tokens that are seen on each side, -1: all. rotary: which of the tables of angles of bertkit_positions,
 * 0 or 1, -1: none. keys, queries: of distances, [num_distances][width] each, either may be NULL, the queries scaled as
 * those of BERTKIT_QKV; num_distances is the same in all layers. NULL, ALIGNMENT, RANGE, SHAPE, NO_MEMORY, TWICE. */
BERTKIT_API bertkit_status bertkit_builder_set_attention(
    bertkit_builder *builder, int32_t layer, int32_t half_window, int32_t rotary, int32_t num_distances,
    const float *keys, const float *queries, bertkit_error *error);
/* Turns a complete builder into an encoder and sets it to NULL; an error leaves it. INCOMPLETE names what is missing;
 * NULL, ALIGNMENT, SHAPE. */
BERTKIT_API bertkit_status bertkit_builder_seal(
    bertkit_builder **builder, bertkit_encoder **encoder, bertkit_error *error);
/* NULL is allowed. No call with it may be running. */
BERTKIT_API void bertkit_builder_free(bertkit_builder *builder);
BERTKIT_API void bertkit_encoder_free(bertkit_encoder *encoder);

/* ---- Computing ---- */

/* Tables for sequences of up to `longest` tokens, for layers that ask for them. */
typedef struct {
    size_t struct_size;
    int32_t longest;
    /* [longest][size] with size = width / heads: size / 2 cosines of a token's angles, then their sines; angle i turns
     * the numbers i and i + size / 2 of a head. Or NULL. */
    const float *angles[2];
    /* [heads][2 * longest - 1]: exponents of two for key minus query, from 1 - longest to longest - 1; or NULL. */
    const float *bias;
    /* [2 * longest - 1]: rows for query minus key, from 1 - longest to longest - 1; rows do not fall. Or NULL. */
    const int32_t *distances;
} bertkit_positions;

/* Sequences end to end. */
typedef struct {
    size_t struct_size;
    int32_t num_sequences;
    const int32_t *starts;  /* [num_sequences + 1], ascending from 0: where each begins, then the number of rows */
    const float *rows;      /* [rows][width] */
    /* [wanted_starts[num_sequences]]: rows of the top layer to return, ascending, each at most once; NULL: all */
    const int32_t *wanted;
    const int32_t *wanted_starts; /* [num_sequences + 1]: where in `wanted` those of each sequence begin, and their number */
    const bertkit_positions *positions; /* or NULL */
} bertkit_batch;

/* The top layer's rows, all or those wanted: [rows or wanted][width]. `threads` counts the caller's; below 1 is 1, above
 * 256 is 256, and fewer are used while another call has them. NULL, STRUCT_SIZE, RANGE, SHAPE, ALIGNMENT, TOO_LONG,
 * OVERFLOW, NO_MEMORY; on an error `result` is as it was. Re-entrant. */
BERTKIT_API bertkit_status bertkit_encode(
    const bertkit_encoder *encoder, const bertkit_batch *batch, float *result, int32_t threads, bertkit_error *error);

/* activation(x W^T + b), [num_rows][outputs], with a matrix that was added and rows x [num_rows][inputs], in the caller's
 * thread; `activation` 0: none. A row's result does not depend on the others. NULL, RANGE, ALIGNMENT, OVERFLOW,
 * NO_MEMORY; on an error `result` is as it was. Re-entrant. */
BERTKIT_API bertkit_status bertkit_multiply(
    const bertkit_encoder *encoder, int32_t number, const float *rows, int32_t num_rows, int32_t activation,
    float *result, bertkit_error *error);

/* How the rows of a sequence become one vector: its first or last row; the largest values; the sum divided by the number
 * of rows, or by the root of that; the mean with the weights 1, 2, 3 ... by position. */
enum {
    BERTKIT_POOL_FIRST = 1,
    BERTKIT_POOL_LAST,
    BERTKIT_POOL_MAX,
    BERTKIT_POOL_MEAN,
    BERTKIT_POOL_MEAN_SQRT,
    BERTKIT_POOL_WEIGHTED_MEAN
};

/* A vector of each sequence, [num_sequences][width], of at least one. `starts`: [num_sequences + 1], as in a batch;
 * `skipped`: first rows of each sequence that are left out, fewer than it has. NULL, RANGE, SHAPE, ALIGNMENT; on an error
 * `result` is as it was. Re-entrant. */
BERTKIT_API bertkit_status bertkit_pool(
    int32_t mode, int32_t num_sequences, const int32_t *starts, const float *rows, int32_t skipped, int32_t width,
    float *result, bertkit_error *error);

/* Rows of a table: floats, or bytes in multiples of row_scale[row] * column_scale[column]. */
typedef struct {
    const void *rows;          /* [num_rows][width]: float, or int8_t where there are scales */
    const float *row_scale;    /* [num_rows] or NULL */
    const float *column_scale; /* [width] or NULL */
    int64_t num_rows;
} bertkit_table;

/* Rows of tables, added up and normalized: [tokens][width]. `ids`: for each table [tokens]. On NO_ROW the error names
 * table, token and id, and `result` is as it was. NULL, RANGE, ALIGNMENT, NO_ROW, NO_VARIANT, CANNOT_RUN. Re-entrant. */
BERTKIT_API bertkit_status bertkit_embed(
    int32_t variant, int32_t num_tables, const bertkit_table *tables, const int64_t *const *ids, int32_t tokens,
    int32_t width, float eps, const float *scale, const float *shift, float *result, bertkit_error *error);

#ifdef __cplusplus
}
#endif

#endif
