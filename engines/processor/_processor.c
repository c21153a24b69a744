/* Multiplies rows with stored matrices on an x86 processor with AVX-512, VNNI and bf16, on several threads.

   Addresses come from the caller, who answers for them: weights [n, k] row after row, rows [m, k], products [m, n] in
   fp32, all contiguous and alive until the call returns. Nothing is kept of them. Where the processor lacks what this
   needs, or is another one altogether, KINDS is empty and the caller computes in another way. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

/* Counts up with every change of what a caller sees; `__init__.py` names the one that it knows. */
#define VERSION 1

#if defined(__x86_64__)

#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>

#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,f16c,fma")))
#define INLINE static inline __attribute__((always_inline)) WIDE
#define ROWS_AT_ONCE 4 /* that share what was read of the weights */
#define AHEAD 4096     /* bytes: far enough for the memory, and beyond the page at which a processor stops by itself */
#define PIECE 32768    /* bytes of weights: some microseconds */
#define LARGEST (1 << 26)

typedef struct Product {
    const void *weights, *scales, *x;
    float *out;
    char *room; /* the rows in eight bits */
    int n, k, m, rows_a_piece;
    void (*multiply)(const struct Product *, int first, int end);
} Product;

INLINE void fetch_ahead(const void *at, int size) {
    for (int i = 0; i < size; i += 64) _mm_prefetch((const char *)at + AHEAD + i, _MM_HINT_T0);
}

#include "_pool.h"

#include "_low_bit.h"

#include "_half.h"

/* ---- a product ---- */

typedef struct {
    const char *name;
    int bits;
    int rounds; /* rows are rounded to eight bits, and k is whole groups */
    void (*multiply)(const Product *, int first, int end);
} Kind;

static const Kind kinds[] = {
    {"four", 4, 1, multiply_four},
    {"eight", 8, 1, multiply_eight},
    {"bf16", 16, 0, multiply_bf16},
    {"fp16", 16, 0, multiply_fp16},
};
#define KINDS ((int)(sizeof kinds / sizeof *kinds))

static Product current; /* guarded by job_lock */
static size_t room_size;

static void multiply_piece(int number) {
    int first = number * current.rows_a_piece, end = first + current.rows_a_piece;
    current.multiply(&current, first, end < current.n ? end : current.n);
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
static int multiply(const Kind *kind, const void *weights, const void *scales, const void *x, float *out, int n, int k,
                    int m, int threads) {
    int many = PIECE / (int)((int64_t)k * kind->bits / 8 + 1) / 16 * 16;
    pthread_mutex_lock(&job_lock);
    int able = !kind->rounds || make_room(rounded_size(k) * (size_t)m);
    if (able) {
        int a_piece = many > 16 ? many : 16; /* whole lines of `out`: no two threads write to one */
        current = (Product){weights, scales, x, out, current.room, n, k, m, a_piece, kind->multiply};
        for (int r = 0; kind->rounds && r < m; r++)
            round_row((const float *)x + (size_t)r * (size_t)k, k, kind->bits == 4, rounded_at(current.room, k, r));
        run(multiply_piece, (n + a_piece - 1) / a_piece, threads);
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

static PyObject *py_multiply(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (count != 9) return PyErr_Format(PyExc_TypeError, "multiply takes 9 numbers, not %zd", count);
    void *at[4];
    long number[5]; /* kind, n, k, m, threads */
    number[0] = PyLong_AsLong(args[0]);
    for (int i = 0; i < 4; i++) at[i] = PyLong_AsVoidPtr(args[1 + i]);
    for (int i = 1; i < 5; i++) number[i] = PyLong_AsLong(args[4 + i]);
    if (PyErr_Occurred()) return NULL;
    if (number[0] < 0 || number[0] >= KINDS || !is_able()) return PyErr_Format(PyExc_ValueError, "no such kind");
    const Kind *kind = &kinds[number[0]];
    for (int i = 1; i < 5; i++)
        if (number[i] < 1 || number[i] > LARGEST) return PyErr_Format(PyExc_ValueError, "sizes are 1 to %d", LARGEST);
    if (kind->rounds && number[2] % GROUP) return PyErr_Format(PyExc_ValueError, "rows are no whole groups");
    int able;
    Py_BEGIN_ALLOW_THREADS
    able = multiply(kind, at[0], at[1], at[2], at[3], (int)number[1], (int)number[2], (int)number[3], (int)number[4]);
    Py_END_ALLOW_THREADS
    if (!able) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"multiply", (PyCFunction)(void (*)(void))py_multiply, METH_FASTCALL,
     "multiply(kind, weights, scales, rows, products, n, k, m, threads): addresses and sizes; kind is a place in KINDS."},
    {NULL, NULL, 0, NULL},
};

static PyObject *names_of_kinds(void) {
    int count = is_able() ? KINDS : 0;
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
    .m_doc = "Multiplies rows with stored matrices.",
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__processor(void) { return PyModuleDef_Init(&module); }
