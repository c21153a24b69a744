/* Cuts the lines of a recording as metallic writes it: a time, an envelope, an event.

     {"timestamp":"2025-12-23T10:15:30.104Z","span_id":null,…,"event":{"type":…,"data":{…,"duration_us":7}}}

   Of each line stay its time in nanoseconds since 1970, the number behind "duration_us", and which texts stand
   around them, each distinct text once. What the texts mean, and whether they are JSON, is for the caller to
   say: few are distinct. A line that is laid out in another way has nulls. */

enum { STAMP, MICROSECONDS };

#define FRONT "{\"timestamp\":\""
#define EVENT_KEY "\"event\":{"
#define US_KEY "\"duration_us\":"
#define DATA_KEY "\"data\":"
#define SIZE(word) (sizeof(word) - 1)
#define LONGEST_LINE ((size_t)1 << 30)
#define MANY_LETTERS ((size_t)1 << 24)
#define LARGEST_US (((i64)1 << 62) / 1000)

typedef struct {
    u32 envelope, event, data; /* rows of the texts */
    i64 stamp, us;
    u8 has_stamp, has_us, has_data; /* no time: the line is left to the caller */
} Line;

typedef struct {
    /* clang-format off */
    PyObject_HEAD
    Bytes buffer;      /* what is not read yet */
    size_t done;       /* of it */
    i64 begin;         /* where the first byte stood in the input */
    i64 base, stop;    /* where the buffer begins in it; a line that begins at `stop` or later is not read */
    int busy;
    size_t searched;   /* bytes behind `done` in which there is no end of a line */
    const char *reason;
    u64 seed;
    int has_second;    /* whether the last time was one: */
    u8 second[19];     /* its text up to the second … */
    i64 since;         /* … and that in nanoseconds since 1970 */
    Shapes shapes;
    Line *shown;       /* the line of each shape, NULL before the first */
    Column envelope, event, data, stamp, us, texts;
    Table words;
    Bytes scratch;
    /* clang-format on */
} Lines;

static inline int two(const u8 *p) { return (p[0] - '0') * 10 + (p[1] - '0'); }

/* Reads a time up to its second; returns 0 where it is none. */
static int read_second(const u8 *p, i64 *since) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    static const char form[] = "0000-00-00T00:00:00";
    for (size_t i = 0; i < SIZE(form); i++)
        if (form[i] == '0' ? (u8)(p[i] - '0') > 9 : p[i] != (u8)form[i]) return 0;
    i64 year = two(p) * 100 + two(p + 2), month = two(p + 5), day = two(p + 8);
    int hour = two(p + 11), minute = two(p + 14), second = two(p + 17);
    int leaps = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (!year || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59) return 0;
    if (day > days[month - 1] + (month == 2 && leaps)) return 0;
    i64 y = year - (month <= 2), of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1; /* from March on */
    i64 all = y * 365 + y / 4 - y / 100 + y / 400 + of_year - 719468;
    if (year < 1678 || year > 2261) return 0; /* beyond what 64 bits of nanoseconds hold */
    *since = (((all * 24 + hour) * 60 + minute) * 60 + second) * 1000000000;
    return 1;
}

/* Reads a time with its Z and its closing quote; returns the first byte behind it, NULL for none. */
static inline const u8 *stamp_end(Lines *s, const u8 *p, i64 *stamp) {
    i64 fraction = 0;
    if (!s->has_second || memcmp(p, s->second, sizeof s->second)) {
        s->has_second = read_second(p, &s->since);
        if (!s->has_second) return NULL;
        memcpy(s->second, p, sizeof s->second);
    }
    p += sizeof s->second;
    if (*p == '.') {
        static const i64 scale[] = {0, 100000000, 10000000, 1000000, 100000, 10000, 1000, 100, 10, 1};
        u64 n = 0;
        const u8 *first = ++p;
        p = whole_number(p, &n);
        if (p == first || p - first > 9) return NULL;
        fraction = (i64)n * scale[p - first];
    }
    if (p[0] != 'Z' || p[1] != '"') return NULL;
    *stamp = s->since + fraction;
    return p + 2;
}

/* Reads a duration as JSON writes a whole number; returns the first byte behind it, NULL for none. */
static inline const u8 *us_end(const u8 *p, i64 *us) {
    const u8 *first = p;
    u64 n = 0;
    p = whole_number(p, &n);
    if (p == first || p - first > 18 || (*first == '0' && p - first > 1) || (i64)n > LARGEST_US) return NULL;
    *us = (i64)n;
    return p;
}

static const u8 *number_of_line(void *scanner, const u8 *p, int meaning, void *line) {
    Line *l = line;
    return meaning == STAMP ? stamp_end(scanner, p, &l->stamp) : us_end(p, &l->us);
}

static int add_line(Lines *s, const Line *l) {
    return add_u32(&s->envelope, l->envelope, l->has_stamp) && add_u32(&s->event, l->event, l->has_stamp) &&
           add_u32(&s->data, l->data, l->has_data) && add_i64(&s->stamp, l->stamp, l->has_stamp) &&
           add_i64(&s->us, l->us, l->has_us);
}

static const u8 *found(const u8 *p, const u8 *end, const char *word, size_t size) {
    for (; (size_t)(end - p) >= size; p++) {
        p = memchr(p, word[0], (size_t)(end - p) - size + 1);
        if (!p) return NULL;
        if (!memcmp(p, word, size)) return p;
    }
    return NULL;
}

static int is_utf8(const u8 *p, const u8 *end) {
    const u8 *fail;
    while (p && p < end) p = *p < 0x80 ? p + 1 : character_end(p, &fail);
    return p == end;
}

/* Finds or adds a text of the lines; returns 0 where that cannot be, or where hardly any line repeats another. */
static int word_of(Lines *s, Text text, u32 *row) {
    i64 read = s->base + (i64)s->done - s->begin;
    s->reason = code_of(&s->words, &s->texts, s->seed, text, row);
    if (!s->reason && s->texts.letters.size > MANY_LETTERS && (i64)s->texts.letters.size > read / 2)
        s->reason = "hardly a line that repeats another";
    return !s->reason;
}

/* Keeps what stands around the numbers of a line: with a duration the texts on both sides of it, with a line end
   between them, else the text up to the data, and the data. Returns 0 where that cannot be. */
static int keep_texts(Lines *s, Line *l, const u8 *event, const u8 *us, const u8 *behind, const u8 *end) {
    if (us) {
        s->scratch.size = 0;
        int fits = put(&s->scratch, event, (size_t)(us - event)) && put(&s->scratch, "\n", 1) &&
                   put(&s->scratch, behind, (size_t)(end - behind));
        if (!fits) s->reason = NO_MEMORY;
        return fits && word_of(s, (Text){s->scratch.data, s->scratch.size}, &l->event);
    }
    return word_of(s, (Text){event, (size_t)(behind - event)}, &l->event) &&
           word_of(s, (Text){behind, (size_t)(end - 2 - behind)}, &l->data);
}

/* Reads a line from p to its end, behind which stands a line end or nothing; returns 0 where that cannot be. */
static int keep_line(Lines *s, const u8 *p, const u8 *end) {
    Line line = {0};
    Hole holes[2];
    int n_holes = 1, is_new;
    const u8 *first = p, *envelope = NULL, *event = NULL, *us = NULL, *behind = NULL;
    if ((size_t)(end - p) > SIZE(FRONT) && !memcmp(p, FRONT, SIZE(FRONT))) envelope = stamp_end(s, p + SIZE(FRONT), &line.stamp);
    if (envelope) event = found(envelope, end, EVENT_KEY, SIZE(EVENT_KEY));
    if (event) us = found(event, end, US_KEY, SIZE(US_KEY));
    if (us) {
        us += SIZE(US_KEY);
        behind = us_end(us, &line.us);
        line.has_us = 1;
    } else if (event) {
        behind = found(event, end, DATA_KEY, SIZE(DATA_KEY));
        if (behind) behind += SIZE(DATA_KEY);
        if (behind && (end - behind < 3 || memcmp(end - 3, "}}}", 3))) behind = NULL;
        line.has_data = 1;
    }
    if (!behind || !is_utf8(p, end)) return add_line(s, &(Line){0});
    line.has_stamp = 1;
    if (!word_of(s, (Text){envelope, (size_t)(event - envelope)}, &line.envelope)) return 0;
    if (!keep_texts(s, &line, event, us, behind, end)) return 0;
    if (!add_line(s, &line)) return 0;
    if (*end != '\n') return 1;
    if (!s->shown) s->shown = calloc(SHAPES, sizeof *s->shown);
    if (!s->shown) return 1;
    holes[0] = (Hole){first + SIZE(FRONT), envelope, STAMP};
    if (us) holes[n_holes++] = (Hole){us, behind, MICROSECONDS};
    int place = learn_shape(&s->shapes, s->seed, holes, n_holes, first, end + 1, &s->scratch, &is_new);
    if (place >= 0 && is_new) s->shown[place] = line;
    return 1;
}

/* Reads a line that has an expected shape; returns the first byte behind it, NULL where it has another one. */
static const u8 *expected_line_end(Lines *s, const u8 *p, const u8 *end, Line *line) {
    for (int i = 0; i < GUESSES && s->shown; i++) {
        int place = expected(&s->shapes, i);
        if (place < 0) continue;
        *line = s->shown[place];
        const u8 *behind = shape_end(s->shapes.shapes + place, p, end, number_of_line, s, line);
        if (!behind) continue;
        note_shape(&s->shapes, place);
        return behind;
    }
    return NULL;
}

/* Reads as many lines as are whole, and at the end of the input the last one; returns 0 where that cannot be. */
static int read_lines(Lines *s, int is_end) {
    const u8 *p = s->buffer.data + s->done, *end = s->buffer.data + s->buffer.size;
    int fits = 1;
    while (fits && p < end && s->base + (p - s->buffer.data) < s->stop) {
        Line line;
        const u8 *behind = s->searched ? NULL : expected_line_end(s, p, end, &line);
        if (behind) {
            fits = add_line(s, &line);
            p = behind;
            continue;
        }
        behind = memchr(p + s->searched, '\n', (size_t)(end - p) - s->searched);
        s->searched = behind ? 0 : (size_t)(end - p);
        if (!behind && !is_end) break;
        if (!behind) behind = end;
        fits = keep_line(s, p, behind);
        p = behind + (behind < end);
        s->searched = 0;
    }
    s->done = (size_t)(p - s->buffer.data);
    if (!fits && !s->reason) s->reason = NO_MEMORY;
    return fits;
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
    discard(&s->buffer);
    discard(&s->scratch);
    discard_shapes(&s->shapes);
    free(s->shown);
    free(s->words.places);
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *lines_feed(PyObject *self, PyObject *data) {
    Lines *s = (Lines *)self;
    Py_buffer view;
    int fits;
    if (s->busy) PyErr_SetString(PyExc_RuntimeError, "a scanner reads for one thread at a time");
    if (s->busy || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) return NULL;
    s->busy = 1;
    Py_BEGIN_ALLOW_THREADS;
    fits = take_bytes(&s->buffer, &s->done, &s->base, view.buf, (size_t)view.len);
    if (fits) fits = read_lines(s, !view.len);
    if (fits && s->buffer.size - s->done > LONGEST_LINE) {
        s->reason = "a line that is too long";
        fits = 0;
    }
    Py_END_ALLOW_THREADS;
    s->busy = 0;
    PyBuffer_Release(&view);
    if (!fits && (!s->reason || !strcmp(s->reason, NO_MEMORY))) return PyErr_NoMemory();
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, s->reason);
        return NULL;
    }
    return PyBool_FromLong(s->base + (i64)s->done < s->stop);
}

static PyObject *lines_rows(PyObject *self, PyObject *unused) {
    (void)unused;
    Lines *s = (Lines *)self;
    static const char *const names[] = {"envelope", "event", "data", "stamp", "us"};
    Column *columns[] = {&s->envelope, &s->event, &s->data, &s->stamp, &s->us};
    return exported(columns, names, 5);
}

static PyObject *lines_texts(PyObject *self, PyObject *unused) {
    (void)unused;
    Lines *s = (Lines *)self;
    static const char *const names[] = {"text"};
    Column *columns[] = {&s->texts};
    s->stop = 0; /* nothing is read into what is gone */
    return exported(columns, names, 1);
}

static PyMethodDef lines_methods[] = {
    {"feed", lines_feed, METH_O, "feed(data) reads the next bytes, none at the end; returns whether it wants more."},
    {"rows", lines_rows, METH_NOARGS, "rows() gives the lines away, as Arrow capsules."},
    {"texts", lines_texts, METH_NOARGS, "texts() gives the distinct texts away, as Arrow capsules."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot lines_slots[] = {
    {Py_tp_doc, "Cuts the lines of a metallic recording, fed to it in pieces, into columns."},
    {Py_tp_init, lines_init},
    {Py_tp_dealloc, lines_free},
    {Py_tp_methods, lines_methods},
    {0, NULL},
};

static PyType_Spec lines_spec = {"_events.Lines", sizeof(Lines), 0, Py_TPFLAGS_DEFAULT, lines_slots};
