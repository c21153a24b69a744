/* Products of bf16 matrices that are stored in 12 bits per number without loss.

   The weights of a matrix have few exponents. So the low byte of each number (last bit of the exponent, and the
   fraction) is stored as it is, and the high byte (sign, and the rest of the exponent) is one of sixteen, named by a
   4-bit code: eight exponents by two signs. The few numbers with other exponents are exceptions: a list holds their
   column, their value, and the value that is stored in their place.

   A block is 64 low bytes, another 64, and 64 code bytes: the low half of code byte i belongs to low byte i, the high
   half to low byte 64 + i. Each 64 low bytes are in the order in which a vector of bytes is unpacked into two of
   words: 8 of the first 32 numbers, 8 of the other 32, and so on. A row may end with half a block: 64 low bytes, and
   32 code bytes whose high halves belong to the numbers from 32 on. */

#ifndef PROCESSOR_BF12_H
#define PROCESSOR_BF12_H

#include "product.h"
#include "thread_pool.h"

#define BLOCK 128
#define BLOCK_BYTES 192
#define HALF_BLOCK 64
#define CODES 8 /* without the sign */

typedef struct {
    uint32_t column;
    uint16_t value, stored; /* the number, and what the block holds instead */
} Exception;

/* Second part of a matrix of n rows: the exceptions of row i are those from starts[i] to starts[i + 1]. */
typedef struct {
    uint8_t high_bytes[64]; /* by code, the same 16 in each quarter */
    uint32_t starts[];      /* n + 1, padded to a multiple of 8 bytes; then the exceptions */
} SideTable;

static inline const Exception *find_exceptions(const SideTable *side, int n) {
    return (const Exception *)(const void *)(side->starts + n + 1 + (n + 1) % 2);
}

AVX512_INLINE float bf16_to_float(uint16_t word) {
    uint32_t bits = (uint32_t)word << 16;
    float number;
    __builtin_memcpy(&number, &bits, 4);
    return number;
}

AVX512_INLINE __m512i look_up_high_bytes(__m512i table, __m512i codes) {
    return _mm512_shuffle_epi8(table, _mm512_and_si512(codes, _mm512_set1_epi8(15)));
}

AVX512_INLINE void join_bytes(__m512i low, __m512i high, __m512i *numbers) {
    numbers[0] = _mm512_unpacklo_epi8(low, high);
    numbers[1] = _mm512_unpackhi_epi8(low, high);
}

/* Decode a block into 4 vectors of 32 numbers, in order. */
AVX512_INLINE void decode_block(const uint8_t *block, __m512i table, __m512i *numbers) {
    __m512i first = _mm512_loadu_si512(block), second = _mm512_loadu_si512(block + 64);
    __m512i codes = _mm512_loadu_si512(block + 128);
    join_bytes(first, look_up_high_bytes(table, codes), numbers);
    join_bytes(second, look_up_high_bytes(table, _mm512_srli_epi16(codes, 4)), numbers + 2);
}

AVX512_INLINE void decode_half_block(const uint8_t *half, __m512i table, __m512i *numbers) {
    __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)(half + 64));
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(codes), _mm256_srli_epi16(codes, 4), 1);
    join_bytes(_mm512_loadu_si512(half), look_up_high_bytes(table, both), numbers);
}

/* Bytes of a row of k numbers. */
static inline size_t count_row_bytes(size_t k) { return k / HALF_BLOCK * (BLOCK_BYTES / 2); }

AVX512_INLINE void add_bf16_products(const __m512i *numbers, int count, const uint16_t *x, __m512 *sums) {
    for (int j = 0; j < count; j++) {
        __m512i row = _mm512_loadu_si512(x + 32 * j);
        sums[j % 2] = _mm512_dpbf16_ps(sums[j % 2], (__m512bh)numbers[j], (__m512bh)row);
    }
}

/* Multiply the weight rows `first` to `end` with m rows of x, starting at `from`. */
AVX512_INLINE void multiply_bf12_rows(const Product *p, int first, int end, int from, int m) {
    size_t k = (size_t)p->k, row_bytes = count_row_bytes(k);
    const uint16_t *x = (const uint16_t *)p->x + (size_t)from * k;
    const SideTable *side = (const SideTable *)p->scales;
    const Exception *exceptions = find_exceptions(side, p->n);
    const __m512i table = _mm512_loadu_si512(side->high_bytes);
    for (int i = first; i < end; i++) {
        const uint8_t *block = (const uint8_t *)p->weights + (size_t)i * row_bytes;
        __m512 sums[ROW_TILE][2];
        for (int r = 0; r < m; r++) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
        size_t c = 0;
        for (; c + BLOCK <= k; c += BLOCK, block += BLOCK_BYTES) {
            __m512i numbers[4];
            prefetch_ahead(block, BLOCK_BYTES);
            decode_block(block, table, numbers);
            for (int r = 0; r < m; r++) add_bf16_products(numbers, 4, x + (size_t)r * k + c, sums[r]);
        }
        if (c < k) {
            __m512i numbers[2];
            prefetch_ahead(block, BLOCK_BYTES / 2);
            decode_half_block(block, table, numbers);
            for (int r = 0; r < m; r++) add_bf16_products(numbers, 2, x + (size_t)r * k + c, sums[r]);
        }
        for (int r = 0; r < m; r++) {
            float sum = _mm512_reduce_add_ps(_mm512_add_ps(sums[r][0], sums[r][1]));
            for (uint32_t e = side->starts[i]; e < side->starts[i + 1]; e++) {
                float difference = bf16_to_float(exceptions[e].value) - bf16_to_float(exceptions[e].stored);
                sum += difference * bf16_to_float(x[(size_t)r * k + exceptions[e].column]);
            }
            store_product(p, from + r, i, sum);
        }
    }
}

AVX512 static inline void multiply_bf12(const Product *p, int first, int end, int thread) {
    (void)thread;
    int r = 0;
    for (; r + 4 <= p->m; r += 4) multiply_bf12_rows(p, first, end, r, 4);
    for (; r + 2 <= p->m; r += 2) multiply_bf12_rows(p, first, end, r, 2);
    if (r < p->m) multiply_bf12_rows(p, first, end, r, 1);
}

/* ---- encoding ---- */

typedef struct {
    const uint16_t *words;
    const uint8_t *codes; /* of the 128 high bytes without their sign; bit 7 is set if there is no code */
    uint8_t *blocks;
    uint32_t *counts; /* exceptions per row */
    SideTable *side;
    int n, k, rows_per_piece;
} Encoding;

static Encoding encoding; /* guarded by job_lock */

#define AVX512_VBMI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi")))

typedef struct {
    __m512i low_bytes, codes;
    __mmask64 exceptions;
} EncodedHalf;

/* Encode 64 numbers. */
static inline __attribute__((always_inline)) AVX512_VBMI EncodedHalf encode_half(const uint16_t *words, __m512i codes,
                                                                                 __m512i more_codes) {
    const __m512i byte = _mm512_set1_epi16(255);
    __m512i a = _mm512_loadu_si512(words), b = _mm512_loadu_si512(words + 32);
    __m512i low = _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
    __m512i high = _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
    __m512i code = _mm512_permutex2var_epi8(codes, high, more_codes);
    __m512i sign = _mm512_and_si512(_mm512_srli_epi16(high, 4), _mm512_set1_epi8(CODES));
    __mmask64 exceptions = _mm512_movepi8_mask(code);
    return (EncodedHalf){low, _mm512_or_si512(_mm512_and_si512(code, _mm512_set1_epi8(CODES - 1)), sign), exceptions};
}

static inline int end_of_piece(int piece, int rows_per_piece, int rows) {
    return (piece + 1) * rows_per_piece < rows ? (piece + 1) * rows_per_piece : rows;
}

AVX512_VBMI static inline void encode_piece(int piece, int thread) {
    (void)thread;
    const Encoding e = encoding;
    size_t k = (size_t)e.k;
    __m512i codes = _mm512_loadu_si512(e.codes), more_codes = _mm512_loadu_si512(e.codes + 64);
    int end = end_of_piece(piece, e.rows_per_piece, e.n);
    for (int i = piece * e.rows_per_piece; i < end; i++) {
        uint8_t *block = e.blocks + (size_t)i * count_row_bytes(k);
        const uint16_t *w = e.words + (size_t)i * k, *stop = w + k;
        uint32_t exceptions = 0;
        for (; w + BLOCK <= stop; w += BLOCK, block += BLOCK_BYTES) {
            EncodedHalf a = encode_half(w, codes, more_codes), b = encode_half(w + 64, codes, more_codes);
            _mm512_storeu_si512(block, a.low_bytes);
            _mm512_storeu_si512(block + 64, b.low_bytes);
            _mm512_storeu_si512(block + 128, _mm512_or_si512(a.codes, _mm512_slli_epi16(b.codes, 4)));
            exceptions += (uint32_t)(__builtin_popcountll(a.exceptions) + __builtin_popcountll(b.exceptions));
        }
        if (w < stop) {
            EncodedHalf a = encode_half(w, codes, more_codes);
            __m256i upper = _mm256_slli_epi16(_mm512_extracti64x4_epi64(a.codes, 1), 4);
            _mm512_storeu_si512(block, a.low_bytes);
            __m256i both = _mm256_or_si256(_mm512_castsi512_si256(a.codes), upper);
            _mm256_storeu_si256((__m256i *)(void *)(block + 64), both);
            exceptions += (uint32_t)__builtin_popcountll(a.exceptions);
        }
        e.counts[i] = exceptions;
    }
}

/* Column, among 64 numbers in order, of the number whose low byte is at `position`. */
static uint32_t find_column(int position) {
    return (uint32_t)(position / 16 * 8 + position % 8 + (position % 16 < 8 ? 0 : 32));
}

/* Write the exceptions of a piece; `starts` and `high_bytes` are filled already. */
AVX512_VBMI static inline void list_piece(int piece, int thread) {
    (void)thread;
    const Encoding e = encoding;
    size_t k = (size_t)e.k;
    Exception *list = (Exception *)(uintptr_t)find_exceptions(e.side, e.n);
    __m512i codes = _mm512_loadu_si512(e.codes), more_codes = _mm512_loadu_si512(e.codes + 64);
    int end = end_of_piece(piece, e.rows_per_piece, e.n);
    for (int i = piece * e.rows_per_piece; i < end; i++) {
        const uint16_t *words = e.words + (size_t)i * k;
        Exception *entry = list + e.side->starts[i], *stop = list + e.side->starts[i + 1];
        for (size_t c = 0; c < k && entry < stop; c += HALF_BLOCK) {
            EncodedHalf half = encode_half(words + c, codes, more_codes);
            for (__mmask64 left = half.exceptions; left && entry < stop; left &= left - 1) {
                uint32_t column = (uint32_t)c + find_column(__builtin_ctzll(left));
                uint16_t value = words[column], high = e.side->high_bytes[value >> 15 ? CODES : 0];
                *entry++ = (Exception){column, value, (uint16_t)(high << 8 | (value & 255))};
            }
        }
    }
}

static inline int choose_rows_per_piece(int k) { return PIECE_BYTES / (2 * k) + 1; }

/* Encode a matrix, or list its exceptions if there is a side table for them. */
static inline void encode_bf12(Encoding task, int threads) {
    task.rows_per_piece = choose_rows_per_piece(task.k);
    pthread_mutex_lock(&job_lock);
    encoding = task;
    run_job(task.side ? list_piece : encode_piece, (task.n + task.rows_per_piece - 1) / task.rows_per_piece, threads);
    pthread_mutex_unlock(&job_lock);
}

/* ---- decoding ---- */

typedef struct {
    const uint8_t *blocks;
    const SideTable *side;
    const long long *rows; /* their indices */
    uint16_t *words;
    int n, k, count, rows_per_piece;
} Decoding;

static Decoding decoding; /* guarded by job_lock */

AVX512 static void decode_row(const Decoding *d, long long row, uint16_t *words) {
    const Exception *exceptions = find_exceptions(d->side, d->n);
    const __m512i table = _mm512_loadu_si512(d->side->high_bytes);
    const uint8_t *block = d->blocks + (size_t)row * count_row_bytes((size_t)d->k);
    for (int c = 0; c < d->k; c += BLOCK, block += BLOCK_BYTES) {
        __m512i numbers[4];
        int is_full = c + BLOCK <= d->k;
        if (is_full)
            decode_block(block, table, numbers);
        else
            decode_half_block(block, table, numbers);
        for (int j = 0; j < (is_full ? 4 : 2); j++) _mm512_storeu_si512(words + c + 32 * j, numbers[j]);
    }
    for (uint32_t e = d->side->starts[row]; e < d->side->starts[row + 1]; e++)
        words[exceptions[e].column] = exceptions[e].value;
}

static inline void decode_piece(int piece, int thread) {
    (void)thread;
    const Decoding d = decoding;
    int end = end_of_piece(piece, d.rows_per_piece, d.count);
    for (int i = piece * d.rows_per_piece; i < end; i++) decode_row(&d, d.rows[i], d.words + (size_t)i * (size_t)d.k);
}

/* Decode some rows of a matrix. */
static inline void decode_bf12(Decoding task, int threads) {
    task.rows_per_piece = choose_rows_per_piece(task.k);
    pthread_mutex_lock(&job_lock);
    decoding = task;
    run_job(decode_piece, (task.count + task.rows_per_piece - 1) / task.rows_per_piece, threads);
    pthread_mutex_unlock(&job_lock);
}

#endif
