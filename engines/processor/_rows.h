/* What lies between products: norms, gates and the attention of one position, in fp32. */

#define KEYS_AT_ONCE 32 /* whose values stay in the nearest cache */
#define KEYS_A_PIECE 128

/* e to the x, within 2 units of the last place; 0 and infinity where fp32 ends. */
INLINE __m512 exp_of(__m512 x) {
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

INLINE __mmask16 up_to(size_t left) { return left < 16 ? (__mmask16)((1u << left) - 1) : (__mmask16)~0u; }

/* Write some numbers to place i of a row of fp32, or of bf16. */
INLINE void put_numbers(void *row, size_t i, __mmask16 some, __m512 x, int brain) {
    if (brain)
        _mm256_mask_storeu_epi16((uint16_t *)row + i, some, (__m256i)_mm512_cvtneps_pbh(x));
    else
        _mm512_mask_storeu_ps((float *)row + i, some, x);
}

/* Norm m rows of n numbers; the weights of a row begin `stride` after those of the one before. */
WIDE static void norm_rows(const float *x, const float *weights, void *out, size_t n, size_t m, size_t stride,
                           float eps, int brain) {
    for (size_t r = 0; r < m; r++, x += n, weights += stride) {
        __m512 sums = _mm512_setzero_ps();
        for (size_t i = 0; i < n; i += 16) {
            __m512 some = _mm512_maskz_loadu_ps(up_to(n - i), x + i);
            sums = _mm512_fmadd_ps(some, some, sums);
        }
        __m128 mean = _mm_set_ss(_mm512_reduce_add_ps(sums) / (float)n + eps);
        __m512 scale = _mm512_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(mean)));
        void *to = (char *)out + r * n * (brain ? 2 : 4);
        for (size_t i = 0; i < n; i += 16) {
            __mmask16 some = up_to(n - i);
            __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(some, x + i), scale);
            put_numbers(to, i, some, _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(some, weights + i)), brain);
        }
    }
}

/* Write act(gate) · up of m rows, n gates before n ups; act is gelu by tanh, else silu: both are x / (1 + exp(-y)). */
WIDE static void gate_rows(const float *x, void *out, size_t n, size_t m, int gelu, int brain) {
    for (size_t r = 0; r < m; r++, x += 2 * n) {
        void *to = (char *)out + r * n * (brain ? 2 : 4);
        for (size_t i = 0; i < n; i += 16) {
            __mmask16 some = up_to(n - i);
            __m512 gate = _mm512_maskz_loadu_ps(some, x + i), up = _mm512_maskz_loadu_ps(some, x + n + i), y = gate;
            if (gelu) {
                __m512 cube = _mm512_mul_ps(_mm512_mul_ps(gate, gate), gate);
                y = _mm512_fmadd_ps(_mm512_set1_ps(0.044715f), cube, gate);
                y = _mm512_mul_ps(_mm512_set1_ps(1.595769122f), y); /* 2 · sqrt(2 / pi) */
            }
            __m512 below = _mm512_add_ps(_mm512_set1_ps(1.0f), exp_of(_mm512_sub_ps(_mm512_setzero_ps(), y)));
            put_numbers(to, i, some, _mm512_mul_ps(_mm512_div_ps(gate, below), up), brain);
        }
    }
}

/* ---- attention of one position: keys are cut into pieces, whose shares are put together at the end ---- */

typedef struct {
    const float *q, *keys, *values; /* [batch, heads, shared, dim]; [batch, heads, count, dim] with steps between */
    void *out;                      /* as q, in fp32 or bf16 */
    float *parts;                   /* of each piece and head that shares keys: sums [dim], weight, top */
    int brain;
    size_t batch, heads, shared, count, dim, batch_step, head_step, pieces;
    float scale;
} Attention;

/* What m heads make of some keys: sums of values by weights exp(score - top), the weights' sum, and the top. */
INLINE void look_at(const Attention *a, const float *q, const float *keys, const float *values, size_t count, int m,
                    float *part) {
    size_t dim = a->dim;
    float weights[4][KEYS_AT_ONCE], top[4], sum[4];
    for (int h = 0; h < m; h++) top[h] = -__builtin_inff(), sum[h] = 0;
    for (size_t at = 0; at < count; at += KEYS_AT_ONCE) {
        size_t here = count - at < KEYS_AT_ONCE ? count - at : KEYS_AT_ONCE;
        __m512 shrink[4];
        for (size_t j = 0; j < here; j++) {
            __m512 dots[4];
            for (int h = 0; h < m; h++) dots[h] = _mm512_setzero_ps();
            for (size_t c = 0; c < dim; c += 16) {
                __m512 key = _mm512_loadu_ps(keys + (at + j) * dim + c);
                for (int h = 0; h < m; h++)
                    dots[h] = _mm512_fmadd_ps(key, _mm512_loadu_ps(q + (size_t)h * dim + c), dots[h]);
            }
            for (int h = 0; h < m; h++) weights[h][j] = _mm512_reduce_add_ps(dots[h]) * a->scale;
        }
        for (int h = 0; h < m; h++) {
            float before = top[h], all = 0;
            for (size_t j = 0; j < here; j++) top[h] = weights[h][j] > top[h] ? weights[h][j] : top[h];
            shrink[h] = exp_of(_mm512_set1_ps(before - top[h]));
            for (size_t j = 0; j < here; j += 16) {
                __mmask16 some = up_to(here - j);
                __m512 less = _mm512_sub_ps(_mm512_maskz_loadu_ps(some, weights[h] + j), _mm512_set1_ps(top[h]));
                __m512 weight = _mm512_maskz_mov_ps(some, exp_of(less));
                _mm512_storeu_ps(weights[h] + j, weight);
                all += _mm512_reduce_add_ps(weight);
            }
            sum[h] = sum[h] * _mm512_cvtss_f32(shrink[h]) + all;
        }
        for (size_t c = 0; c < dim; c += 16) {
            __m512 mixed[4];
            for (int h = 0; h < m; h++) {
                float *place = part + (size_t)h * (dim + 2) + c;
                mixed[h] = at ? _mm512_mul_ps(_mm512_loadu_ps(place), shrink[h]) : _mm512_setzero_ps();
            }
            for (size_t j = 0; j < here; j++) {
                __m512 value = _mm512_loadu_ps(values + (at + j) * dim + c);
                for (int h = 0; h < m; h++) mixed[h] = _mm512_fmadd_ps(_mm512_set1_ps(weights[h][j]), value, mixed[h]);
            }
            for (int h = 0; h < m; h++) _mm512_storeu_ps(part + (size_t)h * (dim + 2) + c, mixed[h]);
        }
    }
    for (int h = 0; h < m; h++) part[(size_t)h * (dim + 2) + dim] = sum[h], part[(size_t)h * (dim + 2) + dim + 1] = top[h];
}

WIDE static void attend_piece(const Attention *a, size_t number) {
    size_t pair = number / a->pieces, piece = number % a->pieces, each = (a->count + a->pieces - 1) / a->pieces;
    size_t first = piece * each, end = first + each < a->count ? first + each : a->count, h = 0;
    size_t where = pair / a->heads * a->batch_step + pair % a->heads * a->head_step + first * a->dim;
    const float *q = a->q + pair * a->shared * a->dim, *keys = a->keys + where, *values = a->values + where;
    float *part = a->parts + number * a->shared * (a->dim + 2);
    size_t count = end > first ? end - first : 0;
    for (; h + 4 <= a->shared; h += 4) look_at(a, q + h * a->dim, keys, values, count, 4, part + h * (a->dim + 2));
    for (; h + 2 <= a->shared; h += 2) look_at(a, q + h * a->dim, keys, values, count, 2, part + h * (a->dim + 2));
    if (h < a->shared) look_at(a, q + h * a->dim, keys, values, count, 1, part + h * (a->dim + 2));
}

/* Put the shares of the pieces together, of each head of each pair. */
WIDE static void join_pieces(const Attention *a) {
    size_t size = a->dim + 2, a_piece = a->shared * size;
    for (size_t head = 0; head < a->batch * a->heads * a->shared; head++) {
        const float *parts = a->parts + head / a->shared * a->pieces * a_piece + head % a->shared * size;
        float top = -__builtin_inff();
        for (size_t p = 0; p < a->pieces; p++) {
            float own = parts[p * a_piece + a->dim + 1];
            top = own > top ? own : top;
        }
        for (size_t c = 0; c < a->dim; c += 16) {
            __m512 mixed = _mm512_setzero_ps(), all = mixed;
            for (size_t p = 0; p < a->pieces; p++) {
                const float *part = parts + p * a_piece;
                __m512 share = exp_of(_mm512_set1_ps(part[a->dim + 1] - top));
                if (!(part[a->dim] > 0)) continue; /* no keys */
                mixed = _mm512_fmadd_ps(share, _mm512_loadu_ps(part + c), mixed);
                all = _mm512_fmadd_ps(share, _mm512_set1_ps(part[a->dim]), all);
            }
            put_numbers(a->out, head * a->dim + c, (__mmask16)~0u, _mm512_div_ps(mixed, all), a->brain);
        }
    }
}
