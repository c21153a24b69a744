/* Types and macros that the compiled products share: vector code, tile sizes, one product of rows and a matrix. */

#ifndef PROCESSOR_PRODUCT_H
#define PROCESSOR_PRODUCT_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,f16c,fma")))
#define AVX512_INLINE static inline __attribute__((always_inline)) AVX512

#define ROW_TILE 4 /* rows of x that share each load of the weights */
#define PIECE_BYTES 65536 /* weights per piece of a job: some microseconds of work */
/* Far enough ahead for the memory, and past the 4 KB page at whose end the hardware prefetcher stops. */
#define PREFETCH_BYTES 6144

typedef struct Product {
    const void *weights, *scales, *x; /* `scales`: second part of the weights as the format has it */
    float *out;
    const float *bias;  /* NULL: none */
    char *rounded_rows; /* rows of x in 8 bits; formats of 4 and 8 bits only */
    char *panels;       /* one per thread; NULL: few rows, no panels */
    int n, k, m, rows_per_piece;
    void (*multiply)(const struct Product *, int first, int end, int thread);
} Product;

/* Prefetch into the second-level cache: the first level has few fill buffers, and demand loads would wait for one. */
AVX512_INLINE void prefetch_ahead(const void *address, int bytes) {
    for (int i = 0; i < bytes; i += 64) _mm_prefetch((const char *)address + PREFETCH_BYTES + i, _MM_HINT_T1);
}

/* Mask of the first `count` lanes of 16; all of them if there are more. */
AVX512_INLINE __mmask16 mask_first(size_t count) {
    return count < 16 ? (__mmask16)((1u << count) - 1) : (__mmask16)~0u;
}

AVX512_INLINE void store_product(const Product *p, int row, int column, float sum) {
    p->out[(size_t)row * (size_t)p->n + (size_t)column] = sum;
}

#endif
