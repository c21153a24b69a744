/* Splits a table of separated values into columns of text.

   Each line must have one cell per column. A cell is either quoted as a whole, without quotes or line ends inside,
   or has no quote. Any other text is rejected, and the caller reads it with another reader. Empty lines at the end
   are ignored.

   Speed: lines are counted first, so that every thread writes its own rows of the columns. A cell is an Arrow view
   of 16 bytes: the text itself if it is short, else its position in the text of the column. The latest long cells
   are remembered, because most are repeated. */

#ifndef TRACETUI_SCAN_CELLS_H
#define TRACETUI_SCAN_CELLS_H

#include "columns.h"
#include <pthread.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#define INLINE_BYTES 12                    /* longest text that is stored in the view itself */
#define LATEST_BITS 7                      /* log2 of the latest long cells remembered per column */
#define MAX_COLUMN_BYTES ((size_t)1 << 30) /* of one column in one part */
#define MAX_COLUMNS 4096
#define MAX_THREADS 64
#define MIN_PART_BYTES ((size_t)1 << 20)   /* per thread */
#define LARGE_PAGE_BYTES ((size_t)1 << 21)

typedef struct {
    u32 size;
    u8 chars[4]; /* the first four; a short text continues in `part` and `begin` */
    u32 part, begin;
} View;

typedef struct {
    u8 separator;
    int quoted; /* whether each line must begin with a quote */
    size_t width;
    View **columns;
} Grid;

/* Complete lines that one thread reads; some bytes after them are readable, too. */
typedef struct {
    const Grid *grid;
    u32 number;
    const u8 *begin, *end;
    size_t row, rows; /* the first row and the number of rows */
    Bytes *chars;     /* text of the long cells, per column */
    View *latest;     /* latest long cells, per column */
    int ok;
} Part;

/* Returns the first of three characters. Tests eight bytes at a time; a borrow may mark a byte wrongly, but never the
   lowest marked one. */
static inline const u8 *find_any(const u8 *p, u8 a, u8 b, u8 c) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const u64 ones = 0x0101010101010101u, tops = 0x80 * ones;
    for (;; p += 8) {
        u64 word = word_at(p), x = word ^ a * ones, y = word ^ b * ones, z = word ^ c * ones;
        u64 hits = (((x - ones) & ~x) | ((y - ones) & ~y) | ((z - ones) & ~z)) & tops;
        if (hits) return p + (__builtin_ctzll(hits) >> 3);
    }
#else
    while (*p != a && *p != b && *p != c) p++;
    return p;
#endif
}

/* Writes the view of a short text, padded with zeros; INLINE_BYTES must be readable. */
static inline void make_inline_view(View *view, const u8 *chars, u32 size) {
    static const u8 masks[2 * INLINE_BYTES] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    u64 word, mask;
    u32 rest, rest_mask;
    memcpy(&word, chars, 8);
    memcpy(&mask, masks + INLINE_BYTES - size, 8);
    memcpy(&rest, chars + 8, 4);
    memcpy(&rest_mask, masks + INLINE_BYTES - size + 8, 4);
    word &= mask;
    view->size = size;
    memcpy(view->chars, &word, 8);
    view->begin = rest & rest_mask;
}

/* Writes the view of a long text, which is stored unless it is among the latest; returns 0 if that fails. */
static inline int make_long_view(View *view, Part *part, size_t column, const u8 *chars, size_t size) {
    Bytes *chars_of_column = part->chars + column;
    u64 hash = (word_at(chars) ^ (word_at(chars + size - 8) + size) * 0xC2B2AE3D27D4EB4Fu) * 0x9E3779B97F4A7C15u;
    View *latest = part->latest + (column << LATEST_BITS) + (hash >> (64 - LATEST_BITS));
    if (latest->size != size || memcmp(chars_of_column->data + latest->begin, chars, size)) {
        if (size > MAX_COLUMN_BYTES || chars_of_column->size > MAX_COLUMN_BYTES) return 0;
        *latest = (View){.size = (u32)size, .part = part->number, .begin = (u32)chars_of_column->size};
        memcpy(latest->chars, chars, 4);
        if (!put(chars_of_column, chars, size)) return 0;
    }
    *view = *latest;
    return 1;
}

static void *count_lines(void *argument) {
    Part *part = argument;
    for (const u8 *p = part->begin; p < part->end; part->rows++) p = (const u8 *)memchr(p, '\n', (size_t)(part->end - p)) + 1;
    return NULL;
}

static void *cut_lines(void *argument) {
    Part *part = argument;
    const Grid *grid = part->grid;
    const u8 *p = part->begin, separator = grid->separator;
    for (size_t row = part->row; p < part->end; row++) {
        if (grid->quoted && *p != '"') return NULL;
        for (size_t column = 0; column < grid->width; column++) {
            int is_quoted = *p == '"';
            const u8 *chars = p + is_quoted;
            p = is_quoted ? find_any(chars, '"', '\n', '\n') : find_any(p, separator, '\n', '"');
            size_t size = (size_t)(p - chars);
            if (is_quoted && *p++ != '"') return NULL;
            if (*p++ != (column + 1 < grid->width ? separator : '\n')) return NULL;
            View *view = grid->columns[column] + row;
            if (LIKELY(size <= INLINE_BYTES))
                make_inline_view(view, chars, (u32)size);
            else if (!make_long_view(view, part, column, chars, size))
                return NULL;
        }
    }
    part->ok = 1;
    return NULL;
}

/* Runs some work on each part in a thread of its own, and the last one here; also those whose thread cannot start. */
static void run_on_parts(Part *parts, size_t n, void *(*work)(void *)) {
    pthread_t threads[MAX_THREADS];
    size_t started = 0;
    while (started + 1 < n && !pthread_create(threads + started, NULL, work, parts + started)) started++;
    for (size_t i = started; i < n; i++) work(parts + i);
    for (size_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
}

/* Allocates memory, in large pages if the system has them: faulting in small pages costs more than writing them. */
static void *allocate_pages(size_t size) {
    if (size < LARGE_PAGE_BYTES) return malloc(size ? size : 1);
    size = (size + LARGE_PAGE_BYTES - 1) / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
    void *room = aligned_alloc(LARGE_PAGE_BYTES, size);
#ifdef MADV_HUGEPAGE
    if (room) madvise(room, size, MADV_HUGEPAGE);
#endif
    return room;
}

/* Splits the lines into at most n parts; the last lines are copied to `rest`, a part of its own followed by zeros.
   Returns the number of parts, 0 without memory. */
static size_t split_into_parts(Part *parts, size_t n, const u8 *begin, const u8 *end, Bytes *rest) {
    const u8 *last = end - begin > PADDING ? end - PADDING : begin;
    while (last > begin && last[-1] != '\n') last--;
    if (!put(rest, last, (size_t)(end - last))) return 0;
    if (end[-1] != '\n' && !put(rest, "\n", 1)) return 0;
    if (!reserve(rest, PADDING)) return 0;
    memset(rest->data + rest->size, 0, PADDING);
    size_t part_bytes = (size_t)(last - begin) / (n - 1) + 1, n_parts = 0;
    if (part_bytes < MIN_PART_BYTES) part_bytes = MIN_PART_BYTES;
    for (const u8 *p = begin; p < last; n_parts++) {
        const u8 *stop = (size_t)(last - p) > part_bytes ? memchr(p + part_bytes, '\n', (size_t)(last - p) - part_bytes) : NULL;
        parts[n_parts].begin = p;
        p = parts[n_parts].end = stop ? stop + 1 : last;
    }
    parts[n_parts].begin = rest->data;
    parts[n_parts].end = rest->data + rest->size;
    return n_parts + 1;
}

/* Splits the lines of all parts into the columns of the grid; returns 0 if one is irregular, or without memory. */
static int cut_all_lines(Grid *grid, Part *parts, size_t n, size_t size, size_t *rows) {
    run_on_parts(parts, n, count_lines);
    for (size_t i = 0; i < n; *rows += parts[i++].rows) parts[i].row = *rows;
    if (*rows > (size + 1) / grid->width) return 0; /* the text has too few separators for so many rows */
    for (size_t i = 0; i < grid->width; i++)
        if (!(grid->columns[i] = allocate_pages(*rows * sizeof(View)))) return 0;
    for (size_t i = 0; i < n; i++) {
        parts[i].grid = grid;
        parts[i].number = (u32)i;
        parts[i].chars = calloc(grid->width, sizeof(Bytes));
        parts[i].latest = calloc(grid->width << LATEST_BITS, sizeof(View));
        if (!parts[i].chars || !parts[i].latest) return 0;
    }
    run_on_parts(parts, n, cut_lines);
    for (size_t i = 0; i < n; i++)
        if (!parts[i].ok) return 0;
    return 1;
}

/* Exports a column, with its memory, as a pair of capsules. */
static PyObject *export_views(Grid *grid, size_t column, size_t rows, Part *parts, size_t n) {
    struct ArrowSchema *schema = calloc(1, sizeof *schema);
    struct ArrowArray *array = calloc(1, sizeof *array);
    i64 *sizes = malloc(n * sizeof *sizes);
    const void **buffers = calloc(n + 3, sizeof *buffers);
    int moved = schema && array && sizes && buffers;
    if (moved) {
        *schema = (struct ArrowSchema){.format = "vu", .name = "", .release = release_schema};
        *array = (struct ArrowArray){.length = (i64)rows, .n_buffers = (i64)n + 3, .buffers = buffers, .release = release_array};
        buffers[1] = grid->columns[column];
        grid->columns[column] = NULL;
        for (size_t i = 0; i < n; i++) {
            sizes[i] = (i64)parts[i].chars[column].size;
            buffers[i + 2] = take_data(parts[i].chars + column);
            moved = moved && buffers[i + 2];
        }
        buffers[n + 2] = sizes;
    } else {
        free(sizes);
        free(buffers);
    }
    return make_capsules(schema, array, moved);
}

static PyObject *export_grid(Grid *grid, size_t rows, Part *parts, size_t n) {
    PyObject *columns = PyTuple_New((Py_ssize_t)grid->width);
    for (size_t i = 0; columns && i < grid->width; i++) {
        PyObject *column = export_views(grid, i, rows, parts, n);
        if (!column || PyTuple_SetItem(columns, (Py_ssize_t)i, column)) Py_CLEAR(columns);
    }
    return columns;
}

static void free_parts(Part *parts, size_t n, size_t width) {
    for (size_t i = 0; i < n; i++) {
        for (size_t column = 0; parts[i].chars && column < width; column++) free_bytes(parts[i].chars + column);
        free(parts[i].chars);
        free(parts[i].latest);
    }
}

static PyObject *split_cells(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer text;
    Py_ssize_t width, threads;
    int separator, quoted;
    if (!PyArg_ParseTuple(args, "y*Cnpn", &text, &separator, &width, &quoted, &threads)) return NULL;
    Part parts[MAX_THREADS] = {0};
    Bytes rest = {0};
    Grid grid = {.separator = (u8)separator, .quoted = quoted, .width = (size_t)width};
    size_t n = 0, rows = 0;
    int ok = text.len > 0 && width > 0 && width <= MAX_COLUMNS;
    ok = ok && separator < 128 && separator != '"' && separator != '\n';
    Py_BEGIN_ALLOW_THREADS;
    if (ok) ok = (grid.columns = calloc(grid.width, sizeof *grid.columns)) != NULL;
    threads = threads < 1 ? 1 : threads < MAX_THREADS ? threads : MAX_THREADS - 1;
    const u8 *begin = (const u8 *)text.buf, *end = begin + text.len;
    while (end - begin > 1 && end[-1] == '\n' && end[-2] == '\n') end--;
    if (ok) ok = (n = split_into_parts(parts, (size_t)threads + 1, begin, end, &rest)) != 0;
    if (ok) ok = cut_all_lines(&grid, parts, n, (size_t)(end - begin), &rows);
    Py_END_ALLOW_THREADS;
    PyObject *columns = ok ? export_grid(&grid, rows, parts, n) : Py_NewRef(Py_None);
    free_parts(parts, n, grid.width);
    for (size_t i = 0; grid.columns && i < grid.width; i++) free(grid.columns[i]);
    free(grid.columns);
    free_bytes(&rest);
    PyBuffer_Release(&text);
    return columns;
}

#endif
