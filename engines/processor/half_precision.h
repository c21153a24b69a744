/* Products of matrices in 16 bits: bf16 with rows of bf16, fp16 with rows of fp32; sums in fp32. */

#ifndef PROCESSOR_HALF_PRECISION_H
#define PROCESSOR_HALF_PRECISION_H

#include "product.h"

/* Multiply the weight rows `first` to `end` with m rows of x, starting at `from`. */
AVX512_INLINE void multiply_bf16_rows(const Product *p, int first, int end, int from, int m) {
    size_t k = (size_t)p->k;
    const uint16_t *x = (const uint16_t *)p->x + (size_t)from * k;
    for (int i = first; i < end; i++) {
        const uint16_t *w = (const uint16_t *)p->weights + (size_t)i * k;
        __m512 a[ROW_TILE], b[ROW_TILE];
        for (int r = 0; r < m; r++) a[r] = b[r] = _mm512_setzero_ps();
        size_t c = 0;
        for (; c + 64 <= k; c += 64) {
            prefetch_ahead(w + c, 128);
            __m512i u = _mm512_loadu_si512(w + c), v = _mm512_loadu_si512(w + c + 32);
            for (int r = 0; r < m; r++) {
                const uint16_t *row = x + (size_t)r * k + c;
                a[r] = _mm512_dpbf16_ps(a[r], (__m512bh)u, (__m512bh)_mm512_loadu_si512(row));
                b[r] = _mm512_dpbf16_ps(b[r], (__m512bh)v, (__m512bh)_mm512_loadu_si512(row + 32));
            }
        }
        for (; c < k; c += 32) {
            __mmask32 mask = k - c < 32 ? ((uint32_t)1 << (k - c)) - 1 : ~(uint32_t)0;
            __m512i u = _mm512_maskz_loadu_epi16(mask, w + c);
            for (int r = 0; r < m; r++) {
                __m512i row = _mm512_maskz_loadu_epi16(mask, x + (size_t)r * k + c);
                a[r] = _mm512_dpbf16_ps(a[r], (__m512bh)u, (__m512bh)row);
            }
        }
        for (int r = 0; r < m; r++) store_product(p, from + r, i, _mm512_reduce_add_ps(_mm512_add_ps(a[r], b[r])));
    }
}

AVX512_INLINE void multiply_fp16_rows(const Product *p, int first, int end, int from, int m) {
    size_t k = (size_t)p->k;
    const float *x = (const float *)p->x + (size_t)from * k;
    for (int i = first; i < end; i++) {
        const uint16_t *w = (const uint16_t *)p->weights + (size_t)i * k;
        __m512 a[ROW_TILE], b[ROW_TILE];
        for (int r = 0; r < m; r++) a[r] = b[r] = _mm512_setzero_ps();
        size_t c = 0;
        for (; c + 32 <= k; c += 32) {
            prefetch_ahead(w + c, 64);
            __m512 u = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(w + c)));
            __m512 v = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(w + c + 16)));
            for (int r = 0; r < m; r++) {
                const float *row = x + (size_t)r * k + c;
                a[r] = _mm512_fmadd_ps(u, _mm512_loadu_ps(row), a[r]);
                b[r] = _mm512_fmadd_ps(v, _mm512_loadu_ps(row + 16), b[r]);
            }
        }
        for (; c < k; c += 16) {
            __mmask16 mask = mask_first(k - c);
            __m512 u = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, w + c));
            for (int r = 0; r < m; r++)
                a[r] = _mm512_fmadd_ps(u, _mm512_maskz_loadu_ps(mask, x + (size_t)r * k + c), a[r]);
        }
        for (int r = 0; r < m; r++) store_product(p, from + r, i, _mm512_reduce_add_ps(_mm512_add_ps(a[r], b[r])));
    }
}

AVX512 static inline void multiply_bf16(const Product *p, int first, int end, int thread) {
    (void)thread;
    int r = 0;
    for (; r + 4 <= p->m; r += 4) multiply_bf16_rows(p, first, end, r, 4);
    for (; r + 2 <= p->m; r += 2) multiply_bf16_rows(p, first, end, r, 2);
    if (r < p->m) multiply_bf16_rows(p, first, end, r, 1);
}

AVX512 static inline void multiply_fp16(const Product *p, int first, int end, int thread) {
    (void)thread;
    int r = 0;
    for (; r + 4 <= p->m; r += 4) multiply_fp16_rows(p, first, end, r, 4);
    for (; r + 2 <= p->m; r += 2) multiply_fp16_rows(p, first, end, r, 2);
    if (r < p->m) multiply_fp16_rows(p, first, end, r, 1);
}

#endif
