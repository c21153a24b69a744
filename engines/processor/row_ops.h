/* What lies between products, in fp32: norms, gates, and attention of one position. */

#ifndef PROCESSOR_ROW_OPS_H
#define PROCESSOR_ROW_OPS_H

#include "product.h"

#define KEY_TILE 32 /* keys whose values stay in the first-level cache */
#define HEAD_TILE 4 /* query heads that share each load of a key */
#define KEYS_PER_PIECE 128

/* e to the power of x, within 2 units of the last place; 0 and infinity beyond the range of fp32. */
AVX512_INLINE __m512 exp_ps(__m512 x) {
    x = _mm512_min_ps(_mm512_set1_ps(89.0f), _mm512_max_ps(_mm512_set1_ps(-104.0f), x));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.0f / 720);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* Store the masked numbers at index i of a row of fp32, or of bf16. */
AVX512_INLINE void store_numbers(void *row, size_t i, __mmask16 mask, __m512 x, int is_bf16) {
    if (is_bf16)
        _mm256_mask_storeu_epi16((uint16_t *)row + i, mask, (__m256i)_mm512_cvtneps_pbh(x));
    else
        _mm512_mask_storeu_ps((float *)row + i, mask, x);
}

/* RMS norm of m rows of n numbers; the weights of a row begin `stride` after those of the previous one. */
AVX512 static inline void norm_rows(const float *x, const float *weights, void *out, size_t n, size_t m, size_t stride,
                                    float eps, int is_bf16) {
    for (size_t r = 0; r < m; r++, x += n, weights += stride) {
        __m512 sums = _mm512_setzero_ps();
        for (size_t i = 0; i < n; i += 16) {
            __m512 numbers = _mm512_maskz_loadu_ps(mask_first(n - i), x + i);
            sums = _mm512_fmadd_ps(numbers, numbers, sums);
        }
        __m128 mean = _mm_set_ss(_mm512_reduce_add_ps(sums) / (float)n + eps);
        __m512 scale = _mm512_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(mean)));
        void *row = (char *)out + r * n * (is_bf16 ? 2 : 4);
        for (size_t i = 0; i < n; i += 16) {
            __mmask16 mask = mask_first(n - i);
            __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), scale);
            store_numbers(row, i, mask, _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(mask, weights + i)), is_bf16);
        }
    }
}

/* Write act(gate) · up of m rows that hold n gates, then n ups. act is GELU by tanh, or SiLU; both are
   x / (1 + exp(-y)). */
AVX512 static inline void gate_rows(const float *x, void *out, size_t n, size_t m, int is_gelu, int is_bf16) {
    for (size_t r = 0; r < m; r++, x += 2 * n) {
        void *row = (char *)out + r * n * (is_bf16 ? 2 : 4);
        for (size_t i = 0; i < n; i += 16) {
            __mmask16 mask = mask_first(n - i);
            __m512 gate = _mm512_maskz_loadu_ps(mask, x + i), up = _mm512_maskz_loadu_ps(mask, x + n + i), y = gate;
            if (is_gelu) {
                __m512 cube = _mm512_mul_ps(_mm512_mul_ps(gate, gate), gate);
                y = _mm512_fmadd_ps(_mm512_set1_ps(0.044715f), cube, gate);
                y = _mm512_mul_ps(_mm512_set1_ps(1.595769122f), y); /* 2 · sqrt(2 / pi) */
            }
            __m512 divisor = _mm512_add_ps(_mm512_set1_ps(1.0f), exp_ps(_mm512_sub_ps(_mm512_setzero_ps(), y)));
            store_numbers(row, i, mask, _mm512_mul_ps(_mm512_div_ps(gate, divisor), up), is_bf16);
        }
    }
}

/* ---- attention of one position: keys are split into pieces, whose results are merged at the end ---- */

typedef struct {
    const float *q, *keys, *values; /* [batch, heads, shared, dim]; [batch, heads, count, dim] with strides */
    void *out;                      /* like q, in fp32 or bf16 */
    float *partials;                /* per piece and query head: weighted values [dim], sum of weights, highest score */
    int is_bf16;
    size_t batch, heads, shared, count, dim, batch_stride, head_stride, pieces;
    float scale;
} Attention;

/* Attend to some keys with m query heads: weighted sum of the values by exp(score - highest score), the sum of these
   weights, and the highest score. */
AVX512_INLINE void attend_to_keys(const Attention *a, const float *q, const float *keys, const float *values,
                                  size_t count, int m, float *partial) {
    size_t dim = a->dim;
    float weights[HEAD_TILE][KEY_TILE], highest[HEAD_TILE], sum[HEAD_TILE];
    for (int h = 0; h < m; h++) highest[h] = -__builtin_inff(), sum[h] = 0;
    for (size_t start = 0; start < count; start += KEY_TILE) {
        size_t tile = count - start < KEY_TILE ? count - start : KEY_TILE;
        __m512 shrink[HEAD_TILE];
        for (size_t j = 0; j < tile; j++) {
            __m512 dots[HEAD_TILE];
            for (int h = 0; h < m; h++) dots[h] = _mm512_setzero_ps();
            for (size_t c = 0; c < dim; c += 16) {
                __m512 key = _mm512_loadu_ps(keys + (start + j) * dim + c);
                for (int h = 0; h < m; h++)
                    dots[h] = _mm512_fmadd_ps(key, _mm512_loadu_ps(q + (size_t)h * dim + c), dots[h]);
            }
            for (int h = 0; h < m; h++) weights[h][j] = _mm512_reduce_add_ps(dots[h]) * a->scale;
        }
        for (int h = 0; h < m; h++) {
            float before = highest[h], tile_sum = 0;
            for (size_t j = 0; j < tile; j++) highest[h] = weights[h][j] > highest[h] ? weights[h][j] : highest[h];
            shrink[h] = exp_ps(_mm512_set1_ps(before - highest[h]));
            for (size_t j = 0; j < tile; j += 16) {
                __mmask16 mask = mask_first(tile - j);
                __m512 scores = _mm512_maskz_loadu_ps(mask, weights[h] + j);
                __m512 weight = _mm512_maskz_mov_ps(mask, exp_ps(_mm512_sub_ps(scores, _mm512_set1_ps(highest[h]))));
                _mm512_storeu_ps(weights[h] + j, weight);
                tile_sum += _mm512_reduce_add_ps(weight);
            }
            sum[h] = sum[h] * _mm512_cvtss_f32(shrink[h]) + tile_sum;
        }
        for (size_t c = 0; c < dim; c += 16) {
            __m512 mixed[HEAD_TILE];
            for (int h = 0; h < m; h++) {
                float *previous = partial + (size_t)h * (dim + 2) + c;
                mixed[h] = start ? _mm512_mul_ps(_mm512_loadu_ps(previous), shrink[h]) : _mm512_setzero_ps();
            }
            for (size_t j = 0; j < tile; j++) {
                __m512 value = _mm512_loadu_ps(values + (start + j) * dim + c);
                for (int h = 0; h < m; h++) mixed[h] = _mm512_fmadd_ps(_mm512_set1_ps(weights[h][j]), value, mixed[h]);
            }
            for (int h = 0; h < m; h++) _mm512_storeu_ps(partial + (size_t)h * (dim + 2) + c, mixed[h]);
        }
    }
    for (int h = 0; h < m; h++) {
        float *end = partial + (size_t)h * (dim + 2) + dim;
        end[0] = sum[h], end[1] = highest[h];
    }
}

AVX512 static inline void attend_piece(const Attention *a, size_t index) {
    size_t pair = index / a->pieces, piece = index % a->pieces, keys_each = (a->count + a->pieces - 1) / a->pieces;
    size_t first = piece * keys_each, end = first + keys_each < a->count ? first + keys_each : a->count, h = 0;
    size_t offset = pair / a->heads * a->batch_stride + pair % a->heads * a->head_stride + first * a->dim;
    const float *q = a->q + pair * a->shared * a->dim, *keys = a->keys + offset, *values = a->values + offset;
    float *partial = a->partials + index * a->shared * (a->dim + 2);
    size_t count = end > first ? end - first : 0, size = a->dim + 2;
    for (; h + 4 <= a->shared; h += 4) attend_to_keys(a, q + h * a->dim, keys, values, count, 4, partial + h * size);
    for (; h + 2 <= a->shared; h += 2) attend_to_keys(a, q + h * a->dim, keys, values, count, 2, partial + h * size);
    if (h < a->shared) attend_to_keys(a, q + h * a->dim, keys, values, count, 1, partial + h * size);
}

/* Merge the partial results of all pieces, for each query head of each pair. */
AVX512 static inline void merge_pieces(const Attention *a) {
    size_t size = a->dim + 2, piece_size = a->shared * size;
    for (size_t head = 0; head < a->batch * a->heads * a->shared; head++) {
        const float *partials = a->partials + head / a->shared * a->pieces * piece_size + head % a->shared * size;
        float highest = -__builtin_inff();
        for (size_t p = 0; p < a->pieces; p++) {
            float score = partials[p * piece_size + a->dim + 1];
            highest = score > highest ? score : highest;
        }
        for (size_t c = 0; c < a->dim; c += 16) {
            __m512 mixed = _mm512_setzero_ps(), sum = mixed;
            for (size_t p = 0; p < a->pieces; p++) {
                const float *partial = partials + p * piece_size;
                __m512 weight = exp_ps(_mm512_set1_ps(partial[a->dim + 1] - highest));
                if (!(partial[a->dim] > 0)) continue; /* a piece without keys */
                mixed = _mm512_fmadd_ps(weight, _mm512_loadu_ps(partial + c), mixed);
                sum = _mm512_fmadd_ps(weight, _mm512_set1_ps(partial[a->dim]), sum);
            }
            store_numbers(a->out, head * a->dim + c, (__mmask16)~0u, _mm512_div_ps(mixed, sum), a->is_bf16);
        }
    }
}

#endif
