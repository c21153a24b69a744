/* Products of matrices in four or eight bits, as the format stores them, with rows rounded to eight bits.

   A row of fp32 is rounded once a product, with a scale for each group of 32 as the weights have. Whole numbers are
   multiplied and added exactly (VNNI), a lane of 32 bits at a time, each within one group; then they are scaled, and
   lanes are added in fp32.

   VNNI multiplies unsigned by signed numbers, so weights are stored or made unsigned: code = weight + MIDDLE. What
   that adds, MIDDLE times the numbers of the row, is known beforehand for each lane: sums start from its negative. */

#define GROUP 32
#define BLOCK_GROUPS 16 /* whose scales fill a vector */

/* A row in eight bits, zeros up to a whole block. Four bits: of each 128 numbers the even ones stand first, because a
   byte of weights holds an even one in its low half and an odd one in its high half. */
typedef struct {
    int8_t *codes;
    int32_t *start; /* of each lane of each vector of weights */
    float *scales;
    int32_t *totals; /* of each group what `start` is of its lanes; only where many rows are multiplied */
} Rounded;

static size_t blocks_of(int k) { return ((size_t)k + BLOCK_GROUPS * GROUP - 1) / (BLOCK_GROUPS * GROUP); }

/* Bytes of a row: codes, starts of at most 8 vectors a block, scales, totals. */
static size_t rounded_size(int k) { return blocks_of(k) * (512 + 512 + 64 + 64); }

static Rounded rounded_at(char *room, int k, int row) {
    char *at = room + rounded_size(k) * (size_t)row;
    size_t blocks = blocks_of(k);
    int32_t *start = (int32_t *)(void *)(at + 512 * blocks), *totals = (int32_t *)(void *)(at + 1088 * blocks);
    return (Rounded){(int8_t *)at, start, (float *)(void *)(at + 1024 * blocks), totals};
}

WIDE static void round_group(const float *x, int g, int four, Rounded to) {
    const __m128i apart = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    __m512 a = _mm512_setzero_ps(), b = a;
    if (x) a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    /* as whole numbers: what is no number counts as the largest, and makes the whole group none */
    __m512i size = _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(a)), _mm512_castps_si512(_mm512_abs_ps(b)));
    float top = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(size))));
    to.scales[g] = top / 127.0f;
    __m512 inverse = _mm512_set1_ps(top > 0 ? 127.0f / top : 0.0f);
    __m128i low = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)));
    __m128i high = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)));
    int8_t *at = to.codes + (four ? 128 * (g / 4) + 16 * (g % 4) : GROUP * g);
    if (four) {
        low = _mm_shuffle_epi8(low, apart), high = _mm_shuffle_epi8(high, apart);
        __m128i even = _mm_unpacklo_epi64(low, high);
        high = _mm_unpackhi_epi64(low, high), low = even;
    }
    _mm_storeu_si128((__m128i *)(void *)at, low);
    _mm_storeu_si128((__m128i *)(void *)(at + (four ? 64 : 16)), high);
}

WIDE static void round_row(const float *x, int k, int four, Rounded to) {
    const __m512i ones = _mm512_set1_epi8(1), none = _mm512_setzero_si512();
    int groups = (int)blocks_of(k) * BLOCK_GROUPS, vectors = groups / (four ? 4 : 2);
    for (int g = 0; g < groups; g++) round_group(GROUP * g < k ? x + GROUP * g : NULL, g, four, to);
    for (int v = 0; v < vectors; v++) {
        __m512i sum = _mm512_dpbusd_epi32(none, ones, _mm512_loadu_si512(to.codes + (four ? 128 : 64) * v));
        if (four) sum = _mm512_dpbusd_epi32(sum, ones, _mm512_loadu_si512(to.codes + 128 * v + 64));
        sum = _mm512_mullo_epi32(sum, _mm512_set1_epi32(four ? 7 : 128));
        _mm512_storeu_si512(to.start + 16 * v, _mm512_sub_epi32(none, sum));
    }
}

WIDE static void add_totals(int k, int four, Rounded to) {
    int lanes = four ? 4 : 8;
    for (int g = 0; g < k / GROUP; g++) {
        int32_t total = 0;
        for (int i = 0; i < lanes; i++) total += to.start[g * lanes + i];
        to.totals[g] = total;
    }
}

/* The numbers of lanes, each divided by how many of them share a group. */
INLINE __m512i group_of_lane(unsigned shift) {
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_srli_epi32(lanes, shift);
}

/* Add to `sums` a block of one row of weights times m rows: at most 16 groups, `vectors` of 64 bytes, the last one
   read as far as its mask says. */
INLINE void add_block(const uint8_t *codes, int vectors, __mmask64 last, __m512 of_weights, const Rounded *x, int m,
                      int four, int block, __m512 *sums) {
    __m512 scales[ROWS_AT_ONCE];
    for (int r = 0; r < m; r++)
        scales[r] = _mm512_mul_ps(of_weights, _mm512_loadu_ps(x[r].scales + BLOCK_GROUPS * block));
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
        int at = (four ? 4 : 8) * block + v;
        const uint8_t *here = codes + 64 * v;
        __m512i w = v < vectors - 1 ? _mm512_loadu_si512(here) : _mm512_maskz_loadu_epi8(last, here);
        __m512i odd = _mm512_and_si512(_mm512_srli_epi16(w, 4), _mm512_set1_epi8(15));
        w = four ? _mm512_and_si512(w, _mm512_set1_epi8(15)) : _mm512_xor_si512(w, _mm512_set1_epi8(-128));
        __m512i lanes = _mm512_add_epi32(group_of_lane(four ? 2 : 3), _mm512_set1_epi32((four ? 4 : 2) * v));
        for (int r = 0; r < m; r++) {
            const int8_t *row = x[r].codes + (four ? 128 : 64) * at;
            __m512i whole = _mm512_loadu_si512(x[r].start + 16 * at);
            whole = _mm512_dpbusd_epi32(whole, w, _mm512_loadu_si512(row));
            if (four) whole = _mm512_dpbusd_epi32(whole, odd, _mm512_loadu_si512(row + 64));
            sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), _mm512_permutexvar_ps(lanes, scales[r]), sums[r]);
        }
    }
}

/* Multiply the rows `first` to `end` of weights with m rows from `from` on. */
INLINE void multiply_rounded(const Product *p, int first, int end, int from, int m, int four) {
    int groups = p->k / GROUP, bytes = four ? 16 : 32, per_vector = 64 / bytes; /* bytes of a group of codes */
    int full = groups / BLOCK_GROUPS, rest = groups % BLOCK_GROUPS, cut = rest % per_vector;
    const __mmask64 all = ~(uint64_t)0, last = cut ? ((uint64_t)1 << bytes * cut) - 1 : all;
    const __mmask16 some = (__mmask16)((1u << rest) - 1);
    Rounded x[ROWS_AT_ONCE];
    for (int r = 0; r < m; r++) x[r] = rounded_at(p->room, p->k, from + r);
    for (int i = first; i < end; i++) {
        const uint8_t *codes = (const uint8_t *)p->weights + (size_t)i * (size_t)(groups * bytes);
        const uint16_t *scales = (const uint16_t *)p->scales + (size_t)i * (size_t)groups;
        __m512 sums[ROWS_AT_ONCE];
        for (int r = 0; r < m; r++) sums[r] = _mm512_setzero_ps();
        for (int b = 0; b < full; b++, codes += BLOCK_GROUPS * bytes, scales += BLOCK_GROUPS) {
            fetch_ahead(codes, BLOCK_GROUPS * bytes);
            __m512 of_weights = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)scales));
            add_block(codes, four ? 4 : 8, all, of_weights, x, m, four, b, sums);
        }
        if (rest) {
            fetch_ahead(codes, rest * bytes);
            __m512 of_weights = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, scales));
            add_block(codes, (rest + per_vector - 1) / per_vector, last, of_weights, x, m, four, full, sums);
        }
        for (int r = 0; r < m; r++) p->out[(size_t)(from + r) * (size_t)p->n + (size_t)i] = _mm512_reduce_add_ps(sums[r]);
    }
}
