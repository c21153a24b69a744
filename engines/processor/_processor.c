/* Multiplies rows with stored matrices on an x86 processor with AVX-512, VNNI and bf16, on several threads, and does
   what lies between products: norms, gates, the attention of one position.

   Addresses come from the caller, who answers for them: weights [n, k] row after row, rows [m, k], products [m, n] in
   fp32, all contiguous and alive until the call returns, and the weights until they are forgotten. Where the processor
   lacks what this needs, or is another one altogether, KINDS is empty and the caller computes in another way. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

/* Counts up with every change of what a caller sees; `__init__.py` names the one that it knows. */
#define VERSION 5

#if defined(__x86_64__)

#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>

#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,f16c,fma")))
#define INLINE static inline __attribute__((always_inline)) WIDE
#define ROWS_AT_ONCE 4 /* that share what was read of the weights */
#define AHEAD 6144     /* bytes: far enough for the memory, and beyond the page at which a processor stops by itself */
#define PIECE 65536    /* bytes of weights: some microseconds */
#define MOST_PIECES 64 /* of the keys of one head */
#define LARGEST (1 << 26)

typedef struct Product {
    const void *weights, *scales, *x;
    float *out;
    const float *bias; /* NULL: none */
    char *room; /* the rows in eight bits */
    char *panels; /* of each thread, where there are many rows */
    int n, k, m, rows_a_piece;
    void (*multiply)(const struct Product *, int first, int end, int thread);
} Product;

/* Into the second cache: what is asked for the first one waits for one of its few places, and the loads behind it. */
INLINE void fetch_ahead(const void *at, int size) {
    for (int i = 0; i < size; i += 64) _mm_prefetch((const char *)at + AHEAD + i, _MM_HINT_T1);
}

#include "_pool.h"

#include "_rows.h"

#include "_low_bit.h"

#include "_many_rows.h"

#include "_half.h"

#include "_twelve.h"

#include "_reading.h"

/* ---- a product ---- */

typedef struct {
    const char *name;
    int bits;
    int rounds; /* rows are rounded to eight bits, and k is whole groups */
    void (*multiply)(const Product *, int first, int end, int thread);
} Kind;

static const Kind kinds[] = {
    {"four", 4, 1, multiply_four},
    {"eight", 8, 1, multiply_eight},
    {"bf16", 16, 0, multiply_bf16},
    {"fp16", 16, 0, multiply_fp16},
    {"twelve", 12, 0, multiply_twelve}, /* the last: a processor may lack what shortens numbers */
};
#define KINDS ((int)(sizeof kinds / sizeof *kinds))

static Product current; /* guarded by job_lock */
static size_t room_size;

static void multiply_piece(int number, int thread) {
    int first = number * current.rows_a_piece, end = first + current.rows_a_piece;
    if (end > current.n) end = current.n;
    current.multiply(&current, first, end, thread);
    for (int r = 0; current.bias && r < current.m; r++)
        for (int i = first; i < end; i++) current.out[(size_t)r * (size_t)current.n + (size_t)i] += current.bias[i];
}

static void round_piece(int number, int thread) {
    (void)thread;
    Rounded to = rounded_at(current.room, current.k, number);
    int four = current.multiply == multiply_four;
    round_row((const float *)current.x + (size_t)number * (size_t)current.k, current.k, four, to);
    if (current.panels) add_totals(current.k, four, to);
}

/* Return whether there is room for the rounded rows of a product. */
static int make_room(size_t size) {
    if (size <= room_size) return 1;
    size = (size + 63) / 64 * 64;
    free(current.room);
    room_size = 0;
    current.room = aligned_alloc(64, size);
    if (current.room) room_size = size;
    return current.room != NULL;
}

/* Return whether the product was made; there may be no memory for it. */
static int multiply(const Kind *kind, const void *weights, const void *scales, const void *x, float *out,
                    const float *bias, int n, int k, int m, int threads) {
    int a_piece = PIECE / (int)((int64_t)k * kind->bits / 8 + 1) / 16 * 16;
    if (a_piece < 16) a_piece = 16; /* whole lines of `out`: no two threads write to one */
    pthread_mutex_lock(&job_lock);
    int turned = kind->rounds && m >= MANY;
    size_t rounded = kind->rounds ? rounded_size(k) * (size_t)m : 0;
    int able = make_room(rounded + (turned ? panel_size(k) * (size_t)most_threads(threads) : 0));
    if (able) {
        char *panels = turned ? current.room + rounded : NULL;
        int pieces = (n + a_piece - 1) / a_piece, each = (pieces + threads - 1) / threads;
        current = (Product){weights, scales, x, out, bias, current.room, panels, n, k, m, a_piece, kind->multiply};
        if (kind->rounds) run(round_piece, m, turned ? threads : 1);
        size_t row = (size_t)k * (size_t)kind->bits / 8;
        expect_next((Matrix){weights, row * (size_t)n, row * (size_t)(each * a_piece)});
        run(multiply_piece, pieces, threads);
    }
    pthread_mutex_unlock(&job_lock);
    return able;
}

/* ---- attention ---- */

static Attention looking; /* guarded by job_lock */

static void look_at_piece(int number, int thread) {
    (void)thread;
    attend_piece(&looking, (size_t)number);
}

/* Return whether the attention was computed; there may be no memory for it. */
static int attend(Attention a, int threads) {
    size_t pairs = a.batch * a.heads;
    a.pieces = (a.count + KEYS_A_PIECE - 1) / KEYS_A_PIECE;
    if (a.pieces > MOST_PIECES) a.pieces = MOST_PIECES;
    pthread_mutex_lock(&job_lock);
    int able = make_room(pairs * a.pieces * a.shared * (a.dim + 2) * sizeof(float));
    if (able) {
        looking = a;
        looking.parts = (float *)(void *)current.room;
        run(look_at_piece, (int)(pairs * a.pieces), threads);
        join_pieces(&looking);
    }
    pthread_mutex_unlock(&job_lock);
    return able;
}

/* ---- reading ---- */

/* Add up numbers that lie one behind the other; return whether there was memory for it. */
static int add_up(const float *numbers, size_t count, int threads, double *sum) {
    size_t a_piece = PIECE / sizeof(float), pieces = (count + a_piece - 1) / a_piece;
    pthread_mutex_lock(&job_lock);
    int able = make_room(pieces * sizeof(double));
    if (able) {
        reading = (Reading){numbers, count, (double *)(void *)current.room};
        run(read_piece, (int)pieces, threads);
        *sum = 0;
        for (size_t i = 0; i < pieces; i++) *sum += reading.sums[i];
    }
    pthread_mutex_unlock(&job_lock);
    return able;
}

/* ---- what Python sees ---- */

static int is_able(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
}

static int can_shorten(void) { return is_able() && __builtin_cpu_supports("avx512vbmi"); }

#define MOST_NUMBERS 13

/* Read whole numbers, addresses first, then sizes from 1 on, then others; return whether they are so. */
static int read_numbers(PyObject *const *args, Py_ssize_t count, int addresses, int sizes, int others, long long *to) {
    int wanted = addresses + sizes + others;
    if (count != wanted) {
        PyErr_Format(PyExc_TypeError, "it takes %d numbers, not %zd", wanted, count);
        return 0;
    }
    if (!is_able()) {
        PyErr_SetString(PyExc_ValueError, "not on this processor");
        return 0;
    }
    for (int i = 0; i < wanted; i++) {
        to[i] = PyLong_AsLongLong(args[i]);
        if (to[i] == -1 && PyErr_Occurred()) return 0;
        if (i >= addresses && i < addresses + sizes && (to[i] < 1 || to[i] > LARGEST)) {
            PyErr_Format(PyExc_ValueError, "sizes are 1 to %d", LARGEST);
            return 0;
        }
    }
    return 1;
}

static void *address(long long number) { return (void *)(uintptr_t)number; }

/* Return whether rows of k numbers are blocks and half ones, on a processor that can shorten them. */
static int are_halves(long long k) {
    if (can_shorten() && k % HALF == 0) return 1;
    PyErr_SetString(PyExc_ValueError, can_shorten() ? "rows are no blocks" : "not on this processor");
    return 0;
}

static PyObject *py_multiply(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MOST_NUMBERS]; /* weights, scales, rows, products, bias, n, k, m, threads, kind */
    if (!read_numbers(args, count, 5, 4, 1, n)) return NULL;
    if (n[9] < 0 || n[9] >= KINDS) return PyErr_Format(PyExc_ValueError, "no such kind");
    const Kind *kind = &kinds[n[9]];
    if (kind->rounds && n[6] % GROUP) return PyErr_Format(PyExc_ValueError, "rows are no whole groups");
    if (kind->bits == 12 && !are_halves(n[6])) return NULL;
    int able;
    Py_BEGIN_ALLOW_THREADS
    able = multiply(kind, address(n[0]), address(n[1]), address(n[2]), address(n[3]), address(n[4]), (int)n[5], (int)n[6],
                    (int)n[7], (int)n[8]);
    Py_END_ALLOW_THREADS
    if (!able) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_forget(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MOST_NUMBERS]; /* weights */
    if (!read_numbers(args, count, 1, 0, 0, n)) return NULL;
    pthread_mutex_lock(&job_lock);
    forget_weights(address(n[0]));
    pthread_mutex_unlock(&job_lock);
    Py_RETURN_NONE;
}

static PyObject *py_norm(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MOST_NUMBERS]; /* rows, weights, normed, n, m, stride of the weights, whether bf16 */
    double eps = count ? PyFloat_AsDouble(args[count - 1]) : 0;
    if (PyErr_Occurred() || !read_numbers(args, count - 1, 3, 2, 2, n)) return NULL;
    norm_rows(address(n[0]), address(n[1]), address(n[2]), (size_t)n[3], (size_t)n[4], (size_t)n[5], (float)eps, n[6] != 0);
    Py_RETURN_NONE;
}

static PyObject *py_gate(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MOST_NUMBERS]; /* gates and ups, products, n, m, whether gelu, whether bf16 */
    if (!read_numbers(args, count, 2, 2, 2, n)) return NULL;
    gate_rows(address(n[0]), address(n[1]), (size_t)n[2], (size_t)n[3], n[4] != 0, n[5] != 0);
    Py_RETURN_NONE;
}

static PyObject *py_attend(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MOST_NUMBERS]; /* q, keys, values, out, batch, heads, shared, count, dim, threads, steps, bf16 */
    double scale = count ? PyFloat_AsDouble(args[count - 1]) : 0;
    if (PyErr_Occurred() || !read_numbers(args, count - 1, 4, 6, 3, n)) return NULL;
    if (n[8] % 16) return PyErr_Format(PyExc_ValueError, "heads are no whole vectors");
    Attention a = {
        .q = address(n[0]), .keys = address(n[1]), .values = address(n[2]), .out = address(n[3]),
        .batch = (size_t)n[4], .heads = (size_t)n[5], .shared = (size_t)n[6], .count = (size_t)n[7],
        .dim = (size_t)n[8], .batch_step = (size_t)n[10], .head_step = (size_t)n[11], .brain = n[12] != 0, .scale = (float)scale,
    };
    int able;
    Py_BEGIN_ALLOW_THREADS
    able = attend(a, (int)n[9]);
    Py_END_ALLOW_THREADS
    if (!able) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_sum(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MOST_NUMBERS]; /* numbers, count, threads */
    if (!read_numbers(args, count, 1, 2, 0, n)) return NULL;
    double sum = 0;
    int able;
    Py_BEGIN_ALLOW_THREADS
    able = add_up(address(n[0]), (size_t)n[1], (int)n[2], &sum);
    Py_END_ALLOW_THREADS
    return able ? PyFloat_FromDouble(sum) : PyErr_NoMemory();
}

static PyObject *py_shorten(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MOST_NUMBERS]; /* words, codes, blocks, counts, what is beside, n, k, threads */
    if (!read_numbers(args, count, 5, 3, 0, n) || !are_halves(n[6])) return NULL;
    Shortening what = {
        .words = address(n[0]), .codes = address(n[1]), .blocks = address(n[2]), .counts = address(n[3]),
        .beside = address(n[4]), .n = (int)n[5], .k = (int)n[6],
    };
    Py_BEGIN_ALLOW_THREADS
    shorten(what, (int)n[7]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_lengthen(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    long long n[MOST_NUMBERS]; /* blocks, what is beside, numbers of rows, words, n, k, rows, threads */
    if (!read_numbers(args, count, 4, 4, 0, n) || !are_halves(n[5])) return NULL;
    Lengthening what = {
        .blocks = address(n[0]), .beside = address(n[1]), .rows = address(n[2]), .words = address(n[3]),
        .n = (int)n[4], .k = (int)n[5], .count = (int)n[6],
    };
    for (int i = 0; i < what.count; i++)
        if (what.rows[i] < 0 || what.rows[i] >= what.n) return PyErr_Format(PyExc_IndexError, "no such row");
    Py_BEGIN_ALLOW_THREADS
    lengthen(what, (int)n[7]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
#define METHOD(name) #name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL
    {METHOD(multiply), "multiply(weights, scales, rows, products, bias or 0, n, k, m, threads, kind): kind is a place in KINDS."},
    {METHOD(forget), "forget(weights): they are about to go, and not read ahead any more."},
    {METHOD(shorten), "shorten(words, codes, blocks, counts, 0, n, k, threads): bf16 to twelve bits; with what is beside, its lists."},
    {METHOD(lengthen), "lengthen(blocks, beside, numbers of rows, words, n, k, rows, threads): rows of bf16 as they were."},
    {METHOD(norm), "norm(rows, weights, normed, n, m, stride, bf16, eps): rows normed by their root mean square."},
    {METHOD(gate), "gate(gates and ups, products, n, m, gelu, bf16): act(gate) times up."},
    {METHOD(attend), "attend(q, keys, values, out, batch, heads, shared, count, dim, threads, step, step, bf16, scale)."},
    {METHOD(sum), "sum(numbers, count, threads): of fp32, as fast as memory is read."},
    {NULL, NULL, 0, NULL},
};

static PyObject *names_of_kinds(void) {
    int count = can_shorten() ? KINDS : is_able() ? KINDS - 1 : 0;
    PyObject *names = PyTuple_New(count);
    for (int i = 0; names && i < count; i++) {
        PyObject *name = PyUnicode_FromString(kinds[i].name);
        if (!name || PyTuple_SetItem(names, i, name)) Py_CLEAR(names);
    }
    return names;
}

static int prepare(void) { return pthread_atfork(NULL, NULL, forget_helpers); }

#else

static PyMethodDef methods[] = {{NULL, NULL, 0, NULL}};

static PyObject *names_of_kinds(void) { return PyTuple_New(0); }

static int prepare(void) { return 0; }

#endif

static int fill_module(PyObject *module) {
    PyObject *names = names_of_kinds();
    if (!names || prepare()) return -1;
    int failed = PyModule_AddObjectRef(module, "KINDS", names);
    Py_DECREF(names);
    return failed ? failed : PyModule_AddIntConstant(module, "VERSION", VERSION);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_processor",
    .m_doc = "Multiplies rows with stored matrices, and does what lies between.",
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__processor(void) { return PyModuleDef_Init(&module); }
