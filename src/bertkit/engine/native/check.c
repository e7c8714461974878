#include "check.h"

#include <stdarg.h>
#include <stdio.h>

bertkit_status fail(bertkit_error *error, bertkit_status status, const char *format, ...) {
    if (error) {
        va_list arguments;
        error->status = status;
        va_start(arguments, format);
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
    }
    return status;
}

int multiplied(size_t a, size_t b, size_t *product) {
    if (b && a > SIZE_MAX / b) return 0;
    *product = a * b;
    return 1;
}

bertkit_status check_pointer(const void *pointer, size_t alignment, const char *name, bertkit_error *error) {
    REQUIRE(pointer, BERTKIT_NULL, "%s is NULL", name);
    REQUIRE((uintptr_t)pointer % alignment == 0, BERTKIT_ALIGNMENT, "%s is not aligned to %zu bytes", name, alignment);
    return BERTKIT_OK;
}

bertkit_status check_range(int64_t value, int64_t least, int64_t most, const char *name, bertkit_error *error) {
    REQUIRE(
        least <= value && value <= most, BERTKIT_RANGE, "%s is %lld, expected %lld to %lld", name, (long long)value,
        (long long)least, (long long)most);
    return BERTKIT_OK;
}

bertkit_status check_size(size_t given, size_t known, const char *name, bertkit_error *error) {
    REQUIRE(
        given == known, BERTKIT_STRUCT_SIZE, "%s has %zu bytes, this library expects %zu: the header is of another version",
        name, given, known);
    return BERTKIT_OK;
}

bertkit_status check_starts(const int32_t *starts, int32_t count, const char *name, bertkit_error *error) {
    FORWARD(check_pointer(starts, sizeof *starts, name, error));
    REQUIRE(starts[0] == 0, BERTKIT_SHAPE, "%s[0] is %d, expected 0", name, starts[0]);
    for (int32_t i = 0; i < count; i++)
        REQUIRE(
            starts[i] <= starts[i + 1], BERTKIT_SHAPE, "%s[%d] is %d, less than the %d before it", name, i + 1,
            starts[i + 1], starts[i]);
    return BERTKIT_OK;
}
