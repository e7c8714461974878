/* Memory that is given out from front to back, filled with zeros, and freed as a whole.
 *
 * It comes in large blocks, of huge pages where the system has them: each call reads all weights from front to back, and
 * with pages of 4 kB the processor would have to look up the places of thousands. The part of a block that is never given
 * out takes no memory.
 */
#ifndef BERTKIT_MEMORY_H
#define BERTKIT_MEMORY_H

#include <stddef.h>

typedef struct Block Block;

/* count * size zero bytes, aligned to 64; NULL: no memory, or no number for so many bytes. */
void *zeros(Block **memory, size_t count, size_t size);
void free_all(Block *memory);

#endif
