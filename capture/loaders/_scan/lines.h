/* Splits the lines of a recording by metallic: a time, an envelope, an event.

     {"timestamp":"2025-12-23T10:15:30.104Z","span_id":null,…,"event":{"type":…,"data":{…,"duration_us":7}}}

   Each line gives a row: its time in nanoseconds since 1970, the number after "duration_us", and the texts around
   them, which are stored once per distinct text. The caller parses the texts, because few are distinct. A line of
   another layout gives a row of nulls. */

#ifndef TRACETUI_SCAN_LINES_H
#define TRACETUI_SCAN_LINES_H

#include "shapes.h"
enum { STAMP, MICROSECONDS };

#define FRONT "{\"timestamp\":\""
#define EVENT_KEY "\"event\":{"
#define US_KEY "\"duration_us\":"
#define DATA_KEY "\"data\":"
#define SIZE(word) (sizeof(word) - 1)
#define MAX_LINE_BYTES ((size_t)1 << 30)
#define MANY_BYTES ((size_t)1 << 24)
#define MAX_US (((i64)1 << 62) / 1000)

typedef struct {
    u32 envelope, event, data; /* rows of the texts */
    i64 stamp, us;
    u8 has_stamp, has_us, has_data; /* without a time, the caller parses the line */
} Line;

typedef struct {
    /* clang-format off */
    PyObject_HEAD
    Bytes buffer;      /* input that is not read completely */
    size_t consumed;   /* bytes of the buffer that are read */
    i64 begin;         /* offset of the first byte in the input */
    i64 base, stop;    /* offset of the buffer; lines that begin at `stop` or later are not read */
    int busy;
    size_t searched;   /* unread bytes that contain no line end */
    const char *reason;
    u64 seed;
    int has_second;    /* whether the last time was valid; then: */
    u8 second[19];     /* its text up to the second … */
    i64 since;         /* … and the same in nanoseconds since 1970 */
    Shapes shapes;
    Line *line_by_shape; /* NULL before the first shape */
    Column envelope, event, data, stamp, us, texts;
    Table words;
    Bytes scratch;
    /* clang-format on */
} Lines;

static inline int parse_two_digits(const u8 *p) { return (p[0] - '0') * 10 + (p[1] - '0'); }

/* Parses a time up to its second; returns 0 if it is invalid. */
static int parse_second(const u8 *p, i64 *since) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    static const char form[] = "0000-00-00T00:00:00";
    for (size_t i = 0; i < SIZE(form); i++)
        if (form[i] == '0' ? (u8)(p[i] - '0') > 9 : p[i] != (u8)form[i]) return 0;
    i64 year = parse_two_digits(p) * 100 + parse_two_digits(p + 2);
    i64 month = parse_two_digits(p + 5), day = parse_two_digits(p + 8);
    int hour = parse_two_digits(p + 11), minute = parse_two_digits(p + 14), second = parse_two_digits(p + 17);
    int leaps = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (!year || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59) return 0;
    if (day > days[month - 1] + (month == 2 && leaps)) return 0;
    i64 y = year - (month <= 2), of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1; /* from March on */
    i64 all = y * 365 + y / 4 - y / 100 + y / 400 + of_year - 719468;
    if (year < 1678 || year > 2261) return 0; /* beyond what 64 bits of nanoseconds hold */
    *since = (((all * 24 + hour) * 60 + minute) * 60 + second) * 1000000000;
    return 1;
}

/* Reads a time with its Z and its closing quote; returns the position after it, NULL if it is invalid. */
static inline const u8 *read_stamp(Lines *s, const u8 *p, i64 *stamp) {
    i64 fraction = 0;
    if (!s->has_second || memcmp(p, s->second, sizeof s->second)) {
        s->has_second = parse_second(p, &s->since);
        if (!s->has_second) return NULL;
        memcpy(s->second, p, sizeof s->second);
    }
    p += sizeof s->second;
    if (*p == '.') {
        static const i64 scale[] = {0, 100000000, 10000000, 1000000, 100000, 10000, 1000, 100, 10, 1};
        u64 n = 0;
        const u8 *first = ++p;
        p = read_digits(p, &n);
        if (p == first || p - first > 9) return NULL;
        fraction = (i64)n * scale[p - first];
    }
    if (p[0] != 'Z' || p[1] != '"') return NULL;
    *stamp = s->since + fraction;
    return p + 2;
}

/* Reads a duration, a whole number in JSON; returns the position after it, NULL if it is invalid. */
static inline const u8 *read_us(const u8 *p, i64 *us) {
    const u8 *first = p;
    u64 n = 0;
    p = read_digits(p, &n);
    if (p == first || p - first > 18 || (*first == '0' && p - first > 1) || (i64)n > MAX_US) return NULL;
    *us = (i64)n;
    return p;
}

static const u8 *read_line_hole(void *scanner, const u8 *p, int meaning, void *line) {
    Line *l = line;
    return meaning == STAMP ? read_stamp(scanner, p, &l->stamp) : read_us(p, &l->us);
}

static int add_line(Lines *s, const Line *l) {
    return add_u32(&s->envelope, l->envelope, l->has_stamp) && add_u32(&s->event, l->event, l->has_stamp) &&
           add_u32(&s->data, l->data, l->has_data) && add_i64(&s->stamp, l->stamp, l->has_stamp) &&
           add_i64(&s->us, l->us, l->has_us);
}

static const u8 *find_bytes(const u8 *p, const u8 *end, const char *word, size_t size) {
    for (; (size_t)(end - p) >= size; p++) {
        p = memchr(p, word[0], (size_t)(end - p) - size + 1);
        if (!p) return NULL;
        if (!memcmp(p, word, size)) return p;
    }
    return NULL;
}

static int is_utf8(const u8 *p, const u8 *end) {
    const u8 *error_at;
    while (p && p < end) p = *p < 0x80 ? p + 1 : skip_utf8(p, &error_at);
    return p == end;
}

/* Finds or adds a text of the lines; returns 0 if that fails, or if hardly any line repeats another. */
static int find_or_add_line_text(Lines *s, Text text, u32 *row) {
    i64 read = s->base + (i64)s->consumed - s->begin;
    s->reason = find_or_add_text(&s->words, &s->texts, s->seed, text, row);
    if (!s->reason && s->texts.chars.size > MANY_BYTES && (i64)s->texts.chars.size > read / 2)
        s->reason = "hardly any line repeats another";
    return !s->reason;
}

/* Adds the texts of a line: with a duration, those before and after it, joined by a line end; else the text before
   the data, and the data. Returns 0 if that fails. */
static int add_line_texts(Lines *s, Line *l, const u8 *event, const u8 *us, const u8 *after, const u8 *end) {
    if (us) {
        s->scratch.size = 0;
        int ok = put(&s->scratch, event, (size_t)(us - event)) && put(&s->scratch, "\n", 1) &&
                   put(&s->scratch, after, (size_t)(end - after));
        if (!ok) s->reason = NO_MEMORY;
        return ok && find_or_add_line_text(s, (Text){s->scratch.data, s->scratch.size}, &l->event);
    }
    return find_or_add_line_text(s, (Text){event, (size_t)(after - event)}, &l->event) &&
           find_or_add_line_text(s, (Text){after, (size_t)(end - 2 - after)}, &l->data);
}

/* Reads a line from p to its end, which is a line end or the end of the input; returns 0 if that fails. */
static int read_line(Lines *s, const u8 *p, const u8 *end) {
    Line line = {0};
    Hole holes[2];
    int n_holes = 1, is_new;
    const u8 *first = p, *envelope = NULL, *event = NULL, *us = NULL, *after = NULL;
    if ((size_t)(end - p) > SIZE(FRONT) && !memcmp(p, FRONT, SIZE(FRONT))) envelope = read_stamp(s, p + SIZE(FRONT), &line.stamp);
    if (envelope) event = find_bytes(envelope, end, EVENT_KEY, SIZE(EVENT_KEY));
    if (event) us = find_bytes(event, end, US_KEY, SIZE(US_KEY));
    if (us) {
        us += SIZE(US_KEY);
        after = read_us(us, &line.us);
        line.has_us = 1;
    } else if (event) {
        after = find_bytes(event, end, DATA_KEY, SIZE(DATA_KEY));
        if (after) after += SIZE(DATA_KEY);
        if (after && (end - after < 3 || memcmp(end - 3, "}}}", 3))) after = NULL;
        line.has_data = 1;
    }
    if (!after || !is_utf8(p, end)) return add_line(s, &(Line){0});
    line.has_stamp = 1;
    if (!find_or_add_line_text(s, (Text){envelope, (size_t)(event - envelope)}, &line.envelope)) return 0;
    if (!add_line_texts(s, &line, event, us, after, end)) return 0;
    if (!add_line(s, &line)) return 0;
    if (*end != '\n') return 1;
    if (!s->line_by_shape) s->line_by_shape = calloc(SHAPES, sizeof *s->line_by_shape);
    if (!s->line_by_shape) return 1;
    holes[0] = (Hole){first + SIZE(FRONT), envelope, STAMP};
    if (us) holes[n_holes++] = (Hole){us, after, MICROSECONDS};
    int place = remember_shape(&s->shapes, s->seed, holes, n_holes, first, end + 1, &s->scratch, &is_new);
    if (place >= 0 && is_new) s->line_by_shape[place] = line;
    return 1;
}

/* Reads a line that has a predicted shape; returns the position after it, NULL if it has another one. */
static const u8 *read_expected_line(Lines *s, const u8 *p, const u8 *end, Line *line) {
    for (int i = 0; i < GUESSES && s->line_by_shape; i++) {
        int place = predict_shape(&s->shapes, i);
        if (place < 0) continue;
        *line = s->line_by_shape[place];
        const u8 *after = match_shape(s->shapes.shapes + place, p, end, read_line_hole, s, line);
        if (!after) continue;
        record_shape(&s->shapes, place);
        return after;
    }
    return NULL;
}

/* Reads all complete lines, and at the end of the input the last one; returns 0 if that fails. */
static int read_lines(Lines *s, int is_end) {
    const u8 *p = s->buffer.data + s->consumed, *end = s->buffer.data + s->buffer.size;
    int ok = 1;
    while (ok && p < end && s->base + (p - s->buffer.data) < s->stop) {
        Line line;
        const u8 *after = s->searched ? NULL : read_expected_line(s, p, end, &line);
        if (after) {
            ok = add_line(s, &line);
            p = after;
            continue;
        }
        after = memchr(p + s->searched, '\n', (size_t)(end - p) - s->searched);
        s->searched = after ? 0 : (size_t)(end - p);
        if (!after && !is_end) break;
        if (!after) after = end;
        ok = read_line(s, p, after);
        p = after + (after < end);
        s->searched = 0;
    }
    s->consumed = (size_t)(p - s->buffer.data);
    if (!ok && !s->reason) s->reason = NO_MEMORY;
    return ok;
}

static int lines_init(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"seed", "begin", "stop", NULL};
    Lines *s = (Lines *)self;
    unsigned long long seed;
    long long begin, stop;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "KLL", names, &seed, &begin, &stop)) return -1;
    s->seed = seed;
    s->begin = s->base = begin;
    s->stop = stop;
    s->stamp.kind = s->us.kind = I64;
    s->texts.kind = TEXT;
    return 0;
}

static void lines_free(PyObject *self) {
    Lines *s = (Lines *)self;
    Column *columns[] = {&s->envelope, &s->event, &s->data, &s->stamp, &s->us, &s->texts};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) clear_column(columns[i]);
    free_bytes(&s->buffer);
    free_bytes(&s->scratch);
    free_shapes(&s->shapes);
    free(s->line_by_shape);
    free(s->words.slots);
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *lines_feed(PyObject *self, PyObject *data) {
    Lines *s = (Lines *)self;
    Py_buffer view;
    int ok;
    if (s->busy) PyErr_SetString(PyExc_RuntimeError, "a scanner reads for one thread at a time");
    if (s->busy || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) return NULL;
    s->busy = 1;
    Py_BEGIN_ALLOW_THREADS;
    ok = append_bytes(&s->buffer, &s->consumed, &s->base, view.buf, (size_t)view.len);
    if (ok) ok = read_lines(s, !view.len);
    if (ok && s->buffer.size - s->consumed > MAX_LINE_BYTES) {
        s->reason = "a line that is too long";
        ok = 0;
    }
    Py_END_ALLOW_THREADS;
    s->busy = 0;
    PyBuffer_Release(&view);
    if (!ok && (!s->reason || !strcmp(s->reason, NO_MEMORY))) return PyErr_NoMemory();
    if (!ok) {
        PyErr_SetString(PyExc_ValueError, s->reason);
        return NULL;
    }
    return PyBool_FromLong(s->base + (i64)s->consumed < s->stop);
}

static PyObject *lines_rows(PyObject *self, PyObject *unused) {
    (void)unused;
    Lines *s = (Lines *)self;
    static const char *const names[] = {"envelope", "event", "data", "stamp", "us"};
    Column *columns[] = {&s->envelope, &s->event, &s->data, &s->stamp, &s->us};
    return export_table(columns, names, 5);
}

static PyObject *lines_texts(PyObject *self, PyObject *unused) {
    (void)unused;
    Lines *s = (Lines *)self;
    static const char *const names[] = {"text"};
    Column *columns[] = {&s->texts};
    s->stop = 0; /* nothing can be read into exported columns */
    return export_table(columns, names, 1);
}

static PyMethodDef lines_methods[] = {
    {"feed", lines_feed, METH_O, "feed(data) reads the next bytes, none at the end; returns whether more are needed."},
    {"rows", lines_rows, METH_NOARGS, "rows() exports the lines as Arrow capsules."},
    {"texts", lines_texts, METH_NOARGS, "texts() exports the distinct texts as Arrow capsules and ends the reading."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot lines_slots[] = {
    {Py_tp_doc, "Splits the lines of a metallic recording, fed to it in pieces, into columns."},
    {Py_tp_init, lines_init},
    {Py_tp_dealloc, lines_free},
    {Py_tp_methods, lines_methods},
    {0, NULL},
};

static PyType_Spec lines_spec = {"_events.Lines", sizeof(Lines), 0, Py_TPFLAGS_DEFAULT, lines_slots};

#endif
