/* Products of 4 and 8 bits with many rows, where arithmetic takes the time and not memory.

   Weight rows are transposed, 16 at a time, into a panel: a lane is a weight row, and a vector holds four consecutive
   codes of each. So the integers of a group add up in one lane and are scaled once, after eight products instead of
   one, and no lanes are added at the end. The transposition is paid once for all rows of x. */

#ifndef PROCESSOR_MANY_ROWS_H
#define PROCESSOR_MANY_ROWS_H

#include "low_bit.h"
#include "product.h"

#define LANES 16
#define MIN_PANEL_ROWS 8 /* rows of x from which the transposition pays */
#define PANEL_ROW_TILE 8 /* rows of x that share each load of the panel */

/* Bytes of a panel: per group 8 vectors of codes, and the scales. */
static size_t count_panel_bytes(int k) { return (size_t)(k / GROUP) * (8 * 64 + 64); }

/* Transpose 16 vectors of 16 numbers. */
AVX512_INLINE void transpose(__m512i *v) {
    __m512i a[LANES];
    for (int i = 0; i < LANES; i += 2) {
        a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) { /* now each quarter of v[i + c] holds column c of four rows */
        v[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]), v[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]), v[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int c = 0; c < 4; c++) {
        __m512i p = _mm512_shuffle_i32x4(v[c], v[4 + c], 0x88), q = _mm512_shuffle_i32x4(v[c], v[4 + c], 0xdd);
        __m512i r = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0x88);
        __m512i s = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0xdd);
        a[c] = _mm512_shuffle_i32x4(p, r, 0x88), a[8 + c] = _mm512_shuffle_i32x4(p, r, 0xdd);
        a[4 + c] = _mm512_shuffle_i32x4(q, s, 0x88), a[12 + c] = _mm512_shuffle_i32x4(q, s, 0xdd);
    }
    for (int i = 0; i < LANES; i++) v[i] = a[i];
}

/* Transpose the weight rows `first` to `end`, at most 16, into a panel; lanes beyond them repeat the first row. */
AVX512_INLINE void make_panel(const Product *p, int first, int end, int is_4_bit, char *panel) {
    int groups = p->k / GROUP, group_bytes = is_4_bit ? 16 : 32, groups_per_vector = 64 / group_bytes;
    float *scales = (float *)(void *)(panel + (size_t)groups * 512);
    for (int g = 0; g < groups; g += groups_per_vector) {
        int bytes = (groups - g < groups_per_vector ? groups - g : groups_per_vector) * group_bytes;
        __mmask64 mask = bytes < 64 ? ((uint64_t)1 << bytes) - 1 : ~(uint64_t)0;
        __m512i v[LANES];
        for (int r = 0; r < LANES; r++) {
            size_t row = (size_t)(first + r < end ? first + r : first);
            size_t offset = (row * (size_t)groups + (size_t)g) * (size_t)group_bytes;
            const uint8_t *codes = (const uint8_t *)p->weights + offset;
            v[r] = _mm512_maskz_loadu_epi8(mask, codes);
            _mm_prefetch((const char *)codes + 512, _MM_HINT_T0);
        }
        transpose(v);
        for (int i = 0; i < bytes / 4; i++) {
            char *vector = panel + (size_t)(g + i / (group_bytes / 4)) * 512 + 64 * (i % (group_bytes / 4));
            __m512i low = _mm512_and_si512(v[i], _mm512_set1_epi8(15));
            __m512i odd = _mm512_and_si512(_mm512_srli_epi16(v[i], 4), _mm512_set1_epi8(15));
            _mm512_store_si512(vector, is_4_bit ? low : _mm512_xor_si512(v[i], _mm512_set1_epi8(-128)));
            if (is_4_bit) _mm512_store_si512(vector + 256, odd);
        }
    }
    for (int g = 0; g < groups; g += LANES) {
        __m512i v[LANES];
        for (int r = 0; r < LANES; r++) {
            size_t row = (size_t)(first + r < end ? first + r : first);
            const uint16_t *source = (const uint16_t *)p->scales + row * (size_t)groups + (size_t)g;
            __mmask16 mask = mask_first((size_t)(groups - g));
            v[r] = _mm512_castps_si512(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, source)));
        }
        transpose(v);
        for (int i = 0; i < LANES && g + i < groups; i++) _mm512_store_si512(scales + LANES * (g + i), v[i]);
    }
}

/* Multiply a panel with m rows of x, starting at `from`. */
AVX512_INLINE void multiply_panel(const Product *p, const char *panel, int first, int end, int from, int m,
                                  int is_4_bit) {
    int groups = p->k / GROUP;
    const float *scales = (const float *)(const void *)(panel + (size_t)groups * 512);
    const __mmask16 mask = mask_first((size_t)(end - first));
    RoundedRow x[PANEL_ROW_TILE];
    __m512 sums[PANEL_ROW_TILE];
    for (int r = 0; r < m; r++)
        x[r] = locate_rounded_row(p->rounded_rows, p->k, from + r), sums[r] = _mm512_setzero_ps();
    for (int g = 0; g < groups; g++) {
        __m512i products[PANEL_ROW_TILE];
        __m512 scale = _mm512_load_ps(scales + LANES * g);
        int group_start = is_4_bit ? 128 * (g / 4) + 16 * (g % 4) : GROUP * g;
        for (int r = 0; r < m; r++) products[r] = _mm512_set1_epi32(x[r].group_starts[g]);
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            __m512i w = _mm512_load_si512(panel + (size_t)g * 512 + 64 * j);
            int offset = group_start + 4 * (j % 4) + (j < 4 ? 0 : is_4_bit ? 64 : 16);
            for (int r = 0; r < m; r++) {
                int32_t codes;
                __builtin_memcpy(&codes, x[r].codes + offset, 4);
                products[r] = _mm512_dpbusd_epi32(products[r], w, _mm512_set1_epi32(codes));
            }
        }
        for (int r = 0; r < m; r++) {
            __m512 both_scales = _mm512_mul_ps(scale, _mm512_set1_ps(x[r].scales[g]));
            sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[r]), both_scales, sums[r]);
        }
    }
    for (int r = 0; r < m; r++)
        _mm512_mask_storeu_ps(p->out + (size_t)(from + r) * (size_t)p->n + (size_t)first, mask, sums[r]);
}

/* Multiply the weight rows `first` to `end` with all rows of x, by way of a panel. */
AVX512_INLINE void multiply_by_panels(const Product *p, int first, int end, char *panel, int is_4_bit) {
    for (int i = first; i < end; i += LANES) {
        int stop = i + LANES < end ? i + LANES : end, r = 0;
        make_panel(p, i, stop, is_4_bit, panel);
        for (; r + 8 <= p->m; r += 8) multiply_panel(p, panel, i, stop, r, 8, is_4_bit);
        if (r + 4 <= p->m) multiply_panel(p, panel, i, stop, r, 4, is_4_bit), r += 4;
        if (r + 2 <= p->m) multiply_panel(p, panel, i, stop, r, 2, is_4_bit), r += 2;
        if (r < p->m) multiply_panel(p, panel, i, stop, r, 1, is_4_bit);
    }
}

AVX512_INLINE void multiply_low_bit(const Product *p, int first, int end, int thread, int is_4_bit) {
    if (p->panels)
        multiply_by_panels(p, first, end, p->panels + count_panel_bytes(p->k) * (size_t)thread, is_4_bit);
    else
        multiply_few_rows(p, first, end, is_4_bit);
}

AVX512 static inline void multiply_4_bit(const Product *p, int first, int end, int thread) {
    multiply_low_bit(p, first, end, thread, 1);
}

AVX512 static inline void multiply_8_bit(const Product *p, int first, int end, int thread) {
    multiply_low_bit(p, first, end, thread, 0);
}

#endif
