/* The same products with many rows, where arithmetic is what takes time, not reading.

   Rows of weights are turned, 16 at a time, into a panel: a lane is a row of weights, and a vector holds four
   consecutive codes of each. So the whole numbers of a group add up in one place and are scaled once, after eight
   products instead of after one, and no lanes are added in the end. Turning is paid once for all rows of x. */

#define LANES 16
#define MANY 8 /* rows from which turning pays */
#define PANEL_ROWS 8 /* of x, that share what was read of the panel */

/* Bytes of a panel: of each group 8 vectors of codes, and the scales. */
static size_t panel_size(int k) { return (size_t)(k / GROUP) * (8 * 64 + 64); }

/* Turn 16 vectors of 16 numbers: number i of vector j becomes number j of vector i. */
INLINE void turn(__m512i *v) {
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
        __m512i r = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0x88), s = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0xdd);
        a[c] = _mm512_shuffle_i32x4(p, r, 0x88), a[8 + c] = _mm512_shuffle_i32x4(p, r, 0xdd);
        a[4 + c] = _mm512_shuffle_i32x4(q, s, 0x88), a[12 + c] = _mm512_shuffle_i32x4(q, s, 0xdd);
    }
    for (int i = 0; i < LANES; i++) v[i] = a[i];
}

/* Turn the rows `first` to `end` of weights, 16 at most, into a panel; a lane beyond them repeats the first. */
INLINE void make_panel(const Product *p, int first, int end, int four, char *panel) {
    int groups = p->k / GROUP, bytes = four ? 16 : 32, per_vector = 64 / bytes;
    float *scales = (float *)(void *)(panel + (size_t)groups * 512);
    for (int g = 0; g < groups; g += per_vector) {
        int here = groups - g < per_vector ? groups - g : per_vector;
        __mmask64 some = here * bytes < 64 ? ((uint64_t)1 << here * bytes) - 1 : ~(uint64_t)0;
        __m512i v[LANES];
        for (int r = 0; r < LANES; r++) {
            size_t row = (size_t)(first + r < end ? first + r : first);
            const uint8_t *codes = (const uint8_t *)p->weights + (row * (size_t)groups + (size_t)g) * (size_t)bytes;
            v[r] = _mm512_maskz_loadu_epi8(some, codes);
            _mm_prefetch((const char *)codes + 512, _MM_HINT_T0);
        }
        turn(v);
        for (int i = 0; i < here * bytes / 4; i++) {
            char *to = panel + (size_t)(g + i / (bytes / 4)) * 512 + 64 * (i % (bytes / 4));
            __m512i low = _mm512_and_si512(v[i], _mm512_set1_epi8(15));
            __m512i odd = _mm512_and_si512(_mm512_srli_epi16(v[i], 4), _mm512_set1_epi8(15));
            _mm512_store_si512(to, four ? low : _mm512_xor_si512(v[i], _mm512_set1_epi8(-128)));
            if (four) _mm512_store_si512(to + 256, odd);
        }
    }
    for (int g = 0; g < groups; g += LANES) {
        __m512i v[LANES];
        for (int r = 0; r < LANES; r++) {
            size_t row = (size_t)(first + r < end ? first + r : first);
            const uint16_t *here = (const uint16_t *)p->scales + row * (size_t)groups + (size_t)g;
            v[r] = _mm512_castps_si512(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(up_to((size_t)(groups - g)), here)));
        }
        turn(v);
        for (int i = 0; i < LANES && g + i < groups; i++) _mm512_store_si512(scales + LANES * (g + i), v[i]);
    }
}

/* Multiply a panel with m rows of x from `from` on. */
INLINE void multiply_panel(const Product *p, const char *panel, int first, int end, int from, int m, int four) {
    int groups = p->k / GROUP;
    const float *scales = (const float *)(const void *)(panel + (size_t)groups * 512);
    const __mmask16 some = up_to((size_t)(end - first));
    Rounded x[PANEL_ROWS];
    __m512 sums[PANEL_ROWS];
    for (int r = 0; r < m; r++) x[r] = rounded_at(p->room, p->k, from + r), sums[r] = _mm512_setzero_ps();
    for (int g = 0; g < groups; g++) {
        __m512i whole[PANEL_ROWS];
        __m512 scale = _mm512_load_ps(scales + LANES * g);
        int at = four ? 128 * (g / 4) + 16 * (g % 4) : GROUP * g;
        for (int r = 0; r < m; r++) whole[r] = _mm512_set1_epi32(x[r].totals[g]);
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            __m512i w = _mm512_load_si512(panel + (size_t)g * 512 + 64 * j);
            int there = at + 4 * (j % 4) + (j < 4 ? 0 : four ? 64 : 16);
            for (int r = 0; r < m; r++) {
                int32_t codes;
                __builtin_memcpy(&codes, x[r].codes + there, 4);
                whole[r] = _mm512_dpbusd_epi32(whole[r], w, _mm512_set1_epi32(codes));
            }
        }
        for (int r = 0; r < m; r++) {
            __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(x[r].scales[g]));
            sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[r]), both, sums[r]);
        }
    }
    for (int r = 0; r < m; r++)
        _mm512_mask_storeu_ps(p->out + (size_t)(from + r) * (size_t)p->n + (size_t)first, some, sums[r]);
}

/* Multiply the rows `first` to `end` of weights with all rows of x, by way of a panel. */
INLINE void multiply_turned(const Product *p, int first, int end, char *panel, int four) {
    for (int i = first; i < end; i += LANES) {
        int to = i + LANES < end ? i + LANES : end, r = 0;
        make_panel(p, i, to, four, panel);
        for (; r + 8 <= p->m; r += 8) multiply_panel(p, panel, i, to, r, 8, four);
        if (r + 4 <= p->m) multiply_panel(p, panel, i, to, r, 4, four), r += 4;
        if (r + 2 <= p->m) multiply_panel(p, panel, i, to, r, 2, four), r += 2;
        if (r < p->m) multiply_panel(p, panel, i, to, r, 1, four);
    }
}

WIDE static void multiply_four(const Product *p, int first, int end, int thread) {
    if (p->panels) return multiply_turned(p, first, end, p->panels + panel_size(p->k) * (size_t)thread, 1);
    int r = 0;
    for (; r + 4 <= p->m; r += 4) multiply_rounded(p, first, end, r, 4, 1);
    for (; r + 2 <= p->m; r += 2) multiply_rounded(p, first, end, r, 2, 1);
    if (r < p->m) multiply_rounded(p, first, end, r, 1, 1);
}

WIDE static void multiply_eight(const Product *p, int first, int end, int thread) {
    if (p->panels) return multiply_turned(p, first, end, p->panels + panel_size(p->k) * (size_t)thread, 0);
    int r = 0;
    for (; r + 4 <= p->m; r += 4) multiply_rounded(p, first, end, r, 4, 0);
    for (; r + 2 <= p->m; r += 2) multiply_rounded(p, first, end, r, 2, 0);
    if (r < p->m) multiply_rounded(p, first, end, r, 1, 0);
}
