/* Multiplies rows with stored matrices on an x86 CPU with AVX-512, VNNI and bf16, on several threads, and does what
   lies between products: norms, gates, the attention of one position.

   The caller passes addresses and answers for them: weights [n, k] row after row, rows [m, k], products [m, n] in fp32,
   all contiguous and alive until the call returns, and the weights until they are forgotten. If the CPU lacks these
   instructions, KINDS is empty and the caller computes in another way. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

/* Count up with every change that a caller sees; `__init__.py` requires one version. */
#define VERSION 6

#if defined(__x86_64__)

#include <stdlib.h>

#include "bf12.h"
#include "half_precision.h"
#include "low_bit.h"
#include "many_rows.h"
#include "product.h"
#include "row_ops.h"
#include "thread_pool.h"

/* ---- memory for intermediate results ---- */

static char *scratch; /* guarded by job_lock */
static size_t scratch_size;

/* Have at least `size` bytes of scratch; return whether there is memory for it. */
static int reserve_scratch(size_t size) {
    if (size <= scratch_size) return 1;
    size = (size + 63) / 64 * 64;
    free(scratch);
    scratch_size = 0;
    scratch = aligned_alloc(64, size);
    if (scratch) scratch_size = size;
    return scratch != NULL;
}

/* ---- products ---- */

typedef struct {
    const char *name;
    int bits;
    int is_rounded; /* rows of x are rounded to 8 bits, and k is a multiple of GROUP */
    void (*multiply)(const Product *, int first, int end, int thread);
} Kind;

static const Kind kinds[] = {
    {"int4", 4, 1, multiply_4_bit},
    {"int8", 8, 1, multiply_8_bit},
    {"bf16", 16, 0, multiply_bf16},
    {"fp16", 16, 0, multiply_fp16},
    {"bf12", 12, 0, multiply_bf12}, /* last, because a CPU may lack what encodes it */
};
#define KIND_COUNT ((int)(sizeof kinds / sizeof *kinds))

static Product product; /* guarded by job_lock */

static void multiply_piece(int piece, int thread) {
    int first = piece * product.rows_per_piece, end = first + product.rows_per_piece;
    if (end > product.n) end = product.n;
    product.multiply(&product, first, end, thread);
    for (int r = 0; product.bias && r < product.m; r++)
        for (int i = first; i < end; i++) product.out[(size_t)r * (size_t)product.n + (size_t)i] += product.bias[i];
}

static void round_piece(int row, int thread) {
    (void)thread;
    RoundedRow rounded = locate_rounded_row(product.rounded_rows, product.k, row);
    int is_4_bit = product.multiply == multiply_4_bit;
    round_row((const float *)product.x + (size_t)row * (size_t)product.k, product.k, is_4_bit, rounded);
    if (product.panels) sum_group_starts(product.k, is_4_bit, rounded);
}

/* Return whether there was memory for the product. */
static int multiply(const Kind *kind, const void *weights, const void *scales, const void *x, float *out,
                    const float *bias, int n, int k, int m, int threads) {
    int per_piece = PIECE_BYTES / (int)((int64_t)k * kind->bits / 8 + 1) / 16 * 16;
    if (per_piece < 16) per_piece = 16; /* whole cache lines of `out`: no two threads write to one */
    pthread_mutex_lock(&job_lock);
    int uses_panels = kind->is_rounded && m >= MIN_PANEL_ROWS;
    size_t rounded = kind->is_rounded ? count_rounded_bytes(k) * (size_t)m : 0;
    size_t panels = uses_panels ? count_panel_bytes(k) * (size_t)count_possible_threads(threads) : 0;
    int has_memory = reserve_scratch(rounded + panels);
    if (has_memory) {
        int pieces = (n + per_piece - 1) / per_piece, per_thread = (pieces + threads - 1) / threads;
        char *panel_memory = uses_panels ? scratch + rounded : NULL;
        product = (Product){weights, scales, x, out, bias, scratch, panel_memory, n, k, m, per_piece, kind->multiply};
        if (kind->is_rounded) run_job(round_piece, m, uses_panels ? threads : 1);
        size_t row_bytes = (size_t)k * (size_t)kind->bits / 8;
        expect_next((WeightRange){weights, row_bytes * (size_t)n, row_bytes * (size_t)(per_thread * per_piece)});
        run_job(multiply_piece, pieces, threads);
    }
    pthread_mutex_unlock(&job_lock);
    return has_memory;
}

/* ---- attention ---- */

#define MAX_KEY_PIECES 64 /* per head */

static Attention attention; /* guarded by job_lock */

static void run_attention_piece(int piece, int thread) {
    (void)thread;
    attend_piece(&attention, (size_t)piece);
}

/* Return whether there was memory for the attention. */
static int attend(Attention a, int threads) {
    size_t pairs = a.batch * a.heads;
    a.pieces = (a.count + KEYS_PER_PIECE - 1) / KEYS_PER_PIECE;
    if (a.pieces > MAX_KEY_PIECES) a.pieces = MAX_KEY_PIECES;
    pthread_mutex_lock(&job_lock);
    int has_memory = reserve_scratch(pairs * a.pieces * a.shared * (a.dim + 2) * sizeof(float));
    if (has_memory) {
        attention = a;
        attention.partials = (float *)(void *)scratch;
        run_job(run_attention_piece, (int)(pairs * a.pieces), threads);
        merge_pieces(&attention);
    }
    pthread_mutex_unlock(&job_lock);
    return has_memory;
}

/* ---- sums: memory read as products read weights, to measure its bandwidth ---- */

typedef struct {
    const float *numbers;
    size_t count;
    double *sums; /* per piece */
} Sum;

static Sum current_sum; /* guarded by job_lock */

AVX512 static void sum_piece(int piece, int thread) {
    (void)thread;
    size_t per_piece = PIECE_BYTES / sizeof(float), first = (size_t)piece * per_piece, i = 0;
    size_t count = current_sum.count - first < per_piece ? current_sum.count - first : per_piece;
    const float *numbers = current_sum.numbers + first;
    __m512 sums[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    for (; i + 64 <= count; i += 64) {
        prefetch_ahead(numbers + i, 256);
        for (int j = 0; j < 4; j++) sums[j] = _mm512_add_ps(sums[j], _mm512_loadu_ps(numbers + i + 16 * j));
    }
    for (; i < count; i += 16)
        sums[0] = _mm512_add_ps(sums[0], _mm512_maskz_loadu_ps(mask_first(count - i), numbers + i));
    sums[0] = _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
    current_sum.sums[piece] = (double)_mm512_reduce_add_ps(sums[0]);
}

/* Sum contiguous numbers; return whether there was memory for it. */
static int sum_numbers(const float *numbers, size_t count, int threads, double *sum) {
    size_t per_piece = PIECE_BYTES / sizeof(float), pieces = (count + per_piece - 1) / per_piece;
    pthread_mutex_lock(&job_lock);
    int has_memory = reserve_scratch(pieces * sizeof(double));
    if (has_memory) {
        current_sum = (Sum){numbers, count, (double *)(void *)scratch};
        run_job(sum_piece, (int)pieces, threads);
        *sum = 0;
        for (size_t i = 0; i < pieces; i++) *sum += current_sum.sums[i];
    }
    pthread_mutex_unlock(&job_lock);
    return has_memory;
}

/* ---- Python interface ---- */

static int is_supported(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
}

static int can_encode_bf12(void) { return is_supported() && __builtin_cpu_supports("avx512vbmi"); }

#define MAX_ARGUMENTS 13
#define MAX_SIZE (1 << 26)

/* Parse integers: addresses, then sizes from 1 on, then others. Return whether they are valid. */
static int parse_integers(PyObject *const *args, Py_ssize_t count, int addresses, int sizes, int others,
                          long long *to) {
    int expected = addresses + sizes + others;
    if (count != expected) {
        PyErr_Format(PyExc_TypeError, "expected %d numbers, got %zd", expected, count);
        return 0;
    }
    if (!is_supported()) {
        PyErr_SetString(PyExc_ValueError, "not supported by this CPU");
        return 0;
    }
    for (int i = 0; i < expected; i++) {
        to[i] = PyLong_AsLongLong(args[i]);
        if (to[i] == -1 && PyErr_Occurred()) return 0;
        if (i >= addresses && i < addresses + sizes && (to[i] < 1 || to[i] > MAX_SIZE)) {
            PyErr_Format(PyExc_ValueError, "sizes must be 1 to %d", MAX_SIZE);
            return 0;
        }
    }
    return 1;
}

static void *address(long long number) { return (void *)(uintptr_t)number; }

/* Return whether rows of k numbers fill blocks and half blocks, on a CPU that can encode them. */
static int check_bf12_columns(long long k) {
    if (can_encode_bf12() && k % HALF_BLOCK == 0) return 1;
    const char *reason = can_encode_bf12() ? "columns must be a multiple of 64" : "not supported by this CPU";
    PyErr_SetString(PyExc_ValueError, reason);
    return 0;
}

static PyObject *py_multiply(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MAX_ARGUMENTS]; /* weights, scales, rows, products, bias, n, k, m, threads, kind */
    if (!parse_integers(args, count, 5, 4, 1, n)) return NULL;
    if (n[9] < 0 || n[9] >= KIND_COUNT) return PyErr_Format(PyExc_ValueError, "unknown kind");
    const Kind *kind = &kinds[n[9]];
    if (kind->is_rounded && n[6] % GROUP) return PyErr_Format(PyExc_ValueError, "columns must be a multiple of 32");
    if (kind->bits == 12 && !check_bf12_columns(n[6])) return NULL;
    int has_memory;
    Py_BEGIN_ALLOW_THREADS
    has_memory = multiply(kind, address(n[0]), address(n[1]), address(n[2]), address(n[3]), address(n[4]), (int)n[5],
                          (int)n[6], (int)n[7], (int)n[8]);
    Py_END_ALLOW_THREADS
    if (!has_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_forget(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MAX_ARGUMENTS]; /* weights */
    if (!parse_integers(args, count, 1, 0, 0, n)) return NULL;
    pthread_mutex_lock(&job_lock);
    forget_weights(address(n[0]));
    pthread_mutex_unlock(&job_lock);
    Py_RETURN_NONE;
}

static PyObject *py_norm(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MAX_ARGUMENTS]; /* rows, weights, normed, n, m, stride of the weights, bf16 */
    double eps = count ? PyFloat_AsDouble(args[count - 1]) : 0;
    if (PyErr_Occurred() || !parse_integers(args, count - 1, 3, 2, 2, n)) return NULL;
    norm_rows(address(n[0]), address(n[1]), address(n[2]), (size_t)n[3], (size_t)n[4], (size_t)n[5], (float)eps,
              n[6] != 0);
    Py_RETURN_NONE;
}

static PyObject *py_gate(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MAX_ARGUMENTS]; /* gates and ups, products, n, m, gelu, bf16 */
    if (!parse_integers(args, count, 2, 2, 2, n)) return NULL;
    gate_rows(address(n[0]), address(n[1]), (size_t)n[2], (size_t)n[3], n[4] != 0, n[5] != 0);
    Py_RETURN_NONE;
}

static PyObject *py_attend(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MAX_ARGUMENTS]; /* q, keys, values, out, batch, heads, shared, count, dim, threads, strides, bf16 */
    double scale = count ? PyFloat_AsDouble(args[count - 1]) : 0;
    if (PyErr_Occurred() || !parse_integers(args, count - 1, 4, 6, 3, n)) return NULL;
    if (n[8] % 16) return PyErr_Format(PyExc_ValueError, "dim must be a multiple of 16");
    Attention a = {
        .q = address(n[0]), .keys = address(n[1]), .values = address(n[2]), .out = address(n[3]),
        .batch = (size_t)n[4], .heads = (size_t)n[5], .shared = (size_t)n[6], .count = (size_t)n[7],
        .dim = (size_t)n[8], .batch_stride = (size_t)n[10], .head_stride = (size_t)n[11], .is_bf16 = n[12] != 0,
        .scale = (float)scale,
    };
    int has_memory;
    Py_BEGIN_ALLOW_THREADS
    has_memory = attend(a, (int)n[9]);
    Py_END_ALLOW_THREADS
    if (!has_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_sum(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MAX_ARGUMENTS]; /* numbers, count, threads */
    if (!parse_integers(args, count, 1, 2, 0, n)) return NULL;
    double sum = 0;
    int has_memory;
    Py_BEGIN_ALLOW_THREADS
    has_memory = sum_numbers(address(n[0]), (size_t)n[1], (int)n[2], &sum);
    Py_END_ALLOW_THREADS
    return has_memory ? PyFloat_FromDouble(sum) : PyErr_NoMemory();
}

static PyObject *py_encode_bf12(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MAX_ARGUMENTS]; /* words, codes, blocks, counts, side table, n, k, threads */
    if (!parse_integers(args, count, 5, 3, 0, n) || !check_bf12_columns(n[6])) return NULL;
    Encoding task = {
        .words = address(n[0]), .codes = address(n[1]), .blocks = address(n[2]), .counts = address(n[3]),
        .side = address(n[4]), .n = (int)n[5], .k = (int)n[6],
    };
    Py_BEGIN_ALLOW_THREADS
    encode_bf12(task, (int)n[7]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_decode_bf12(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MAX_ARGUMENTS]; /* blocks, side table, row indices, words, n, k, rows, threads */
    if (!parse_integers(args, count, 4, 4, 0, n) || !check_bf12_columns(n[5])) return NULL;
    Decoding task = {
        .blocks = address(n[0]), .side = address(n[1]), .rows = address(n[2]), .words = address(n[3]),
        .n = (int)n[4], .k = (int)n[5], .count = (int)n[6],
    };
    for (int i = 0; i < task.count; i++)
        if (task.rows[i] < 0 || task.rows[i] >= task.n) return PyErr_Format(PyExc_IndexError, "row index out of range");
    Py_BEGIN_ALLOW_THREADS
    decode_bf12(task, (int)n[7]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
#define METHOD(name) #name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL
    {METHOD(multiply), "multiply(weights, scales, rows, products, bias or 0, n, k, m, threads, index in KINDS)."},
    {METHOD(forget), "forget(weights): stop reading them ahead, because they are about to be freed."},
    {METHOD(encode_bf12), "encode_bf12(words, codes, blocks, counts, 0 or side table to fill, n, k, threads)."},
    {METHOD(decode_bf12), "decode_bf12(blocks, side table, row indices, words, n, k, rows, threads): rows in bf16."},
    {METHOD(norm), "norm(rows, weights, normed, n, m, stride, bf16, eps): RMS norm of rows."},
    {METHOD(gate), "gate(gates and ups, products, n, m, gelu, bf16): act(gate) times up."},
    {METHOD(attend), "attend(q, keys, values, out, batch, heads, shared, count, dim, threads, 2 strides, bf16, scale)."},
    {METHOD(sum), "sum(numbers, count, threads): sum of fp32, as fast as memory is read."},
    {NULL, NULL, 0, NULL},
};

static PyObject *build_kind_names(void) {
    int count = can_encode_bf12() ? KIND_COUNT : is_supported() ? KIND_COUNT - 1 : 0;
    PyObject *names = PyTuple_New(count);
    for (int i = 0; names && i < count; i++) {
        PyObject *name = PyUnicode_FromString(kinds[i].name);
        if (!name || PyTuple_SetItem(names, i, name)) Py_CLEAR(names);
    }
    return names;
}

static int register_fork_handler(void) { return pthread_atfork(NULL, NULL, reset_pool_after_fork); }

#else

static PyMethodDef methods[] = {{NULL, NULL, 0, NULL}};

static PyObject *build_kind_names(void) { return PyTuple_New(0); }

static int register_fork_handler(void) { return 0; }

#endif

static int fill_module(PyObject *module) {
    PyObject *names = build_kind_names();
    if (!names || register_fork_handler()) return -1;
    int failed = PyModule_AddObjectRef(module, "KINDS", names);
    Py_DECREF(names);
    return failed ? failed : PyModule_AddIntConstant(module, "VERSION", VERSION);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_processor",
    .m_doc = "Products of rows with stored matrices, and the operations between them.",
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__processor(void) { return PyModuleDef_Init(&module); }
