/* Products of matrices of bf16 that lie in twelve bits a number, exactly.

   The weights of a matrix have few exponents. So of each number the low byte (the last bit of its exponent, and its
   fraction) is kept as it is, and the high byte (its sign, and the rest of its exponent) is one of sixteen, which four
   bits name: eight exponents by two signs. The few numbers of other exponents lie in a list beside it; in their place
   stands another number, which the list names too.

   A block is 64 bytes of low bytes, again 64, and 64 in which the low half of byte i names the high byte of the number
   at i, and the high half that of the number at 64 + i. The numbers of 64 low bytes are in the order in which a vector
   of bytes comes apart into two of words: 8 of the first 32 numbers, 8 of the other 32, and so on. A row may end with
   half a block: 64 low bytes, and 32 whose high halves name the high bytes of the numbers from 32 on. */

#define BLOCK 128
#define BLOCK_BYTES 192
#define HALF 64
#define CODES 8
#define NO_CODE 0x80

typedef struct {
    uint32_t column;
    uint16_t is, stands; /* the number, and what stands in its place */
} Other;

/* What is beside the blocks of n rows: others of row i are those from begins[i] to begins[i + 1]. */
typedef struct {
    uint8_t highs[64]; /* high bytes by code, the same in each quarter */
    uint32_t begins[];
} Beside;

static const Other *others_of(const Beside *beside, int n) { return (const Other *)(const void *)(beside->begins + n + 1 + (n + 1) % 2); }

INLINE float number_of(uint16_t word) {
    uint32_t bits = (uint32_t)word << 16;
    float number;
    __builtin_memcpy(&number, &bits, 4);
    return number;
}

INLINE __m512i high_bytes(__m512i highs, __m512i codes) {
    return _mm512_shuffle_epi8(highs, _mm512_and_si512(codes, _mm512_set1_epi8(15)));
}

INLINE void put_together(__m512i low, __m512i high, __m512i *numbers) {
    numbers[0] = _mm512_unpacklo_epi8(low, high);
    numbers[1] = _mm512_unpackhi_epi8(low, high);
}

/* Give the numbers of a block, 32 a vector, in their order. */
INLINE void open_block(const uint8_t *block, __m512i highs, __m512i *numbers) {
    __m512i low = _mm512_loadu_si512(block), more = _mm512_loadu_si512(block + 64), codes = _mm512_loadu_si512(block + 128);
    put_together(low, high_bytes(highs, codes), numbers);
    put_together(more, high_bytes(highs, _mm512_srli_epi16(codes, 4)), numbers + 2);
}

INLINE void open_half(const uint8_t *half, __m512i highs, __m512i *numbers) {
    __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)(half + 64));
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(codes), _mm256_srli_epi16(codes, 4), 1);
    put_together(_mm512_loadu_si512(half), high_bytes(highs, both), numbers);
}

/* Bytes of a row of k numbers. */
static inline size_t row_bytes(size_t k) { return k / HALF * (BLOCK_BYTES / 2); }

INLINE void add_products(const __m512i *numbers, int count, const uint16_t *x, __m512 *sums) {
    for (int j = 0; j < count; j++) {
        __m512i row = _mm512_loadu_si512(x + 32 * j);
        sums[j % 2] = _mm512_dpbf16_ps(sums[j % 2], (__m512bh)numbers[j], (__m512bh)row);
    }
}

INLINE void multiply_blocks(const Product *p, int first, int end, int from, int m) {
    size_t k = (size_t)p->k, size = row_bytes(k);
    const uint16_t *x = (const uint16_t *)p->x + (size_t)from * k;
    const Beside *beside = (const Beside *)p->scales;
    const Other *others = others_of(beside, p->n);
    const __m512i highs = _mm512_loadu_si512(beside->highs);
    for (int i = first; i < end; i++) {
        const uint8_t *block = (const uint8_t *)p->weights + (size_t)i * size;
        __m512 sums[ROWS_AT_ONCE][2];
        for (int r = 0; r < m; r++) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
        size_t c = 0;
        for (; c + BLOCK <= k; c += BLOCK, block += BLOCK_BYTES) {
            __m512i numbers[4];
            fetch_ahead(block, BLOCK_BYTES);
            open_block(block, highs, numbers);
            for (int r = 0; r < m; r++) add_products(numbers, 4, x + (size_t)r * k + c, sums[r]);
        }
        if (c < k) {
            __m512i numbers[2];
            fetch_ahead(block, BLOCK_BYTES / 2);
            open_half(block, highs, numbers);
            for (int r = 0; r < m; r++) add_products(numbers, 2, x + (size_t)r * k + c, sums[r]);
        }
        for (int r = 0; r < m; r++) {
            float sum = _mm512_reduce_add_ps(_mm512_add_ps(sums[r][0], sums[r][1]));
            for (uint32_t o = beside->begins[i]; o < beside->begins[i + 1]; o++)
                sum += (number_of(others[o].is) - number_of(others[o].stands)) * number_of(x[(size_t)r * k + others[o].column]);
            p->out[(size_t)(from + r) * (size_t)p->n + (size_t)i] = sum;
        }
    }
}

WIDE static void multiply_twelve(const Product *p, int first, int end, int thread) {
    (void)thread;
    int r = 0;
    for (; r + 4 <= p->m; r += 4) multiply_blocks(p, first, end, r, 4);
    for (; r + 2 <= p->m; r += 2) multiply_blocks(p, first, end, r, 2);
    if (r < p->m) multiply_blocks(p, first, end, r, 1);
}

/* ---- how numbers come to lie so ---- */

typedef struct {
    const uint16_t *words;
    const uint8_t *codes; /* of each of the 128 high bytes without a sign; NO_CODE: none */
    uint8_t *blocks;
    uint32_t *counts; /* others of each row */
    Beside *beside;
    int n, k, rows_a_piece;
} Shortening;

static Shortening shortening; /* guarded by job_lock */

#define WIDER __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi")))

typedef struct {
    __m512i lows, codes;
    __mmask64 others;
} Half;

/* Shorten 64 numbers. */
static inline __attribute__((always_inline)) WIDER Half shortened(const uint16_t *words, __m512i codes, __m512i more_codes) {
    const __m512i byte = _mm512_set1_epi16(255);
    __m512i a = _mm512_loadu_si512(words), b = _mm512_loadu_si512(words + 32);
    __m512i lows = _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
    __m512i highs = _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
    __m512i code = _mm512_permutex2var_epi8(codes, highs, more_codes);
    __m512i sign = _mm512_and_si512(_mm512_srli_epi16(highs, 4), _mm512_set1_epi8(CODES));
    __mmask64 others = _mm512_movepi8_mask(code);
    return (Half){lows, _mm512_or_si512(_mm512_and_si512(code, _mm512_set1_epi8(CODES - 1)), sign), others};
}

WIDER static void shorten_piece(int number, int thread) {
    (void)thread;
    const Shortening s = shortening;
    size_t k = (size_t)s.k;
    __m512i codes = _mm512_loadu_si512(s.codes), more_codes = _mm512_loadu_si512(s.codes + 64);
    int end = (number + 1) * s.rows_a_piece < s.n ? (number + 1) * s.rows_a_piece : s.n;
    for (int i = number * s.rows_a_piece; i < end; i++) {
        uint8_t *block = s.blocks + (size_t)i * row_bytes(k);
        const uint16_t *w = s.words + (size_t)i * k, *stop = w + k;
        uint32_t others = 0;
        for (; w + BLOCK <= stop; w += BLOCK, block += BLOCK_BYTES) {
            Half a = shortened(w, codes, more_codes), b = shortened(w + 64, codes, more_codes);
            _mm512_storeu_si512(block, a.lows);
            _mm512_storeu_si512(block + 64, b.lows);
            _mm512_storeu_si512(block + 128, _mm512_or_si512(a.codes, _mm512_slli_epi16(b.codes, 4)));
            others += (uint32_t)(__builtin_popcountll(a.others) + __builtin_popcountll(b.others));
        }
        if (w < stop) {
            Half a = shortened(w, codes, more_codes);
            __m256i late = _mm512_extracti64x4_epi64(a.codes, 1);
            _mm512_storeu_si512(block, a.lows);
            _mm256_storeu_si256((__m256i *)(void *)(block + 64), _mm256_or_si256(_mm512_castsi512_si256(a.codes), _mm256_slli_epi16(late, 4)));
            others += (uint32_t)__builtin_popcountll(a.others);
        }
        s.counts[i] = others;
    }
}

/* The place in its row's order of the number whose low byte is at `at` of 64. */
static uint32_t column_of(int at) { return (uint32_t)(at / 16 * 8 + at % 8 + (at % 16 < 8 ? 0 : 32)); }

/* Write the lists of the rows of a piece; `begins` and the high bytes are there. */
WIDER static void list_piece(int number, int thread) {
    (void)thread;
    const Shortening s = shortening;
    size_t k = (size_t)s.k;
    Other *list = (Other *)(uintptr_t)others_of(s.beside, s.n);
    __m512i codes = _mm512_loadu_si512(s.codes), more_codes = _mm512_loadu_si512(s.codes + 64);
    int end = (number + 1) * s.rows_a_piece < s.n ? (number + 1) * s.rows_a_piece : s.n;
    for (int i = number * s.rows_a_piece; i < end; i++) {
        const uint16_t *words = s.words + (size_t)i * k;
        Other *to = list + s.beside->begins[i], *stop = list + s.beside->begins[i + 1];
        for (size_t c = 0; c < k && to < stop; c += HALF) {
            Half half = shortened(words + c, codes, more_codes);
            for (__mmask64 left = half.others; left && to < stop; left &= left - 1) {
                uint32_t column = (uint32_t)c + column_of(__builtin_ctzll(left));
                uint16_t is = words[column], high = s.beside->highs[is >> 15 ? CODES : 0];
                *to++ = (Other){column, is, (uint16_t)(high << 8 | (is & 255))};
            }
        }
    }
}

/* Shorten a matrix, or list its others where there is a place for them. */
static void shorten(Shortening what, int threads) {
    what.rows_a_piece = PIECE / (2 * what.k) + 1;
    pthread_mutex_lock(&job_lock);
    shortening = what;
    run(what.beside ? list_piece : shorten_piece, (what.n + what.rows_a_piece - 1) / what.rows_a_piece, threads);
    pthread_mutex_unlock(&job_lock);
}

/* ---- and how they are as they were ---- */

typedef struct {
    const uint8_t *blocks;
    const Beside *beside;
    const long long *rows; /* their numbers */
    uint16_t *words;
    int n, k, count, rows_a_piece;
} Lengthening;

static Lengthening lengthening; /* guarded by job_lock */

WIDE static void lengthen_row(const Lengthening *l, long long row, uint16_t *words) {
    const Other *others = others_of(l->beside, l->n);
    const __m512i highs = _mm512_loadu_si512(l->beside->highs);
    const uint8_t *block = l->blocks + (size_t)row * row_bytes((size_t)l->k);
    for (int c = 0; c < l->k; c += BLOCK, block += BLOCK_BYTES) {
        __m512i numbers[4];
        int whole = c + BLOCK <= l->k;
        if (whole)
            open_block(block, highs, numbers);
        else
            open_half(block, highs, numbers);
        for (int j = 0; j < (whole ? 4 : 2); j++) _mm512_storeu_si512(words + c + 32 * j, numbers[j]);
    }
    for (uint32_t o = l->beside->begins[row]; o < l->beside->begins[row + 1]; o++) words[others[o].column] = others[o].is;
}

static void lengthen_piece(int number, int thread) {
    (void)thread;
    const Lengthening l = lengthening;
    int end = (number + 1) * l.rows_a_piece < l.count ? (number + 1) * l.rows_a_piece : l.count;
    for (int i = number * l.rows_a_piece; i < end; i++) lengthen_row(&l, l.rows[i], l.words + (size_t)i * (size_t)l.k);
}

/* Give rows of a matrix as they were. */
static void lengthen(Lengthening what, int threads) {
    what.rows_a_piece = PIECE / (2 * what.k) + 1;
    pthread_mutex_lock(&job_lock);
    lengthening = what;
    run(lengthen_piece, (what.count + what.rows_a_piece - 1) / what.rows_a_piece, threads);
    pthread_mutex_unlock(&job_lock);
}
