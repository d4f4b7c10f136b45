// Included before every file of a test build (gcc -include). The host's memory then comes from functions that count and
// that can fail on request.

#ifndef VKMX_FAILING_H
#define VKMX_FAILING_H
#include <stdlib.h>

void *test_malloc(size_t bytes);
void *test_calloc(size_t count, size_t bytes);
void *test_realloc(void *block, size_t bytes);
void test_free(void *block);

#define malloc test_malloc
#define calloc test_calloc
#define realloc test_realloc
#define free test_free

#endif
