/* Reads the events of a Chrome trace, in any JSON layout, into columns: no object is made of an event.

   A Scanner is fed the bytes of a list of events, piece by piece, and keeps what the loader wants of each
   event: its label (category, name, process, thread), its times in whole nanoseconds, the numbers that link
   it, and what it states of a launch or of operands. Columns leave as Arrow structs (the C data interface).

   It accepts only what a strict JSON parser accepts, and less: whatever is out of the ordinary ends the scan
   with a reason, and the caller reads the file in another way. Nothing here guesses or mends.

   Safety: bytes lie in a buffer of our own with zeros behind the last one. A zero is legal nowhere in JSON,
   so every loop stops there; a stop at the end of the buffer means that more bytes are needed. Nesting is
   counted in an array, not on the stack. Each event is read twice at most while its bytes come in.

   Speed: most events repeat one that was read before but for some numbers. What stands between the numbers
   is remembered as a shape; an event that has the bytes of the shape that is expected, with other numbers,
   says what that one said. All others are parsed. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SLACK 64         /* zeros behind the bytes, more than any load reads at once */
#define DEEPEST 128      /* levels of nesting inside one event */
#define PROBES 512       /* places that are tried in a table before it counts as attacked */
#define LARGEST_EVENT ((size_t)1 << 30)
#define HOLES 32         /* numbers in an event of which a shape is kept */
#define LONGEST_SHAPE 2048
#define SHAPES 4096      /* shapes that are remembered, */
#define FOLLOWERS 16384  /* and rows of shapes of which it is known what came after them */
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;

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

static void discard(Bytes *b) {
    free(b->data);
    *b = (Bytes){0};
}

typedef enum { U32, I64, TEXT } Kind;

typedef struct {
    Kind kind;
    i64 rows, nulls;
    Bytes valid;   /* a bit a row */
    Bytes values;  /* of texts: where each ends */
    Bytes letters; /* of texts */
} Column;

static int mark(Column *c, int valid) {
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
    return mark(c, valid) && put(&c->values, &value, sizeof value);
}

static int add_i64(Column *c, i64 value, int valid) {
    return mark(c, valid) && put(&c->values, &value, sizeof value);
}

static int add_text(Column *c, Text text, int valid) {
    i64 end = 0;
    if (!c->rows && !put(&c->values, &end, sizeof end)) return 0;
    if (!mark(c, valid) || (valid && !put(&c->letters, text.at, text.size))) return 0;
    end = (i64)c->letters.size;
    return put(&c->values, &end, sizeof end);
}

static Text text_in(const Column *c, u32 row) {
    const i64 *ends = (const i64 *)(const void *)c->values.data;
    size_t size = (size_t)(ends[row + 1] - ends[row]);
    return size ? (Text){c->letters.data + ends[row], size} : (Text){0};
}

static int is_valid(const Column *c, u32 row) { return c->valid.data[row >> 3] >> (row & 7) & 1; }

static void clear_column(Column *c) {
    discard(&c->valid);
    discard(&c->values);
    discard(&c->letters);
    c->rows = c->nulls = 0;
}

/* ---- tables of distinct texts ---- */

typedef struct {
    u64 hash;
    u32 code; /* one more than the row; zero is an empty place */
} Place;

typedef struct {
    Place *places;
    size_t mask, used;
} Table;

static inline u64 word_at(const u8 *p) {
    u64 word;
    memcpy(&word, p, 8);
    return word;
}

/* Returns a hash of a text, in two lanes that do not wait for each other. */
static u64 mix(u64 hash, const u8 *p, size_t n) {
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

static int grow(Table *t) {
    size_t size = t->places ? (t->mask + 1) * 2 : 1024;
    Place *places = calloc(size, sizeof *places);
    if (!places) return 0;
    for (size_t i = 0; t->places && i <= t->mask; i++) {
        if (!t->places[i].code) continue;
        size_t at = t->places[i].hash & (size - 1);
        while (places[at].code) at = (at + 1) & (size - 1);
        places[at] = t->places[i];
    }
    free(t->places);
    t->places = places;
    t->mask = size - 1;
    return 1;
}

/* ---- the scanner ---- */

enum { LINKED = 1, ASKED = 2, OPERATOR = 4, KERNEL = 8, ATTENDS = 16 }; /* what is wanted of a label */
enum { HAS_CAT = 1, HAS_NAME = 2 };
enum { READY, STOPPED, ENDED, FAILED };
enum { FIRST, EVENT, AFTER };
enum { DIMS, TYPES, VALUES, GRID, BLOCK, REGISTERS, SHARED, OCCUPANCY, STATED };
enum { PH = 1, CAT = 2, NAME = 4, PID = 8, TID = 16, TS = 32, DUR = 64, ARGS = 128, ID = 256 };

typedef struct {
    char word[32];
    size_t size;
    u32 wanted;
} Category;

/* What a number of an event is, that may differ where all else is the same: FIXED are those that may not. */
typedef enum { START, DURATION, CORRELATION, EXTERNAL, NUMBER, FIXED } Meaning;

typedef struct {
    const u8 *at, *end;
    Meaning meaning;
} Hole;

typedef struct {
    u32 label, args;
    i64 t, dur, correlation, external;
    u8 has_t, has_dur, has_correlation, has_external, has_args;
} Row;

/* An event without its numbers: the bytes between them, one behind the other, and the row that it gives. */
typedef struct {
    u64 hash;
    u8 *letters;
    u32 size, room;
    int n_holes, is_arrow; /* an arrow gives no row */
    u16 sizes[HOLES + 1];  /* of the bytes before each number, and behind the last */
    u8 meanings[HOLES];
    Row row;
} Shape;

typedef struct {
    unsigned seen;
    Text ph, cat, name, pid, tid, ts, dur;
    u32 has;
    int other_name;            /* a number or a truth value */
    int plain_ts, plain_dur;   /* t and length hold their value */
    i64 t, length;
    int has_correlation, has_external, mentions_dims;
    unsigned has_stated; /* bits of what is stated */
    i64 correlation, external;
    int n_holes;         /* more than HOLES where they are not all kept */
    Text stated[STATED]; /* from here on: read only where it is stated, and not cleared */
    Hole holes[HOLES];
} Event;

typedef struct {
    /* clang-format off */
    PyObject_HEAD
    Bytes buffer;        /* what is not read yet */
    size_t done;         /* of it */
    i64 base;            /* where it begins in the input */
    i64 stop;            /* an event that begins there or later is not read */
    int state, expects, busy;
    int lines;           /* the events stand without commas and without a list around them */
    size_t enough;       /* bytes that must be there before the event at `done` is tried again */
    const char *reason;
    const u8 *end, *fail;
    u64 seed;
    Category categories[16];
    int n_categories;
    char attention[32];
    size_t attention_size;
    i64 read, empty;     /* events that count, events that name no phase */
    Column label, t, dur, correlation, external, args;
    Column cat, name, pid, tid, wanted;
    Column texts;
    Column odd_row, odd_ts, odd_dur;
    Bytes others, scratch;
    Table labels, words;
    Shape *shapes;       /* SHAPES of them, NULL before the first */
    u16 *followers;      /* of the shapes before: one more than the place of that which followed */
    u64 history;         /* one more than the places of the four shapes before */
    /* clang-format on */
} Scanner;

static const u8 *bad(Scanner *s, const u8 *p, const char *reason) {
    s->fail = p;
    s->reason = reason;
    return NULL;
}

static const u8 *starved(Scanner *s) { return bad(s, s->buffer.data, "no memory is left"); }

/* ---- JSON ---- */

static inline const u8 *blank(const u8 *p) {
    while (*p <= ' ' && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

static int is_hex(u8 c) { return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f'); }

static int hex(const u8 *p) {
    int value = 0;
    for (int i = 0; i < 4; i++) value = value * 16 + (p[i] <= '9' ? p[i] - '0' : (p[i] | 32) - 'a' + 10);
    return value;
}

/* Returns the first byte behind an escape (p is behind its backslash), NULL for none. */
static const u8 *escaped(Scanner *s, const u8 *p) {
    if (*p && strchr("\"\\/bfnrt", *p)) return p + 1;
    if (*p != 'u') return bad(s, p, "an unknown escape in a text");
    for (int i = 1; i <= 4; i++)
        if (!is_hex(p[i])) return bad(s, p + i, "an unknown escape in a text");
    int unit = hex(p + 1);
    if (unit < 0xD800 || unit > 0xDFFF) return p + 5;
    if (unit > 0xDBFF) return bad(s, p, "half a character in a text");
    for (int i = 0; i < 6; i++) {
        u8 c = p[5 + i];
        int fits = i == 0 ? c == '\\' : i == 1 ? c == 'u' : is_hex(c);
        if (!fits) return bad(s, p + 5 + i, "half a character in a text");
    }
    unit = hex(p + 7);
    if (unit < 0xDC00 || unit > 0xDFFF) return bad(s, p + 5, "half a character in a text");
    return p + 11;
}

/* Returns the first byte behind a character of several bytes in UTF-8, NULL for none. */
static const u8 *character(Scanner *s, const u8 *p) {
    u8 c = *p, low = 0x80, high = 0xBF;
    int more = c >= 0xC2 && c <= 0xDF ? 1 : (c & 0xF0) == 0xE0 ? 2 : c >= 0xF0 && c <= 0xF4 ? 3 : 0;
    if (!more) return bad(s, p, "bytes that are not UTF-8");
    if (c == 0xE0) low = 0xA0;
    if (c == 0xED) high = 0x9F;
    if (c == 0xF0) low = 0x90;
    if (c == 0xF4) high = 0x8F;
    for (int i = 1; i <= more; i++, low = 0x80, high = 0xBF)
        if (p[i] < low || p[i] > high) return bad(s, p + i, "bytes that are not UTF-8");
    return p + more + 1;
}

/* Returns the first byte that is not plain in a text: a quote, a backslash, or none of ASCII's letters. Eight
   bytes are looked at once; the lowest of those that are marked is marked rightly. */
static inline const u8 *plain_end(const u8 *p) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const u64 ones = 0x0101010101010101u, tops = 0x80 * ones;
    for (;; p += 8) {
        u64 word, quote, slash;
        memcpy(&word, p, 8);
        quote = word ^ '"' * ones;
        slash = word ^ '\\' * ones;
        u64 found = ((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((word - ' ' * ones) & ~word) | word;
        if (found & tops) return p + (__builtin_ctzll(found & tops) >> 3);
    }
#else
    while (*p != '"' && *p != '\\' && *p >= 0x20 && *p < 0x80) p++;
    return p;
#endif
}

/* Returns the closing quote of a text (p is behind the opening one), NULL for none. */
static inline const u8 *text_end(Scanner *s, const u8 *p, int *plain) {
    for (;;) {
        p = plain_end(p);
        if (LIKELY(*p == '"')) return p;
        if (*p == '\\') {
            *plain = 0;
            p = escaped(s, p + 1);
        } else if (*p >= 0x80) {
            p = character(s, p);
        } else {
            return bad(s, p, "a control character in a text");
        }
        if (!p) return NULL;
    }
}

static inline const u8 *digits(const u8 *p) {
    while ((u8)(*p - '0') <= 9) p++;
    return p;
}

/* Returns the first byte that is no digit; `value` takes the digits up to it, modulo 2**64. */
static inline const u8 *whole_number(const u8 *p, u64 *value) {
    u64 n = *value;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    static const u64 tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
    const u64 ones = 0x0101010101010101u;
    for (;;) {
        u64 word, other;
        memcpy(&word, p, 8);
        word ^= '0' * ones;
        other = ((word & 0x7F * ones) + 0x76 * ones) | word; /* the top of a byte is set where it is no digit */
        other &= 0x80 * ones;
        int n_digits = other ? __builtin_ctzll(other) >> 3 : 8;
        if (!n_digits) break;
        word <<= 64 - 8 * n_digits; /* zeros in front */
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

static const u8 *number_end(Scanner *s, const u8 *p) {
    if (*p == '-') p++;
    if (*p == '0') {
        p++;
    } else {
        const u8 *first = p;
        p = digits(p);
        if (p == first) return bad(s, p, "a value that is none");
    }
    if (*p == '.') {
        const u8 *first = ++p;
        p = digits(p);
        if (p == first) return bad(s, p, "a number without its digits");
    }
    if ((*p | 32) == 'e') {
        p++;
        if (*p == '+' || *p == '-') p++;
        const u8 *first = p;
        p = digits(p);
        if (p == first) return bad(s, p, "a number without its digits");
    }
    return p;
}

static const u8 *literal_end(Scanner *s, const u8 *p) {
    const char *word = *p == 't' ? "true" : *p == 'f' ? "false" : *p == 'n' ? "null" : "";
    const u8 *first = p;
    for (; *word; word++, p++)
        if (*p != (u8)*word) return bad(s, p, "a value that is none");
    return p == first ? bad(s, p, "a value that is none") : p;
}

#define IS(text, word) ((text).size == sizeof(word) - 1 && !memcmp((text).at, word, sizeof(word) - 1))

/* Returns the bit of a key of events, zero for others. */
static inline unsigned key_of_event(Text key) {
    switch (key.size) {
    case 2:
        if (key.at[0] == 'p') return key.at[1] == 'h' ? PH : 0;
        if (key.at[0] == 't') return key.at[1] == 's' ? TS : 0;
        return IS(key, "id") ? ID : 0;
    case 3:
        if (key.at[0] == 'p') return IS(key, "pid") ? PID : 0;
        if (key.at[0] == 't') return IS(key, "tid") ? TID : 0;
        if (key.at[0] == 'c') return IS(key, "cat") ? CAT : 0;
        return IS(key, "dur") ? DUR : 0;
    case 4:
        if (key.at[0] == 'n') return IS(key, "name") ? NAME : 0;
        return IS(key, "args") ? ARGS : 0;
    default:
        return 0;
    }
}

/* Takes a number that links events: 1 to 18 digits, as they stand behind a key (p is at the value); the first
   one counts. Returns what the number is: `meaning` where it was taken. */
static inline Meaning link_number(const u8 *p, int *has, i64 *value, Meaning meaning) {
    u64 n = 0;
    if (*has) return NUMBER;
    const u8 *end = whole_number(p, &n);
    if (end == p || end - p > 18) return FIXED;
    *has = 1;
    *value = (i64)n;
    return *end == '.' || (*end | 32) == 'e' ? FIXED : meaning;
}

/* Returns what a number behind this key is. */
static inline Meaning note_key(Event *e, Text key, const u8 *value) {
    if (key.size == 11) {
        if (IS(key, "correlation")) return link_number(value, &e->has_correlation, &e->correlation, CORRELATION);
        if (!memcmp(key.at + 1, "xternal id", 10) && (key.at[0] == 'E' || key.at[0] == 'e'))
            return link_number(value, &e->has_external, &e->external, EXTERNAL);
    } else if (key.size == 10 && IS(key, "Input Dims")) {
        e->mentions_dims = 1;
    }
    return NUMBER;
}

static inline void note_hole(Event *e, const u8 *at, const u8 *end, Meaning meaning) {
    if (e->n_holes < HOLES) e->holes[e->n_holes] = (Hole){at, end, meaning};
    e->n_holes += e->n_holes <= HOLES;
}

/* Returns which of the stated values a key of the arguments names, STATED for none. */
static inline int stated_of(Text key) {
    switch (key.size) {
    case 4:
        return IS(key, "grid") ? GRID : STATED;
    case 5:
        return IS(key, "block") ? BLOCK : STATED;
    case 10:
        return IS(key, "Input Dims") ? DIMS : IS(key, "Input type") ? TYPES : STATED;
    case 13:
        return IS(key, "shared memory") ? SHARED : STATED;
    case 15:
        return IS(key, "Concrete Inputs") ? VALUES : STATED;
    case 20:
        return IS(key, "registers per thread") ? REGISTERS : STATED;
    case 25:
        return IS(key, "est. achieved occupancy %") ? OCCUPANCY : STATED;
    default:
        return STATED;
    }
}

/* Returns the colon's next value behind a key (p is behind the key's opening quote). */
static inline const u8 *key_end(Scanner *s, const u8 *p, Text *key) {
    int plain = 1;
    const u8 *quote = text_end(s, p, &plain);
    if (!quote) return NULL;
    if (!plain) return bad(s, p, "an escape in a key");
    *key = (Text){p, (size_t)(quote - p)};
    p = blank(quote + 1);
    if (*p != ':') return bad(s, p, "a key without a value");
    return blank(p + 1);
}

/* Returns the first byte behind a value, NULL for none. Where it is the arguments of an event (`args`), what
   they state is kept. */
static const u8 *value_end(Scanner *s, const u8 *p, Event *args) {
    u8 keys[DEEPEST]; /* of each open object, those that are keys of events; an array has ARRAY */
    enum { ARRAY = 0x80 };
    int depth = 0, stated = STATED, plain;
    const u8 *since = NULL;
    Meaning meaning = FIXED; /* of a number that is the next value */
    Text key;
value:
    if (*p == '"') {
        p = text_end(s, p + 1, &plain);
        if (!p) return NULL;
        p++;
    } else if (*p == '{') {
        if (depth == DEEPEST) return bad(s, s->buffer.data, "nested too deep");
        keys[depth++] = 0;
        p = blank(p + 1);
        if (*p != '}') goto key;
        p++;
        depth--;
    } else if (*p == '[') {
        if (depth == DEEPEST) return bad(s, s->buffer.data, "nested too deep");
        keys[depth++] = ARRAY;
        p = blank(p + 1);
        if (*p != ']') goto value;
        p++;
        depth--;
    } else if ((u8)(*p - '0') <= 9 || *p == '-') {
        const u8 *first = p;
        p = number_end(s, p);
        if (!p) return NULL;
        if (depth == 1 && meaning != FIXED) note_hole(args, first, p, meaning);
    } else {
        p = literal_end(s, p);
        if (!p) return NULL;
    }
after:
    if (!depth) return p;
    if (stated != STATED && depth == 1) {
        args->stated[stated] = (Text){since, (size_t)(p - since)};
        args->has_stated |= 1u << stated;
        stated = STATED;
    }
    p = blank(p);
    if (keys[depth - 1] & ARRAY) {
        if (*p == ',') {
            p = blank(p + 1);
            goto value;
        }
        if (*p != ']') return bad(s, p, "a list without its end");
    } else {
        if (*p == ',') {
            p = blank(p + 1);
            goto key;
        }
        if (*p != '}') return bad(s, p, "an object without its end");
    }
    p++;
    depth--;
    goto after;
key:
    if (*p != '"') return bad(s, p, "a key that is no text");
    p = key_end(s, p + 1, &key);
    if (!p) return NULL;
    unsigned bit = key_of_event(key) & (PH | CAT | NAME | PID | TID | TS | DUR);
    if (bit) {
        if (keys[depth - 1] & bit) return bad(s, s->buffer.data, "a key twice");
        keys[depth - 1] |= (u8)bit;
    }
    if (args) {
        meaning = note_key(args, key, p);
        if (depth == 1) {
            if (UNLIKELY(IS(key, "call_stack"))) return bad(s, s->buffer.data, "an event that states its scopes");
            stated = stated_of(key);
            since = p;
            if (stated != STATED) meaning = FIXED;
        }
    }
    goto value;
}

/* Reads a time as whole nanoseconds, rounded half to even, where it is a plain number; else only its text. */
static const u8 *time_end(Scanner *s, const u8 *p, Text *text, i64 *ns, int *is_plain) {
    const u8 *first = p, *point;
    i64 value = 0;
    int negative = *p == '-';
    *is_plain = 0;
    if ((u8)(*p - '0') > 9 && !negative) {
        p = value_end(s, p, NULL);
        if (p) *text = (Text){first, (size_t)(p - first)};
        return p;
    }
    p = number_end(s, p);
    if (!p) return NULL;
    *text = (Text){first, (size_t)(p - first)};
    const u8 *q = first + negative;
    u64 whole = 0;
    q = whole_number(q, &whole);
    if (q - first > 15 || p - q > 20) return p; /* so long a number is left to the slow way */
    value = (i64)whole;
    point = q;
    if (*q == '.') {
        q++;
        for (int i = 0; i < 3; i++) value = value * 10 + ((u8)(*q - '0') <= 9 ? *q++ - '0' : 0);
        if (UNLIKELY((u8)(*q - '0') <= 9)) {
            u8 half = *q++;
            int rest = 0;
            for (; (u8)(*q - '0') <= 9; q++) rest |= *q != '0';
            value += half > '5' || (half == '5' && (rest || (value & 1)));
        }
    } else {
        value *= 1000;
    }
    if (q != p || (q == point + 1)) return p; /* an exponent */
    *ns = negative ? -value : value;
    *is_plain = 1;
    return p;
}

/* ---- events ---- */

/* Returns the first byte behind a text or null, which are all that a category may be. */
static const u8 *word_end(Scanner *s, const u8 *p, Text *text, u32 *has, u32 bit, int *plain) {
    if (*p == '"') {
        const u8 *first = p + 1;
        p = text_end(s, first, plain);
        if (!p) return NULL;
        *text = (Text){first, (size_t)(p - first)};
        *has |= bit;
        return p + 1;
    }
    if (*p != 'n') return bad(s, p, "a word that is no text");
    return literal_end(s, p);
}

static const u8 *name_end(Scanner *s, const u8 *p, Event *e) {
    int plain;
    if (*p == '"' || *p == 'n') return word_end(s, p, &e->name, &e->has, HAS_NAME, &plain);
    if (*p == '{' || *p == '[') return bad(s, s->buffer.data, "a name that is no text");
    e->other_name = 1;
    return value_end(s, p, NULL);
}

static const u8 *place_end(Scanner *s, const u8 *p, Text *text) {
    const u8 *first = p;
    if (*p == '{' || *p == '[') return bad(s, s->buffer.data, "a process or thread that is no word");
    p = value_end(s, p, NULL);
    if (p) *text = (Text){first, (size_t)(p - first)};
    return p;
}

static const u8 *id_end(Scanner *s, const u8 *p, Event *e) {
    const u8 *first = p;
    p = value_end(s, p, NULL);
    if (p && ((u8)(*first - '0') <= 9 || *first == '-')) note_hole(e, first, p, NUMBER);
    return p;
}

static const u8 *member_end(Scanner *s, const u8 *p, Event *e, unsigned bit) {
    int plain = 1;
    u32 has = 0;
    switch (bit) {
    case PH:
        if (*p != '"') return bad(s, p, "a phase that is no text");
        p = word_end(s, p, &e->ph, &has, 1, &plain);
        break;
    case CAT:
        p = word_end(s, p, &e->cat, &e->has, HAS_CAT, &plain);
        break;
    case NAME:
        return name_end(s, p, e);
    case PID:
        return place_end(s, p, &e->pid);
    case TID:
        return place_end(s, p, &e->tid);
    case TS:
        p = time_end(s, p, &e->ts, &e->t, &e->plain_ts);
        if (p) note_hole(e, e->ts.at, p, START);
        return p;
    case DUR:
        p = time_end(s, p, &e->dur, &e->length, &e->plain_dur);
        if (p) note_hole(e, e->dur.at, p, DURATION);
        return p;
    case ID:
        return id_end(s, p, e);
    case ARGS:
        return value_end(s, p, e);
    default:
        return value_end(s, p, NULL);
    }
    if (p && !plain) return bad(s, s->buffer.data, "an escape in a category or phase");
    return p;
}

/* Reads one event (p is behind its opening brace); returns the first byte behind it, NULL for none. */
static const u8 *event_end(Scanner *s, const u8 *p, Event *e) {
    Text key;
    p = blank(p);
    if (*p == '}') return p + 1;
    for (;;) {
        if (*p != '"') return bad(s, p, "a key that is no text");
        p = key_end(s, p + 1, &key);
        if (!p) return NULL;
        unsigned bit = key_of_event(key);
        if (bit) {
            if (e->seen & bit) return bad(s, s->buffer.data, "a key twice");
            e->seen |= bit;
        }
        p = member_end(s, p, e, bit);
        if (!p) return NULL;
        p = blank(p);
        if (*p == '}') return p + 1;
        if (*p != ',') return bad(s, p, "an object without its end");
        p = blank(p + 1);
    }
}

static int same(Text a, Text b) { return a.size == b.size && (!a.size || !memcmp(a.at, b.at, a.size)); }

static int contains(Text text, const char *word, size_t size) {
    for (size_t i = 0; size && i + size <= text.size; i++)
        if (text.at[i] == (u8)word[0] && !memcmp(text.at + i, word, size)) return 1;
    return 0;
}

/* Returns whether a text spells a letter of ASCII as an escape, so that words in it are not seen. */
static int hides_letters(Text text) {
    for (size_t i = 0; i + 6 <= text.size; i++)
        if (text.at[i] == '\\' && !memcmp(text.at + i + 1, "u00", 3) && text.at[i + 4] >= '4' && text.at[i + 4] < '8') return 1;
    return 0;
}

static u32 wanted_of(const Scanner *s, const Event *e) {
    u32 wanted = 0;
    for (int i = 0; e->has & HAS_CAT && i < s->n_categories; i++) {
        Text word = {(const u8 *)s->categories[i].word, s->categories[i].size};
        if (same(e->cat, word)) wanted |= s->categories[i].wanted;
    }
    if (e->has & HAS_NAME && contains(e->name, s->attention, s->attention_size)) wanted |= ATTENDS;
    return wanted;
}

static int is_label(const Scanner *s, u32 row, const Event *e) {
    if (is_valid(&s->cat, row) != !!(e->has & HAS_CAT) || is_valid(&s->name, row) != !!(e->has & HAS_NAME)) return 0;
    return same(text_in(&s->name, row), e->name) && same(text_in(&s->tid, row), e->tid) &&
           same(text_in(&s->pid, row), e->pid) && same(text_in(&s->cat, row), e->cat);
}

/* Finds or adds the label of an event; returns 0 where that cannot be. */
static int label_of(Scanner *s, const Event *e, u32 *row) {
    u64 hash = mix(s->seed ^ e->has, e->name.at, e->name.size);
    hash = mix(mix(mix(hash, e->cat.at, e->cat.size), e->tid.at, e->tid.size), e->pid.at, e->pid.size);
    if (UNLIKELY(s->labels.used * 2 >= s->labels.mask) && !grow(&s->labels)) return starved(s) != NULL;
    size_t at = hash & s->labels.mask;
    for (int tried = 0; s->labels.places[at].code; at = (at + 1) & s->labels.mask) {
        Place place = s->labels.places[at];
        if (place.hash == hash && is_label(s, place.code - 1, e)) {
            *row = place.code - 1;
            return 1;
        }
        if (++tried > PROBES) return bad(s, s->buffer.data, "too many names alike") != NULL;
    }
    if (s->labels.used > UINT32_MAX / 2) return bad(s, s->buffer.data, "too many names") != NULL;
    if (hides_letters(e->name)) return bad(s, s->buffer.data, "a name that spells letters as escapes") != NULL;
    *row = (u32)s->labels.used++;
    s->labels.places[at] = (Place){hash, *row + 1};
    if (!add_text(&s->cat, e->cat, !!(e->has & HAS_CAT)) || !add_text(&s->name, e->name, !!(e->has & HAS_NAME)) ||
        !add_text(&s->pid, e->pid, 1) || !add_text(&s->tid, e->tid, 1) || !add_u32(&s->wanted, wanted_of(s, e), 1))
        return starved(s) != NULL;
    return 1;
}

/* Finds or adds a text; returns 0 where that cannot be. */
static int code_of(Scanner *s, Text text, u32 *row) {
    u64 hash = mix(s->seed, text.at, text.size);
    if (UNLIKELY(s->words.used * 2 >= s->words.mask) && !grow(&s->words)) return starved(s) != NULL;
    size_t at = hash & s->words.mask;
    for (int tried = 0; s->words.places[at].code; at = (at + 1) & s->words.mask) {
        Place place = s->words.places[at];
        if (place.hash == hash && same(text_in(&s->texts, place.code - 1), text)) {
            *row = place.code - 1;
            return 1;
        }
        if (++tried > PROBES) return bad(s, s->buffer.data, "too many texts alike") != NULL;
    }
    if (s->words.used > UINT32_MAX / 2) return bad(s, s->buffer.data, "too many texts") != NULL;
    *row = (u32)s->words.used++;
    s->words.places[at] = (Place){hash, *row + 1};
    return add_text(&s->texts, text, 1) || starved(s) != NULL;
}

#define PUT(word) put(&s->scratch, word, sizeof(word) - 1)

static int put_stated(Scanner *s, const Event *e, int which) {
    const Text *text = &e->stated[which];
    return e->has_stated >> which & 1 ? put(&s->scratch, text->at, text->size) : PUT("null");
}

/* Writes what an operator states of its operands, or a kernel of its launch; returns 0 for no memory. */
static int write_stated(Scanner *s, const Event *e, u32 wanted) {
    static const char *const keys[] = {
        [GRID] = "\"grid\":",
        [BLOCK] = "\"block\":",
        [REGISTERS] = "\"registers per thread\":",
        [SHARED] = "\"shared memory\":",
        [OCCUPANCY] = "\"est. achieved occupancy %\":",
    };
    s->scratch.size = 0;
    if (wanted & KERNEL) {
        for (int i = GRID; i < STATED; i++) {
            if (!(e->has_stated >> i & 1)) continue;
            if (!put(&s->scratch, s->scratch.size ? "," : "{", 1) || !put(&s->scratch, keys[i], strlen(keys[i])) ||
                !put_stated(s, e, i))
                return 0;
        }
        return !s->scratch.size || PUT("}");
    }
    if (!(wanted & OPERATOR) || !e->mentions_dims) return 1;
    if (!PUT("{\"Input Dims\": ") || !put_stated(s, e, DIMS) || !PUT(", \"Input type\": ") || !put_stated(s, e, TYPES))
        return 0;
    if (wanted & ATTENDS && (!PUT(", \"Concrete Inputs\": ") || !put_stated(s, e, VALUES))) return 0;
    return PUT("}");
}

static int keep_odd(Scanner *s, const Event *e) {
    return add_i64(&s->odd_row, s->label.rows, 1) && add_text(&s->odd_ts, e->ts, !!(e->seen & TS)) &&
           add_text(&s->odd_dur, e->dur, !!(e->seen & DUR));
}

static int add_row(Scanner *s, const Row *r) {
    return add_u32(&s->label, r->label, 1) && add_i64(&s->t, r->t, r->has_t) && add_i64(&s->dur, r->dur, r->has_dur) &&
           add_i64(&s->correlation, r->correlation, r->has_correlation) &&
           add_i64(&s->external, r->external, r->has_external) && add_u32(&s->args, r->args, r->has_args);
}

/* Keeps a complete event as a row; returns 0 where that cannot be. */
static int keep_row(Scanner *s, const Event *e, Row *row) {
    u32 label = 0, code = 0;
    if (e->other_name) return bad(s, s->buffer.data, "a name that is no text") != NULL;
    if (!label_of(s, e, &label)) return 0;
    u32 wanted = ((const u32 *)(const void *)s->wanted.values.data)[label];
    if (UNLIKELY(!e->plain_ts || (e->seen & DUR && !e->plain_dur)) && !keep_odd(s, e)) return starved(s) != NULL;
    if (!write_stated(s, e, wanted)) return starved(s) != NULL;
    int states = s->scratch.size > 0;
    if (states && !code_of(s, (Text){s->scratch.data, s->scratch.size}, &code)) return 0;
    *row = (Row){.label = label, .args = code, .has_args = (u8)states, .t = e->t, .dur = e->length};
    row->correlation = e->correlation;
    row->external = e->external;
    row->has_t = (u8)e->plain_ts;
    row->has_dur = (u8)e->plain_dur;
    row->has_correlation = e->has_correlation && wanted & LINKED;
    row->has_external = e->has_external && wanted & ASKED;
    return add_row(s, row) || starved(s) != NULL;
}

enum { NO_ROW, A_ROW, AN_ARROW, NOT_KEPT };

/* Keeps what an event says, by its phase; returns what became of it, NOT_KEPT where that cannot be. */
static int keep(Scanner *s, const Event *e, Text whole, Row *row) {
    if (!e->ph.size) {
        s->empty++;
        return NO_ROW;
    }
    if (e->ph.size == 1) {
        u8 ph = e->ph.at[0];
        if (ph == 's' || ph == 't' || ph == 'f') return AN_ARROW;
        s->read++;
        if (ph == 'X') return keep_row(s, e, row) ? A_ROW : NOT_KEPT;
    } else {
        s->read++;
    }
    if ((s->others.size && !put(&s->others, ",", 1)) || !put(&s->others, whole.at, whole.size)) {
        starved(s);
        return NOT_KEPT;
    }
    return NO_ROW;
}

/* ---- shapes ---- */

#define FAR (~(u64)0)
#define NEAR ((u64)0xFFFFFFFF)

/* Returns whether n bytes are the same; 16 more of each can be read. */
static inline int agree(const u8 *a, const u8 *b, size_t n) {
    for (; n >= 16; n -= 16, a += 16, b += 16)
        if (memcmp(a, b, 16)) return 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (n >= 8) {
        if (word_at(a) != word_at(b)) return 0;
        n -= 8;
        a += 8;
        b += 8;
    }
    return !n || !((word_at(a) ^ word_at(b)) << (64 - 8 * n));
#else
    return !memcmp(a, b, n);
#endif
}

/* Returns where it stands what followed the last shapes: all that are kept (FAR), or the last two (NEAR). */
static inline u16 *follower(Scanner *s, u64 which) {
    u64 hash = (s->history & which) * 0x9E3779B97F4A7C15u;
    return s->followers + (hash ^ hash >> 29) % FOLLOWERS;
}

static void note_shape(Scanner *s, u32 place) {
    *follower(s, NEAR) = *follower(s, FAR) = (u16)(place + 1);
    s->history = s->history << 16 | (place + 1);
}

static int makes_shapes(Scanner *s) {
    if (!s->shapes) s->shapes = calloc(SHAPES, sizeof *s->shapes);
    if (!s->followers) s->followers = calloc(FOLLOWERS, sizeof *s->followers);
    return s->shapes && s->followers;
}

/* Remembers the shape of an event (from `first` to `end`) and the row that it gave; without memory, none. */
static void learn(Scanner *s, const Event *e, const u8 *first, const u8 *end, const Row *row) {
    u16 sizes[HOLES + 1];
    Bytes *letters = &s->scratch;
    if (e->n_holes > HOLES || end - first > LONGEST_SHAPE || !makes_shapes(s)) return;
    letters->size = 0;
    for (int i = 0; i <= e->n_holes; i++) {
        const u8 *until = i < e->n_holes ? e->holes[i].at : end;
        sizes[i] = (u16)(until - first);
        if (!put(letters, first, sizes[i])) return;
        if (i < e->n_holes) first = e->holes[i].end;
    }
    u64 hash = mix(s->seed, letters->data, letters->size);
    u32 place = (u32)(hash >> 20) & (SHAPES - 1);
    Shape *shape = s->shapes + place;
    note_shape(s, place);
    if (shape->letters && shape->hash == hash && shape->size == letters->size) return;
    if (shape->room < letters->size + 16) {
        free(shape->letters);
        *shape = (Shape){.letters = malloc(letters->size + 16), .room = (u32)letters->size + 16};
        if (!shape->letters) return;
    }
    memcpy(shape->letters, letters->data, letters->size);
    memset(shape->letters + letters->size, 0, 16);
    memcpy(shape->sizes, sizes, sizeof sizes);
    for (int i = 0; i < e->n_holes; i++) shape->meanings[i] = (u8)e->holes[i].meaning;
    shape->hash = hash;
    shape->size = (u32)letters->size;
    shape->n_holes = e->n_holes;
    shape->is_arrow = !row;
    if (row) shape->row = *row;
}

/* Reads a number of a shape; returns the first byte behind it, NULL where it is not as the shape's. */
static inline const u8 *hole_end(Scanner *s, const u8 *p, Meaning meaning, Row *row) {
    const u8 *first = p;
    u64 n = 0;
    int plain = 1;
    Text text;
    switch (meaning) {
    case START:
        p = time_end(s, p, &text, &row->t, &plain);
        return plain ? p : NULL;
    case DURATION:
        p = time_end(s, p, &text, &row->dur, &plain);
        return plain ? p : NULL;
    case CORRELATION:
    case EXTERNAL:
        p = whole_number(p, &n);
        if (p == first || p - first > 18 || (*first == '0' && p - first > 1)) return NULL;
        *(meaning == CORRELATION ? &row->correlation : &row->external) = (i64)n;
        return p;
    default:
        return (u8)(*p - '0') <= 9 || *p == '-' ? number_end(s, p) : NULL;
    }
}

/* Reads an event that has a shape; returns the first byte behind it, NULL where it has another one. The row is
   as the shape's but for its numbers. */
static const u8 *shape_end(Scanner *s, const u8 *p, const Shape *shape, Row *row) {
    const u8 *letters = shape->letters;
    if (!letters) return NULL;
    *row = shape->row;
    for (int i = 0;; i++) {
        size_t size = shape->sizes[i];
        if ((size_t)(s->end - p) < size || !agree(p, letters, size)) return NULL;
        p += size;
        letters += size;
        if (i == shape->n_holes) return p;
        p = hole_end(s, p, (Meaning)shape->meanings[i], row);
        if (!p) return NULL;
    }
}

/* The same, for the shape that is expected here. */
static const u8 *expected_end(Scanner *s, const u8 *p, Shape **shape, Row *row) {
    if (!s->followers) return NULL;
    u16 far = *follower(s, FAR), near = *follower(s, NEAR);
    const u8 *end = NULL;
    if (far) end = shape_end(s, p, *shape = s->shapes + (far - 1), row);
    if (!end && near && near != far) end = shape_end(s, p, *shape = s->shapes + (near - 1), row);
    return end;
}

/* Reads an event that begins at p; returns the first byte behind it, NULL for none. */
static const u8 *one(Scanner *s, const u8 *p) {
    Event e;
    Row row;
    Shape *shape;
    const u8 *first = p;
    p = expected_end(s, first, &shape, &row);
    if (p) {
        note_shape(s, (u32)(shape - s->shapes));
        if (shape->is_arrow) return p;
        s->read++;
        return add_row(s, &row) || starved(s) ? p : NULL;
    }
    memset(&e, 0, offsetof(Event, stated));
    p = event_end(s, first + 1, &e);
    if (!p) return NULL;
    int kept = keep(s, &e, (Text){first, (size_t)(p - first)}, &row);
    if (kept == NOT_KEPT) return NULL;
    if (kept == AN_ARROW || (kept == A_ROW && e.plain_ts && (e.plain_dur || !(e.seen & DUR))))
        learn(s, &e, first, p, kept == A_ROW ? &row : NULL);
    return p;
}

/* Reads as many events as are whole; sets the state. */
static void scan(Scanner *s) {
    const u8 *p = s->buffer.data + s->done;
    s->end = s->buffer.data + s->buffer.size;
    while (s->state == READY) {
        p = blank(p);
        s->done = (size_t)(p - s->buffer.data);
        if (p >= s->end) return;
        if (s->expects == AFTER) {
            if (*p == ',') {
                s->expects = EVENT;
                p++;
                continue;
            }
            if (*p == ']') {
                s->state = ENDED;
                s->done++;
                return;
            }
        } else if (*p == '{') {
            if (s->base + (p - s->buffer.data) >= s->stop) {
                s->state = STOPPED;
                return;
            }
            p = one(s, p);
            if (p) {
                s->expects = s->lines ? EVENT : AFTER;
                s->done = (size_t)(p - s->buffer.data);
                continue;
            }
            if (s->fail >= s->end) { /* the rest of it is still to come */
                s->reason = "";
                return;
            }
            s->state = FAILED;
            return;
        } else if (s->expects == FIRST && *p == ']') {
            s->state = ENDED;
            s->done++;
            return;
        }
        bad(s, p, "something that is no event");
        s->state = FAILED;
    }
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

static void *taken(Bytes *b) {
    void *data = b->data ? b->data : calloc(1, 8);
    *b = (Bytes){0};
    return data;
}

/* Moves a column into an array; returns 0 for no memory. */
static int move_column(struct ArrowArray *array, struct ArrowSchema *schema, Column *c, const char *name) {
    static const char *const formats[] = {[U32] = "I", [I64] = "l", [TEXT] = "U"};
    array->buffers = calloc(3, sizeof *array->buffers);
    if (!array->buffers) return 0;
    array->length = c->rows;
    array->null_count = c->nulls;
    array->n_buffers = c->kind == TEXT ? 3 : 2;
    array->release = release_array;
    array->buffers[0] = taken(&c->valid);
    array->buffers[1] = taken(&c->values);
    if (c->kind == TEXT) array->buffers[2] = taken(&c->letters);
    c->rows = c->nulls = 0;
    *schema = (struct ArrowSchema){.format = formats[c->kind], .name = name, .flags = 2, .release = release_schema};
    return array->buffers[0] && array->buffers[1] && (c->kind != TEXT || array->buffers[2]);
}

/* Moves columns of one height into a table; returns 0 for no memory. What is there is released by its owner. */
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

/* Returns the pair of capsules in which a table leaves. */
static PyObject *exported(Column **columns, const char *const *names, int n) {
    struct ArrowSchema *schema = calloc(1, sizeof *schema);
    struct ArrowArray *array = calloc(1, sizeof *array);
    PyObject *types = NULL, *data = NULL, *pair = NULL;
    int moved = schema && array && move_table(array, schema, columns, names, n);
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

/* ---- Python ---- */

static int take_categories(Scanner *s, PyObject *categories) {
    Py_ssize_t n = PySequence_Size(categories);
    if (n < 0) return -1;
    s->n_categories = 0;
    if (n > (Py_ssize_t)(sizeof s->categories / sizeof *s->categories)) {
        PyErr_SetString(PyExc_ValueError, "too many categories");
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        const char *word;
        Py_ssize_t size;
        PyObject *pair = PySequence_GetItem(categories, i);
        int fine = pair && PyArg_ParseTuple(pair, "y#I", &word, &size, &s->categories[i].wanted);
        if (fine && (size_t)size > sizeof s->categories[i].word) {
            PyErr_SetString(PyExc_ValueError, "a category is too long");
            fine = 0;
        }
        if (fine) {
            memcpy(s->categories[i].word, word, (size_t)size);
            s->categories[i].size = (size_t)size;
            s->n_categories++;
        }
        Py_XDECREF(pair);
        if (!fine) return -1;
    }
    return 0;
}

static int scanner_init(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"categories", "attention", "seed", "begin", "stop", "inside", "lines", NULL};
    Scanner *s = (Scanner *)self;
    PyObject *categories;
    const char *word;
    Py_ssize_t size;
    unsigned long long seed;
    long long begin, stop;
    int inside, lines;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Oy#KLLpp", names, &categories, &word, &size, &seed, &begin, &stop, &inside, &lines))
        return -1;
    if ((size_t)size > sizeof s->attention) {
        PyErr_SetString(PyExc_ValueError, "a word is too long");
        return -1;
    }
    memcpy(s->attention, word, (size_t)size);
    s->attention_size = (size_t)size;
    s->seed = seed;
    s->base = begin;
    s->stop = stop;
    s->lines = lines;
    s->expects = inside || lines ? EVENT : FIRST;
    s->reason = "";
    s->t.kind = s->dur.kind = s->correlation.kind = s->external.kind = s->odd_row.kind = I64;
    s->cat.kind = s->name.kind = s->pid.kind = s->tid.kind = s->texts.kind = s->odd_ts.kind = s->odd_dur.kind = TEXT;
    return take_categories(s, categories);
}

static void scanner_free(PyObject *self) {
    Scanner *s = (Scanner *)self;
    Column *columns[] = {&s->label, &s->t, &s->dur, &s->correlation, &s->external, &s->args, &s->cat, &s->name,
                         &s->pid, &s->tid, &s->wanted, &s->texts, &s->odd_row, &s->odd_ts, &s->odd_dur};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) clear_column(columns[i]);
    discard(&s->buffer);
    discard(&s->others);
    discard(&s->scratch);
    free(s->labels.places);
    free(s->words.places);
    for (u32 i = 0; s->shapes && i < SHAPES; i++) free(s->shapes[i].letters);
    free(s->shapes);
    free(s->followers);
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Makes room behind what is not read yet, at the beginning of the buffer; returns 0 for no memory. */
static int take_bytes(Scanner *s, const void *data, size_t size) {
    Bytes *b = &s->buffer;
    if (s->done) {
        memmove(b->data, b->data + s->done, b->size - s->done);
        b->size -= s->done;
        s->base += (i64)s->done;
        s->done = 0;
    }
    if (!reserve(b, size + SLACK) || !put(b, data, size)) return 0;
    memset(b->data + b->size, 0, SLACK);
    return 1;
}

static int is_busy(const Scanner *s) {
    if (s->busy) PyErr_SetString(PyExc_RuntimeError, "a scanner reads for one thread at a time");
    return s->busy;
}

static PyObject *scanner_feed(PyObject *self, PyObject *data) {
    Scanner *s = (Scanner *)self;
    Py_buffer view;
    int fits = 1;
    if (is_busy(s) || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) return NULL;
    s->busy = 1;
    Py_BEGIN_ALLOW_THREADS;
    fits = take_bytes(s, view.buf, (size_t)view.len);
    if (fits && (!view.len || s->buffer.size - s->done >= s->enough)) scan(s);
    size_t left = s->buffer.size - s->done;
    if (fits && s->state == READY && left > LARGEST_EVENT) {
        bad(s, s->buffer.data, "an event that is too large");
        s->state = FAILED;
    }
    s->enough = left * 2; /* so that an event that comes in small pieces is not begun anew for each */
    Py_END_ALLOW_THREADS;
    s->busy = 0;
    PyBuffer_Release(&view);
    if (!fits) return PyErr_NoMemory();
    return PyBool_FromLong(s->state == READY);
}

static PyObject *scanner_rest(PyObject *self, PyObject *unused) {
    (void)unused;
    Scanner *s = (Scanner *)self;
    if (is_busy(s)) return NULL;
    return PyBytes_FromStringAndSize((const char *)s->buffer.data + s->done, (Py_ssize_t)(s->buffer.size - s->done));
}

static PyObject *scanner_others(PyObject *self, PyObject *unused) {
    (void)unused;
    Scanner *s = (Scanner *)self;
    if (is_busy(s)) return NULL;
    return PyBytes_FromStringAndSize((const char *)s->others.data, (Py_ssize_t)s->others.size);
}

static PyObject *scanner_status(PyObject *self, PyObject *unused) {
    (void)unused;
    Scanner *s = (Scanner *)self;
    if (is_busy(s)) return NULL;
    static const char *const states[] = {"reading", "stopped", "ended", "failed"};
    long long at = (long long)(s->base + (i64)s->done);
    return Py_BuildValue("sLsLL", states[s->state], at, s->reason, (long long)s->read, (long long)s->empty);
}

static PyObject *scanner_rows(PyObject *self, PyObject *unused) {
    (void)unused;
    Scanner *s = (Scanner *)self;
    if (is_busy(s)) return NULL;
    static const char *const names[] = {"label", "t", "dur", "correlation", "external", "args"};
    Column *columns[] = {&s->label, &s->t, &s->dur, &s->correlation, &s->external, &s->args};
    return exported(columns, names, 6);
}

static PyObject *scanner_labels(PyObject *self, PyObject *unused) {
    (void)unused;
    Scanner *s = (Scanner *)self;
    if (is_busy(s)) return NULL;
    static const char *const names[] = {"cat", "name", "pid", "tid"};
    Column *columns[] = {&s->cat, &s->name, &s->pid, &s->tid};
    s->state = FAILED; /* nothing is read into what is gone */
    free(s->labels.places);
    s->labels = (Table){0};
    return exported(columns, names, 4);
}

static PyObject *scanner_texts(PyObject *self, PyObject *unused) {
    (void)unused;
    Scanner *s = (Scanner *)self;
    if (is_busy(s)) return NULL;
    static const char *const names[] = {"text"};
    Column *columns[] = {&s->texts};
    s->state = FAILED;
    free(s->words.places);
    s->words = (Table){0};
    return exported(columns, names, 1);
}

static PyObject *scanner_odd(PyObject *self, PyObject *unused) {
    (void)unused;
    Scanner *s = (Scanner *)self;
    if (is_busy(s)) return NULL;
    static const char *const names[] = {"row", "ts", "dur"};
    Column *columns[] = {&s->odd_row, &s->odd_ts, &s->odd_dur};
    return exported(columns, names, 3);
}

static PyMethodDef methods[] = {
    {"feed", scanner_feed, METH_O, "feed(data) reads the next bytes, none at the end; returns whether it wants more."},
    {"rest", scanner_rest, METH_NOARGS, "rest() returns the bytes that were fed and not read."},
    {"others", scanner_others, METH_NOARGS, "others() returns the events that are no rows, as JSON with commas."},
    {"status", scanner_status, METH_NOARGS, "status() returns state, offset, reason, events read, events without a phase."},
    {"rows", scanner_rows, METH_NOARGS, "rows() gives the complete events away, as Arrow capsules."},
    {"labels", scanner_labels, METH_NOARGS, "labels() gives the distinct labels away, as Arrow capsules."},
    {"texts", scanner_texts, METH_NOARGS, "texts() gives the distinct stated texts away, as Arrow capsules."},
    {"odd", scanner_odd, METH_NOARGS, "odd() gives the times away that are no plain numbers, as Arrow capsules."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Reads a list of trace events, fed to it in pieces, into columns."},
    {Py_tp_init, scanner_init},
    {Py_tp_dealloc, scanner_free},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {"_events.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT, slots};

/* Counts up with every change of what a caller sees; `scan/__init__.py` names the one that it knows. */
#define VERSION 1

static int fill_module(PyObject *module) {
    PyObject *type = PyType_FromSpec(&spec);
    if (!type) return -1;
    int failed = PyModule_AddObjectRef(module, "Scanner", type);
    Py_DECREF(type);
    return failed ? failed : PyModule_AddIntConstant(module, "VERSION", VERSION);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_events",
    .m_doc = "Reads the events of Chrome traces into columns.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__events(void) { return PyModuleDef_Init(&module); }
