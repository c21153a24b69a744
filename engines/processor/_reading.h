/* Reading, and nothing else: what a product is set against. */

typedef struct {
    const float *numbers;
    size_t count;
    double *sums; /* of pieces */
} Reading;

static Reading reading; /* guarded by job_lock */

WIDE static void read_piece(int number, int thread) {
    (void)thread;
    size_t a_piece = PIECE / sizeof(float), first = (size_t)number * a_piece, i = 0;
    size_t count = reading.count - first < a_piece ? reading.count - first : a_piece;
    const float *from = reading.numbers + first;
    __m512 sums[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    for (; i + 64 <= count; i += 64) {
        fetch_ahead(from + i, 256);
        for (int j = 0; j < 4; j++) sums[j] = _mm512_add_ps(sums[j], _mm512_loadu_ps(from + i + 16 * j));
    }
    for (; i < count; i += 16) sums[0] = _mm512_add_ps(sums[0], _mm512_maskz_loadu_ps(up_to(count - i), from + i));
    sums[0] = _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
    reading.sums[number] = (double)_mm512_reduce_add_ps(sums[0]);
}
