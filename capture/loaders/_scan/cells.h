/* Cuts a table of separated values into columns of text.

   Each line must have a cell for each column, and each cell is quoted whole or holds no quote: no quote and no end
   of a line stands between quotes. A text with anything else is refused, and the caller reads it in another way.
   Empty lines at its end are none.

   Speed: lines are counted first, so that every thread writes its own rows of the columns. A cell is a view of 16
   bytes: its letters where they are few, else where they stand among those of its column. The latest long cells
   are remembered, for most repeat. */

#include <pthread.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#define SHORT 12                        /* letters that stand in a view itself */
#define LATEST 7                        /* bits of the places for the latest long cells of a column */
#define MOST_LETTERS ((size_t)1 << 30)  /* of one column in one part */
#define MOST_COLUMNS 4096
#define MOST_THREADS 64
#define LEAST_PART ((size_t)1 << 20)    /* bytes for a thread of its own */
#define LARGE_PAGE ((size_t)1 << 21)

typedef struct {
    u32 size;
    u8 letters[4]; /* the first; with the numbers behind them all, where they are few */
    u32 part, begin;
} View;

typedef struct {
    u8 separator;
    int quoted; /* whether each line must begin with a quote */
    size_t width;
    View **columns;
} Grid;

/* Lines that one thread reads, as whole lines; what is behind their end can be read, too. */
typedef struct {
    const Grid *grid;
    u32 number;
    const u8 *begin, *end;
    size_t row, rows; /* its first row, and how many */
    Bytes *letters;   /* of the long cells of each column */
    View *latest;     /* of each column */
    int fits;
} Part;

/* Returns where one of three letters stands first. Eight bytes are looked at once; the lowest of those that are
   marked is marked rightly. */
static inline const u8 *first_of(const u8 *p, u8 a, u8 b, u8 c) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const u64 ones = 0x0101010101010101u, tops = 0x80 * ones;
    for (;; p += 8) {
        u64 word = word_at(p), x = word ^ a * ones, y = word ^ b * ones, z = word ^ c * ones;
        u64 found = (((x - ones) & ~x) | ((y - ones) & ~y) | ((z - ones) & ~z)) & tops;
        if (found) return p + (__builtin_ctzll(found) >> 3);
    }
#else
    while (*p != a && *p != b && *p != c) p++;
    return p;
#endif
}

/* Writes the view of few letters, with zeros behind them; SHORT bytes can be read. */
static inline void view_short(View *view, const u8 *letters, u32 size) {
    static const u8 kept[2 * SHORT] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    u64 word, mask;
    u32 rest, rest_mask;
    memcpy(&word, letters, 8);
    memcpy(&mask, kept + SHORT - size, 8);
    memcpy(&rest, letters + 8, 4);
    memcpy(&rest_mask, kept + SHORT - size + 8, 4);
    word &= mask;
    view->size = size;
    memcpy(view->letters, &word, 8);
    view->begin = rest & rest_mask;
}

/* Writes the view of many letters, which are kept where the latest ones differ; returns 0 where they cannot be. */
static inline int view_long(View *view, Part *part, size_t column, const u8 *letters, size_t size) {
    Bytes *known = part->letters + column;
    u64 hash = (word_at(letters) ^ (word_at(letters + size - 8) + size) * 0xC2B2AE3D27D4EB4Fu) * 0x9E3779B97F4A7C15u;
    View *latest = part->latest + (column << LATEST) + (hash >> (64 - LATEST));
    if (latest->size != size || memcmp(known->data + latest->begin, letters, size)) {
        if (size > MOST_LETTERS || known->size > MOST_LETTERS) return 0;
        *latest = (View){.size = (u32)size, .part = part->number, .begin = (u32)known->size};
        memcpy(latest->letters, letters, 4);
        if (!put(known, letters, size)) return 0;
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
            const u8 *letters = p + is_quoted;
            p = is_quoted ? first_of(letters, '"', '\n', '\n') : first_of(p, separator, '\n', '"');
            size_t size = (size_t)(p - letters);
            if (is_quoted && *p++ != '"') return NULL;
            if (*p++ != (column + 1 < grid->width ? separator : '\n')) return NULL;
            View *view = grid->columns[column] + row;
            if (LIKELY(size <= SHORT))
                view_short(view, letters, (u32)size);
            else if (!view_long(view, part, column, letters, size))
                return NULL;
        }
    }
    part->fits = 1;
    return NULL;
}

/* Does some work on all parts at once, the last here; where no thread can be begun, all of it. */
static void work_on(Part *parts, size_t n, void *(*work)(void *)) {
    pthread_t threads[MOST_THREADS];
    size_t begun = 0;
    while (begun + 1 < n && !pthread_create(threads + begun, NULL, work, parts + begun)) begun++;
    for (size_t i = begun; i < n; i++) work(parts + i);
    for (size_t i = 0; i < begun; i++) pthread_join(threads[i], NULL);
}

/* Returns room in large pages where the system has them: a page that is asked for costs more than what is written. */
static void *new_room(size_t size) {
    if (size < LARGE_PAGE) return malloc(size ? size : 1);
    size = (size + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    void *room = aligned_alloc(LARGE_PAGE, size);
#ifdef MADV_HUGEPAGE
    if (room) madvise(room, size, MADV_HUGEPAGE);
#endif
    return room;
}

/* Shares the lines out, the last ones as a part of their own in `rest`, with zeros behind them; returns how many
   parts there are, 0 for no memory. */
static size_t share_out(Part *parts, size_t n, const u8 *begin, const u8 *end, Bytes *rest) {
    const u8 *last = end - begin > SLACK ? end - SLACK : begin;
    while (last > begin && last[-1] != '\n') last--;
    if (!put(rest, last, (size_t)(end - last))) return 0;
    if (end[-1] != '\n' && !put(rest, "\n", 1)) return 0;
    if (!reserve(rest, SLACK)) return 0;
    memset(rest->data + rest->size, 0, SLACK);
    size_t own = (size_t)(last - begin) / (n - 1) + 1, filled = 0;
    if (own < LEAST_PART) own = LEAST_PART;
    for (const u8 *p = begin; p < last; filled++) {
        const u8 *stop = (size_t)(last - p) > own ? memchr(p + own, '\n', (size_t)(last - p) - own) : NULL;
        parts[filled].begin = p;
        p = parts[filled].end = stop ? stop + 1 : last;
    }
    parts[filled].begin = rest->data;
    parts[filled].end = rest->data + rest->size;
    return filled + 1;
}

/* Cuts the parts into columns of their own; returns 0 where they do not fit, and for no memory. */
static int cut_parts(Grid *grid, Part *parts, size_t n, size_t size, size_t *rows) {
    work_on(parts, n, count_lines);
    for (size_t i = 0; i < n; *rows += parts[i++].rows) parts[i].row = *rows;
    if (*rows > (size + 1) / grid->width) return 0; /* it has too few separators */
    for (size_t i = 0; i < grid->width; i++)
        if (!(grid->columns[i] = new_room(*rows * sizeof(View)))) return 0;
    for (size_t i = 0; i < n; i++) {
        parts[i].grid = grid;
        parts[i].number = (u32)i;
        parts[i].letters = calloc(grid->width, sizeof(Bytes));
        parts[i].latest = calloc(grid->width << LATEST, sizeof(View));
        if (!parts[i].letters || !parts[i].latest) return 0;
    }
    work_on(parts, n, cut_lines);
    for (size_t i = 0; i < n; i++)
        if (!parts[i].fits) return 0;
    return 1;
}

/* Returns the capsules of a column, whose memory they take. */
static PyObject *exported_views(Grid *grid, size_t column, size_t rows, Part *parts, size_t n) {
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
            sizes[i] = (i64)parts[i].letters[column].size;
            buffers[i + 2] = taken(parts[i].letters + column);
            moved = moved && buffers[i + 2];
        }
        buffers[n + 2] = sizes;
    } else {
        free(sizes);
        free(buffers);
    }
    return capsules(schema, array, moved);
}

static PyObject *exported_grid(Grid *grid, size_t rows, Part *parts, size_t n) {
    PyObject *columns = PyTuple_New((Py_ssize_t)grid->width);
    for (size_t i = 0; columns && i < grid->width; i++) {
        PyObject *column = exported_views(grid, i, rows, parts, n);
        if (!column || PyTuple_SetItem(columns, (Py_ssize_t)i, column)) Py_CLEAR(columns);
    }
    return columns;
}

static void discard_parts(Part *parts, size_t n, size_t width) {
    for (size_t i = 0; i < n; i++) {
        for (size_t column = 0; parts[i].letters && column < width; column++) discard(parts[i].letters + column);
        free(parts[i].letters);
        free(parts[i].latest);
    }
}

static PyObject *cells(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer text;
    Py_ssize_t width, threads;
    int separator, quoted;
    if (!PyArg_ParseTuple(args, "y*Cnpn", &text, &separator, &width, &quoted, &threads)) return NULL;
    Part parts[MOST_THREADS] = {0};
    Bytes rest = {0};
    Grid grid = {.separator = (u8)separator, .quoted = quoted, .width = (size_t)width};
    size_t n = 0, rows = 0;
    int fits = text.len > 0 && width > 0 && width <= MOST_COLUMNS;
    fits = fits && separator < 128 && separator != '"' && separator != '\n';
    Py_BEGIN_ALLOW_THREADS;
    if (fits) fits = (grid.columns = calloc(grid.width, sizeof *grid.columns)) != NULL;
    threads = threads < 1 ? 1 : threads < MOST_THREADS ? threads : MOST_THREADS - 1;
    const u8 *begin = (const u8 *)text.buf, *end = begin + text.len;
    while (end - begin > 1 && end[-1] == '\n' && end[-2] == '\n') end--;
    if (fits) fits = (n = share_out(parts, (size_t)threads + 1, begin, end, &rest)) != 0;
    if (fits) fits = cut_parts(&grid, parts, n, (size_t)(end - begin), &rows);
    Py_END_ALLOW_THREADS;
    PyObject *columns = fits ? exported_grid(&grid, rows, parts, n) : Py_NewRef(Py_None);
    discard_parts(parts, n, grid.width);
    for (size_t i = 0; grid.columns && i < grid.width; i++) free(grid.columns[i]);
    free(grid.columns);
    discard(&rest);
    PyBuffer_Release(&text);
    return columns;
}
