/* What is wrong with an argument: a status, and a text in the caller's memory. */
#ifndef BERTKIT_CHECK_H
#define BERTKIT_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "bertkit.h"

/* The status, after a text for it was written. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
bertkit_status fail(bertkit_error *error, bertkit_status status, const char *format, ...);

/* Return from the function that uses it unless a condition holds. */
#define REQUIRE(CONDITION, STATUS, ...) \
    do { \
        if (!(CONDITION)) return fail(error, STATUS, __VA_ARGS__); \
    } while (0)
/* The same for a status that a function returned. */
#define FORWARD(CALL) \
    do { \
        bertkit_status status_ = (CALL); \
        if (status_) return status_; \
    } while (0)

/* Whether a * b fits; then *product has it. */
int multiplied(size_t a, size_t b, size_t *product);

/* OK, NULL or ALIGNMENT; `alignment` in bytes. */
bertkit_status check_pointer(const void *pointer, size_t alignment, const char *name, bertkit_error *error);
bertkit_status check_range(int64_t value, int64_t least, int64_t most, const char *name, bertkit_error *error);
bertkit_status check_size(size_t given, size_t known, const char *name, bertkit_error *error);
/* Numbers from 0 that do not fall, [count + 1]. */
bertkit_status check_starts(const int32_t *starts, int32_t count, const char *name, bertkit_error *error);

#endif
