/* Parts of every scanner: byte buffers, columns exported by the Arrow C data interface, tables of distinct texts,
   whole numbers. */

#ifndef TRACETUI_SCAN_COLUMNS_H
#define TRACETUI_SCAN_COLUMNS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PADDING 64   /* zeros after the bytes, more than any load reads at once */
#define MAX_PROBES 512 /* slots tried in a table before it is taken for an attack on the hash */
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;

#define NO_MEMORY "out of memory"

/* ---- text and columns ---- */

typedef struct {
    const u8 *at;
    size_t size;
} Text;

typedef struct {
    u8 *data;
    size_t size, room;
} Bytes;

static int reserve(Bytes *b, size_t more) {
    if (LIKELY(b->room - b->size >= more)) return 1;
    if (more > SIZE_MAX / 4 - b->size) return 0;
    size_t room = b->room ? b->room : 256;
    while (room - b->size < more) room *= 2;
    u8 *data = realloc(b->data, room);
    if (!data) return 0;
    b->data = data;
    b->room = room;
    return 1;
}

static int put(Bytes *b, const void *data, size_t size) {
    if (!reserve(b, size)) return 0;
    if (size) memcpy(b->data + b->size, data, size);
    b->size += size;
    return 1;
}

static void free_bytes(Bytes *b) {
    free(b->data);
    *b = (Bytes){0};
}

typedef enum { U32, I64, TEXT } Kind;

typedef struct {
    Kind kind;
    i64 rows, nulls;
    Bytes valid;  /* a bit per row */
    Bytes values; /* of texts: the end of each in `chars` */
    Bytes chars;  /* of texts */
} Column;

static int add_validity(Column *c, int valid) {
    if (!(c->rows & 7)) {
        u8 none = 0;
        if (!put(&c->valid, &none, 1)) return 0;
    }
    if (valid)
        c->valid.data[c->rows >> 3] |= (u8)(1u << (c->rows & 7));
    else
        c->nulls++;
    c->rows++;
    return 1;
}

static int add_u32(Column *c, u32 value, int valid) {
    return add_validity(c, valid) && put(&c->values, &value, sizeof value);
}

static int add_i64(Column *c, i64 value, int valid) {
    return add_validity(c, valid) && put(&c->values, &value, sizeof value);
}

static int add_text(Column *c, Text text, int valid) {
    i64 end = 0;
    if (!c->rows && !put(&c->values, &end, sizeof end)) return 0;
    if (!add_validity(c, valid) || (valid && !put(&c->chars, text.at, text.size))) return 0;
    end = (i64)c->chars.size;
    return put(&c->values, &end, sizeof end);
}

static Text get_text(const Column *c, u32 row) {
    const i64 *ends = (const i64 *)(const void *)c->values.data;
    size_t size = (size_t)(ends[row + 1] - ends[row]);
    return size ? (Text){c->chars.data + ends[row], size} : (Text){0};
}

static int is_valid(const Column *c, u32 row) { return c->valid.data[row >> 3] >> (row & 7) & 1; }

static void clear_column(Column *c) {
    free_bytes(&c->valid);
    free_bytes(&c->values);
    free_bytes(&c->chars);
    c->rows = c->nulls = 0;
}

/* ---- tables of distinct texts ---- */

typedef struct {
    u64 hash;
    u32 code; /* row + 1; 0 if the slot is empty */
} Slot;

typedef struct {
    Slot *slots;
    size_t mask, used;
} Table;

static inline u64 word_at(const u8 *p) {
    u64 word;
    memcpy(&word, p, 8);
    return word;
}

/* Returns a hash of a text, computed in two independent lanes. */
static u64 hash_text(u64 hash, const u8 *p, size_t n) {
    const u64 k = 0x9E3779B97F4A7C15u, l = 0xC2B2AE3D27D4EB4Fu;
    u64 other = hash ^ l, word = 0;
    hash = (hash ^ n) * k;
    for (; n >= 16; n -= 16, p += 16) {
        hash = (hash ^ word_at(p)) * k;
        other = (other ^ word_at(p + 8)) * l;
        hash ^= hash >> 31;
        other ^= other >> 29;
    }
    if (n >= 8) {
        hash = (hash ^ word_at(p)) * k;
        hash ^= hash >> 31;
        n -= 8;
        p += 8;
    }
    if (n) memcpy(&word, p, n);
    other = (other ^ word) * l;
    hash = (hash ^ other ^ other >> 32) * k;
    return hash ^ hash >> 32;
}

static int grow_table(Table *t) {
    size_t size = t->slots ? (t->mask + 1) * 2 : 1024;
    Slot *slots = calloc(size, sizeof *slots);
    if (!slots) return 0;
    for (size_t i = 0; t->slots && i <= t->mask; i++) {
        if (!t->slots[i].code) continue;
        size_t at = t->slots[i].hash & (size - 1);
        while (slots[at].code) at = (at + 1) & (size - 1);
        slots[at] = t->slots[i];
    }
    free(t->slots);
    t->slots = slots;
    t->mask = size - 1;
    return 1;
}

/* Finds or adds a text; returns NULL, or the reason for a failure. */
static const char *find_or_add_text(Table *words, Column *texts, u64 seed, Text text, u32 *row) {
    u64 hash = hash_text(seed, text.at, text.size);
    if (UNLIKELY(words->used * 2 >= words->mask) && !grow_table(words)) return NO_MEMORY;
    size_t at = hash & words->mask;
    for (int probes = 0; words->slots[at].code; at = (at + 1) & words->mask) {
        Slot place = words->slots[at];
        Text saved = get_text(texts, place.code - 1);
        if (place.hash == hash && saved.size == text.size && (!text.size || !memcmp(saved.at, text.at, text.size))) {
            *row = place.code - 1;
            return NULL;
        }
        if (++probes > MAX_PROBES) return "too many texts with equal hashes";
    }
    if (words->used > UINT32_MAX / 2) return "too many texts";
    *row = (u32)words->used++;
    words->slots[at] = (Slot){hash, *row + 1};
    return add_text(texts, text, 1) ? NULL : NO_MEMORY;
}

/* ---- input in pieces ---- */

/* Drops the consumed bytes of a buffer, which advances `base`, and appends new ones. Returns 0 without memory. */
static int append_bytes(Bytes *b, size_t *consumed, i64 *base, const void *data, size_t size) {
    if (*consumed) {
        memmove(b->data, b->data + *consumed, b->size - *consumed);
        b->size -= *consumed;
        *base += (i64)*consumed;
        *consumed = 0;
    }
    if (!reserve(b, size + PADDING) || !put(b, data, size)) return 0;
    memset(b->data + b->size, 0, PADDING);
    return 1;
}

/* ---- numbers and UTF-8 ---- */

/* Appends the digits at p to `value`, modulo 2**64; returns the first byte that is not a digit. */
static inline const u8 *read_digits(const u8 *p, u64 *value) {
    u64 n = *value;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    static const u64 tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
    const u64 ones = 0x0101010101010101u;
    for (;;) {
        u64 word, other;
        memcpy(&word, p, 8);
        word ^= '0' * ones;
        other = ((word & 0x7F * ones) + 0x76 * ones) | word; /* the top bit of a byte is set if it is not a digit */
        other &= 0x80 * ones;
        int n_digits = other ? __builtin_ctzll(other) >> 3 : 8;
        if (!n_digits) break;
        word <<= 64 - 8 * n_digits; /* leading zeros */
        word = word * 10 + (word >> 8);
        word = ((word & 0x000000FF000000FFu) * 0x000F424000000064u + ((word >> 16) & 0x000000FF000000FFu) * 0x0000271000000001u) >> 32;
        n = n * (n_digits == 8 ? 100000000 : tens[n_digits]) + (u32)word;
        p += n_digits;
        if (n_digits < 8) break;
    }
#else
    for (; (u8)(*p - '0') <= 9; p++) n = n * 10 + (u64)(*p - '0');
#endif
    *value = n;
    return p;
}

/* Skips a UTF-8 character of several bytes; returns NULL if it is invalid, at `error_at`. */
static const u8 *skip_utf8(const u8 *p, const u8 **error_at) {
    u8 c = *p, low = 0x80, high = 0xBF;
    int more = c >= 0xC2 && c <= 0xDF ? 1 : (c & 0xF0) == 0xE0 ? 2 : c >= 0xF0 && c <= 0xF4 ? 3 : 0;
    *error_at = p;
    if (!more) return NULL;
    if (c == 0xE0) low = 0xA0;
    if (c == 0xED) high = 0x9F;
    if (c == 0xF0) low = 0x90;
    if (c == 0xF4) high = 0x8F;
    for (int i = 1; i <= more; i++, low = 0x80, high = 0xBF) {
        *error_at = p + i;
        if (p[i] < low || p[i] > high) return NULL;
    }
    return p + more + 1;
}

/* ---- Arrow ---- */

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

static void release_schema(struct ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i]->release) schema->children[i]->release(schema->children[i]);
        free(schema->children[i]);
    }
    free(schema->children);
    schema->release = NULL;
}

static void release_array(struct ArrowArray *array) {
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release) array->children[i]->release(array->children[i]);
        free(array->children[i]);
    }
    for (int64_t i = 0; i < array->n_buffers; i++) free((void *)array->buffers[i]);
    free(array->children);
    free(array->buffers);
    array->release = NULL;
}

static void free_schema(PyObject *capsule) {
    struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
    if (schema && schema->release) schema->release(schema);
    free(schema);
}

static void free_array(PyObject *capsule) {
    struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (array && array->release) array->release(array);
    free(array);
}

static void *take_data(Bytes *b) {
    void *data = b->data ? b->data : calloc(1, 8);
    *b = (Bytes){0};
    return data;
}

/* Moves a column into an array; returns 0 without memory. */
static int move_column(struct ArrowArray *array, struct ArrowSchema *schema, Column *c, const char *name) {
    static const char *const formats[] = {[U32] = "I", [I64] = "l", [TEXT] = "U"};
    array->buffers = calloc(3, sizeof *array->buffers);
    if (!array->buffers) return 0;
    array->length = c->rows;
    array->null_count = c->nulls;
    array->n_buffers = c->kind == TEXT ? 3 : 2;
    array->release = release_array;
    array->buffers[0] = take_data(&c->valid);
    array->buffers[1] = take_data(&c->values);
    if (c->kind == TEXT) array->buffers[2] = take_data(&c->chars);
    c->rows = c->nulls = 0;
    *schema = (struct ArrowSchema){.format = formats[c->kind], .name = name, .flags = 2, .release = release_schema};
    return array->buffers[0] && array->buffers[1] && (c->kind != TEXT || array->buffers[2]);
}

/* Moves columns of equal height into a table; returns 0 without memory, and then the caller releases the parts. */
static int move_table(struct ArrowArray *array, struct ArrowSchema *schema, Column **columns, const char *const *names, int n) {
    *schema = (struct ArrowSchema){.format = "+s", .name = "", .release = release_schema};
    *array = (struct ArrowArray){.length = columns[0]->rows, .n_buffers = 1, .release = release_array};
    array->buffers = calloc(1, sizeof *array->buffers);
    if (!array->buffers) array->n_buffers = 0;
    array->children = calloc((size_t)n, sizeof *array->children);
    schema->children = calloc((size_t)n, sizeof *schema->children);
    if (!array->buffers || !array->children || !schema->children) return 0;
    for (int i = 0; i < n; i++) {
        struct ArrowSchema *type = calloc(1, sizeof *type);
        struct ArrowArray *child = calloc(1, sizeof *child);
        if (!type || !child) {
            free(type);
            free(child);
            return 0;
        }
        schema->children[schema->n_children++] = type;
        array->children[array->n_children++] = child;
        if (!move_column(child, type, columns[i], names[i])) return 0;
    }
    return 1;
}

/* Returns an array and its schema as a pair of capsules; frees both if `moved` is 0 or a capsule cannot be made. */
static PyObject *make_capsules(struct ArrowSchema *schema, struct ArrowArray *array, int moved) {
    PyObject *types = NULL, *data = NULL, *pair = NULL;
    if (moved) types = PyCapsule_New(schema, "arrow_schema", free_schema);
    if (types) data = PyCapsule_New(array, "arrow_array", free_array);
    if (data) pair = PyTuple_Pack(2, types, data);
    if (!types && schema) {
        if (schema->release) schema->release(schema);
        free(schema);
    }
    if (!data && array) {
        if (array->release) array->release(array);
        free(array);
    }
    Py_XDECREF(types);
    Py_XDECREF(data);
    return pair || PyErr_Occurred() ? pair : PyErr_NoMemory();
}

/* Exports columns as one table: a pair of capsules. */
static PyObject *export_table(Column **columns, const char *const *names, int n) {
    struct ArrowSchema *schema = calloc(1, sizeof *schema);
    struct ArrowArray *array = calloc(1, sizeof *array);
    return make_capsules(schema, array, schema && array && move_table(array, schema, columns, names, n));
}

#endif
