/* Products of matrices in 4 or 8 bits, as the format stores them, with rows of x rounded to 8 bits.

   A row of fp32 is rounded once per product, with one scale for each group of 32, like the weights. Integers are
   multiplied and added exactly (VNNI) in lanes of 32 bits, each within one group; then lanes are scaled and added in
   fp32.

   VNNI multiplies unsigned by signed numbers, so weights are stored or made unsigned: code = weight + offset. The
   excess, offset times the sum of the row, is known in advance for each lane: sums start from its negative. */

#ifndef PROCESSOR_LOW_BIT_H
#define PROCESSOR_LOW_BIT_H

#include "product.h"

#define GROUP 32
#define BLOCK_GROUPS 16 /* their scales fill a vector */

/* A row in 8 bits, padded with zeros to a whole block. For 4-bit weights the even numbers of each 128 come first,
   because a byte of weights holds an even one in its low half and an odd one in its high half. */
typedef struct {
    int8_t *codes;
    int32_t *lane_starts; /* of each lane of each vector of weights */
    float *scales;
    int32_t *group_starts; /* sum of `lane_starts` per group; only filled for products of many rows */
} RoundedRow;

static size_t count_blocks(int k) { return ((size_t)k + BLOCK_GROUPS * GROUP - 1) / (BLOCK_GROUPS * GROUP); }

/* Bytes of a row: codes, starts of at most 8 vectors per block, scales, group starts. */
static size_t count_rounded_bytes(int k) { return count_blocks(k) * (512 + 512 + 64 + 64); }

static RoundedRow locate_rounded_row(char *rows, int k, int row) {
    char *codes = rows + count_rounded_bytes(k) * (size_t)row;
    size_t blocks = count_blocks(k);
    return (RoundedRow){(int8_t *)codes, (int32_t *)(void *)(codes + 512 * blocks),
                        (float *)(void *)(codes + 1024 * blocks), (int32_t *)(void *)(codes + 1088 * blocks)};
}

AVX512 static void round_group(const float *x, int group, int is_4_bit, RoundedRow row) {
    const __m128i even_first = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    __m512 a = _mm512_setzero_ps(), b = a;
    if (x) a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    /* compared as integers: NaN counts as the largest and makes the whole group NaN */
    __m512i sizes = _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(a)), _mm512_castps_si512(_mm512_abs_ps(b)));
    float largest = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(sizes))));
    row.scales[group] = largest / 127.0f;
    __m512 inverse = _mm512_set1_ps(largest > 0 ? 127.0f / largest : 0.0f);
    __m128i low = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)));
    __m128i high = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)));
    int8_t *codes = row.codes + (is_4_bit ? 128 * (group / 4) + 16 * (group % 4) : GROUP * group);
    if (is_4_bit) {
        low = _mm_shuffle_epi8(low, even_first), high = _mm_shuffle_epi8(high, even_first);
        __m128i even = _mm_unpacklo_epi64(low, high);
        high = _mm_unpackhi_epi64(low, high), low = even;
    }
    _mm_storeu_si128((__m128i *)(void *)codes, low);
    _mm_storeu_si128((__m128i *)(void *)(codes + (is_4_bit ? 64 : 16)), high);
}

AVX512 static inline void round_row(const float *x, int k, int is_4_bit, RoundedRow row) {
    const __m512i ones = _mm512_set1_epi8(1), zero = _mm512_setzero_si512();
    int groups = (int)count_blocks(k) * BLOCK_GROUPS, vectors = groups / (is_4_bit ? 4 : 2);
    for (int g = 0; g < groups; g++) round_group(GROUP * g < k ? x + GROUP * g : NULL, g, is_4_bit, row);
    for (int v = 0; v < vectors; v++) {
        __m512i sum = _mm512_dpbusd_epi32(zero, ones, _mm512_loadu_si512(row.codes + (is_4_bit ? 128 : 64) * v));
        if (is_4_bit) sum = _mm512_dpbusd_epi32(sum, ones, _mm512_loadu_si512(row.codes + 128 * v + 64));
        sum = _mm512_mullo_epi32(sum, _mm512_set1_epi32(is_4_bit ? 7 : 128));
        _mm512_storeu_si512(row.lane_starts + 16 * v, _mm512_sub_epi32(zero, sum));
    }
}

AVX512 static inline void sum_group_starts(int k, int is_4_bit, RoundedRow row) {
    int lanes = is_4_bit ? 4 : 8;
    for (int g = 0; g < k / GROUP; g++) {
        int32_t sum = 0;
        for (int i = 0; i < lanes; i++) sum += row.lane_starts[g * lanes + i];
        row.group_starts[g] = sum;
    }
}

/* Group index of each lane of a vector, if 1 << shift lanes share a group. */
AVX512_INLINE __m512i index_lane_groups(unsigned shift) {
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_srli_epi32(lanes, shift);
}

/* Add one block of a row of weights times m rows of x to `sums`: at most 16 groups in `vectors` of 64 bytes, of which
   the last one is loaded under the mask `last`. */
AVX512_INLINE void add_block(const uint8_t *codes, int vectors, __mmask64 last, __m512 weight_scales,
                             const RoundedRow *x, int m, int is_4_bit, int block, __m512 *sums) {
    __m512 scales[ROW_TILE];
    for (int r = 0; r < m; r++)
        scales[r] = _mm512_mul_ps(weight_scales, _mm512_loadu_ps(x[r].scales + BLOCK_GROUPS * block));
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
        int vector = (is_4_bit ? 4 : 8) * block + v;
        const uint8_t *source = codes + 64 * v;
        __m512i w = v < vectors - 1 ? _mm512_loadu_si512(source) : _mm512_maskz_loadu_epi8(last, source);
        __m512i odd = _mm512_and_si512(_mm512_srli_epi16(w, 4), _mm512_set1_epi8(15));
        w = is_4_bit ? _mm512_and_si512(w, _mm512_set1_epi8(15)) : _mm512_xor_si512(w, _mm512_set1_epi8(-128));
        __m512i groups = index_lane_groups(is_4_bit ? 2 : 3);
        groups = _mm512_add_epi32(groups, _mm512_set1_epi32((is_4_bit ? 4 : 2) * v));
        for (int r = 0; r < m; r++) {
            const int8_t *row = x[r].codes + (is_4_bit ? 128 : 64) * vector;
            __m512i products = _mm512_loadu_si512(x[r].lane_starts + 16 * vector);
            products = _mm512_dpbusd_epi32(products, w, _mm512_loadu_si512(row));
            if (is_4_bit) products = _mm512_dpbusd_epi32(products, odd, _mm512_loadu_si512(row + 64));
            sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), _mm512_permutexvar_ps(groups, scales[r]), sums[r]);
        }
    }
}

/* Multiply the weight rows `first` to `end` with m rows of x, starting at `from`. */
AVX512_INLINE void multiply_rounded(const Product *p, int first, int end, int from, int m, int is_4_bit) {
    int groups = p->k / GROUP, group_bytes = is_4_bit ? 16 : 32, groups_per_vector = 64 / group_bytes;
    int full = groups / BLOCK_GROUPS, rest = groups % BLOCK_GROUPS, cut = rest % groups_per_vector;
    const __mmask64 all = ~(uint64_t)0, last = cut ? ((uint64_t)1 << group_bytes * cut) - 1 : all;
    const __mmask16 rest_mask = (__mmask16)((1u << rest) - 1);
    RoundedRow x[ROW_TILE];
    for (int r = 0; r < m; r++) x[r] = locate_rounded_row(p->rounded_rows, p->k, from + r);
    for (int i = first; i < end; i++) {
        const uint8_t *codes = (const uint8_t *)p->weights + (size_t)i * (size_t)(groups * group_bytes);
        const uint16_t *scales = (const uint16_t *)p->scales + (size_t)i * (size_t)groups;
        __m512 sums[ROW_TILE];
        for (int r = 0; r < m; r++) sums[r] = _mm512_setzero_ps();
        for (int b = 0; b < full; b++, codes += BLOCK_GROUPS * group_bytes, scales += BLOCK_GROUPS) {
            prefetch_ahead(codes, BLOCK_GROUPS * group_bytes);
            __m512 weight_scales = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)scales));
            add_block(codes, is_4_bit ? 4 : 8, all, weight_scales, x, m, is_4_bit, b, sums);
        }
        if (rest) {
            prefetch_ahead(codes, rest * group_bytes);
            __m512 weight_scales = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(rest_mask, scales));
            int vectors = (rest + groups_per_vector - 1) / groups_per_vector;
            add_block(codes, vectors, last, weight_scales, x, m, is_4_bit, full, sums);
        }
        for (int r = 0; r < m; r++) store_product(p, from + r, i, _mm512_reduce_add_ps(sums[r]));
    }
}

/* Multiply in tiles of 4, 2 and 1 rows of x. */
AVX512_INLINE void multiply_few_rows(const Product *p, int first, int end, int is_4_bit) {
    int r = 0;
    for (; r + 4 <= p->m; r += 4) multiply_rounded(p, first, end, r, 4, is_4_bit);
    for (; r + 2 <= p->m; r += 2) multiply_rounded(p, first, end, r, 2, is_4_bit);
    if (r < p->m) multiply_rounded(p, first, end, r, 1, is_4_bit);
}

#endif
