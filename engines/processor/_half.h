/* Products of matrices in 16 bits: bf16 by rows of bf16, fp16 by rows of fp32; sums in fp32. */

INLINE void multiply_brain(const Product *p, int first, int end, int from, int m) {
    size_t k = (size_t)p->k;
    const uint16_t *x = (const uint16_t *)p->x + (size_t)from * k;
    for (int i = first; i < end; i++) {
        const uint16_t *w = (const uint16_t *)p->weights + (size_t)i * k;
        __m512 a[ROWS_AT_ONCE], b[ROWS_AT_ONCE];
        for (int r = 0; r < m; r++) a[r] = b[r] = _mm512_setzero_ps();
        size_t c = 0;
        for (; c + 64 <= k; c += 64) {
            fetch_ahead(w + c, 128);
            __m512i u = _mm512_loadu_si512(w + c), v = _mm512_loadu_si512(w + c + 32);
            for (int r = 0; r < m; r++) {
                const uint16_t *row = x + (size_t)r * k + c;
                a[r] = _mm512_dpbf16_ps(a[r], (__m512bh)u, (__m512bh)_mm512_loadu_si512(row));
                b[r] = _mm512_dpbf16_ps(b[r], (__m512bh)v, (__m512bh)_mm512_loadu_si512(row + 32));
            }
        }
        for (; c < k; c += 32) {
            __mmask32 some = k - c < 32 ? ((uint32_t)1 << (k - c)) - 1 : ~(uint32_t)0;
            __m512i u = _mm512_maskz_loadu_epi16(some, w + c);
            for (int r = 0; r < m; r++) {
                __m512i row = _mm512_maskz_loadu_epi16(some, x + (size_t)r * k + c);
                a[r] = _mm512_dpbf16_ps(a[r], (__m512bh)u, (__m512bh)row);
            }
        }
        for (int r = 0; r < m; r++)
            p->out[(size_t)(from + r) * (size_t)p->n + (size_t)i] = _mm512_reduce_add_ps(_mm512_add_ps(a[r], b[r]));
    }
}

INLINE void multiply_fp16_rows(const Product *p, int first, int end, int from, int m) {
    size_t k = (size_t)p->k;
    const float *x = (const float *)p->x + (size_t)from * k;
    for (int i = first; i < end; i++) {
        const uint16_t *w = (const uint16_t *)p->weights + (size_t)i * k;
        __m512 a[ROWS_AT_ONCE], b[ROWS_AT_ONCE];
        for (int r = 0; r < m; r++) a[r] = b[r] = _mm512_setzero_ps();
        size_t c = 0;
        for (; c + 32 <= k; c += 32) {
            fetch_ahead(w + c, 64);
            __m512 u = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(w + c)));
            __m512 v = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(w + c + 16)));
            for (int r = 0; r < m; r++) {
                const float *row = x + (size_t)r * k + c;
                a[r] = _mm512_fmadd_ps(u, _mm512_loadu_ps(row), a[r]);
                b[r] = _mm512_fmadd_ps(v, _mm512_loadu_ps(row + 16), b[r]);
            }
        }
        for (; c < k; c += 16) {
            __mmask16 some = k - c < 16 ? (__mmask16)((1u << (k - c)) - 1) : (__mmask16)~0u;
            __m512 u = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, w + c));
            for (int r = 0; r < m; r++)
                a[r] = _mm512_fmadd_ps(u, _mm512_maskz_loadu_ps(some, x + (size_t)r * k + c), a[r]);
        }
        for (int r = 0; r < m; r++)
            p->out[(size_t)(from + r) * (size_t)p->n + (size_t)i] = _mm512_reduce_add_ps(_mm512_add_ps(a[r], b[r]));
    }
}

WIDE static void multiply_bf16(const Product *p, int first, int end, int thread) {
    (void)thread;
    int r = 0;
    for (; r + 4 <= p->m; r += 4) multiply_brain(p, first, end, r, 4);
    for (; r + 2 <= p->m; r += 2) multiply_brain(p, first, end, r, 2);
    if (r < p->m) multiply_brain(p, first, end, r, 1);
}

WIDE static void multiply_fp16(const Product *p, int first, int end, int thread) {
    (void)thread;
    int r = 0;
    for (; r + 4 <= p->m; r += 4) multiply_fp16_rows(p, first, end, r, 4);
    for (; r + 2 <= p->m; r += 2) multiply_fp16_rows(p, first, end, r, 2);
    if (r < p->m) multiply_fp16_rows(p, first, end, r, 1);
}
