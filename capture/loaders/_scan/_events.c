/* Reads the events of a Chrome trace, in any JSON layout, into columns, without an object per event.

   A Scanner is fed the bytes of a list of events, piece by piece, and collects what the loader needs of each
   event: its label (category, name, process, thread), its times in whole nanoseconds, the ids that link it to
   other events, and the details of a launch or of operands. Columns are exported as Arrow structs (the C data
   interface).

   It accepts less than a strict JSON parser: anything unusual ends the scan with a reason, and the caller
   reads the file with another reader. The scanner never guesses or repairs.

   Safety: the bytes are in a buffer of our own, followed by zeros. A zero is illegal everywhere in JSON, so
   every loop stops at it; a stop at the end of the buffer means that more bytes are needed. Nesting is
   tracked in an array, not on the stack. An event that arrives in pieces is read at most twice.

   Speed: most events equal an earlier one except for some numbers. The bytes between the numbers are
   remembered as a shape. An event that has the bytes of the predicted shape gives the same row with other
   numbers; only the others are parsed. */

#include "shapes.h"

#define MAX_DEPTH 128 /* levels of nesting inside one event */
#define MAX_EVENT_BYTES ((size_t)1 << 30)

/* ---- the scanner ---- */

/* Fields to read of the events of a label; the first four as in compiled_reader.py. */
enum { READ_CORRELATION = 1, READ_EXTERNAL_ID = 2, READ_OPERANDS = 4, READ_LAUNCH_CONFIG = 8, HAS_VALUES = 16 };
enum { HAS_CAT = 1, HAS_NAME = 2 };
enum { READY, STOPPED, ENDED, FAILED };
enum { FIRST_EVENT, NEXT_EVENT, COMMA_OR_END };
enum {
    DIMS, TYPES, VALUES, STRIDES, /* of operators; the rest of kernels */
    GRID, BLOCK, REGISTERS, SHARED, OCCUPANCY, COLLECTIVE, SENT, RECEIVED, ELEMENT_TYPE, GROUP_SIZE, N_DETAILS
};
enum { PH = 1, CAT = 2, NAME = 4, PID = 8, TID = 16, TS = 32, DUR = 64, ARGS = 128, ID = 256 };

typedef struct {
    char word[32];
    size_t size;
    u32 fields;
} Category;

/* Meaning of a number of an event. Events of one shape may differ in all of them except FIXED ones. */
typedef enum { START, DURATION, CORRELATION, EXTERNAL, NUMBER, FIXED } Meaning;

typedef struct {
    u32 label, args;
    i64 t, dur, correlation, external;
    u8 has_t, has_dur, has_correlation, has_external, has_args;
    u8 is_arrow; /* flow arrows give no row */
} Row;

typedef struct {
    unsigned keys;
    Text ph, cat, name, pid, tid, ts, dur;
    u32 has;
    int name_is_not_text;            /* it is a number or a boolean */
    int has_plain_ts, has_plain_dur; /* then t and length hold the values */
    i64 t, length;
    int has_correlation, has_external, has_sequence, mentions_dims, mentions_step;
    int is_graph_node, has_annotation; /* of torch: what the node of a replayed graph is called */
    unsigned has_details; /* a bit per detail */
    i64 correlation, external;
    int n_holes;             /* HOLES + 1 if there are more than fit */
    Text details[N_DETAILS]; /* from here on fields are not cleared: read them only if set */
    Hole holes[HOLES];
} Event;

typedef struct {
    /* clang-format off */
    PyObject_HEAD
    Bytes buffer;        /* input that is not read completely */
    size_t consumed;     /* bytes of the buffer that are read */
    i64 base;            /* offset of the buffer in the input */
    i64 stop;            /* events that begin at this offset or later are not read */
    int state, expects, busy;
    int lines;           /* the input is events without commas, not a list */
    size_t min_unread;   /* unread bytes needed before the incomplete event is tried again */
    const char *reason;
    const u8 *end, *error_at;
    u64 seed;
    Category categories[16];
    int n_categories;
    char valued[3][32];  /* words in the names of operators whose values are kept */
    size_t valued_size[3];
    i64 read, empty;     /* events with a phase, events without */
    Column label, t, dur, correlation, external, args;
    Column cat, name, pid, tid, fields;
    Column texts;
    Column odd_row, odd_ts, odd_dur;
    Bytes others, scratch;
    Table labels, words;
    Shapes shapes;
    Row *row_by_shape;   /* NULL before the first shape */
    /* clang-format on */
} Scanner;

static const u8 *reject(Scanner *s, const u8 *p, const char *reason) {
    s->error_at = p;
    s->reason = reason;
    return NULL;
}

static const u8 *reject_no_memory(Scanner *s) { return reject(s, s->buffer.data, NO_MEMORY); }

/* ---- JSON ---- */

static inline const u8 *skip_blanks(const u8 *p) {
    while (*p <= ' ' && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

static int is_hex(u8 c) { return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f'); }

static int hex(const u8 *p) {
    int value = 0;
    for (int i = 0; i < 4; i++) value = value * 16 + (p[i] <= '9' ? p[i] - '0' : (p[i] | 32) - 'a' + 10);
    return value;
}

/* The functions below take a position and return the position after what they read, or NULL: then `reason` and
   `error_at` are set. */

/* Skips an escape; p is after its backslash. */
static const u8 *skip_escape(Scanner *s, const u8 *p) {
    if (*p && strchr("\"\\/bfnrt", *p)) return p + 1;
    if (*p != 'u') return reject(s, p, "an unknown escape in a text");
    for (int i = 1; i <= 4; i++)
        if (!is_hex(p[i])) return reject(s, p + i, "an unknown escape in a text");
    int unit = hex(p + 1);
    if (unit < 0xD800 || unit > 0xDFFF) return p + 5;
    if (unit > 0xDBFF) return reject(s, p, "half a character in a text");
    for (int i = 0; i < 6; i++) {
        u8 c = p[5 + i];
        int ok = i == 0 ? c == '\\' : i == 1 ? c == 'u' : is_hex(c);
        if (!ok) return reject(s, p + 5 + i, "half a character in a text");
    }
    unit = hex(p + 7);
    if (unit < 0xDC00 || unit > 0xDFFF) return reject(s, p + 5, "half a character in a text");
    return p + 11;
}

static const u8 *skip_character(Scanner *s, const u8 *p) {
    const u8 *error_at, *end = skip_utf8(p, &error_at);
    return end ? end : reject(s, error_at, "bytes that are not UTF-8");
}

/* Skips plain bytes of a text: stops at a quote, a backslash, a control character or a byte above ASCII. Tests
   eight bytes at a time; a borrow may mark a byte wrongly, but never the lowest marked one. */
static inline const u8 *skip_plain(const u8 *p) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const u64 ones = 0x0101010101010101u, tops = 0x80 * ones;
    for (;; p += 8) {
        u64 word, quote, slash;
        memcpy(&word, p, 8);
        quote = word ^ '"' * ones;
        slash = word ^ '\\' * ones;
        u64 hits = ((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((word - ' ' * ones) & ~word) | word;
        if (hits & tops) return p + (__builtin_ctzll(hits & tops) >> 3);
    }
#else
    while (*p != '"' && *p != '\\' && *p >= 0x20 && *p < 0x80) p++;
    return p;
#endif
}

/* Returns the closing quote of a text; p is after the opening one. Clears `plain` if the text has an escape. */
static inline const u8 *find_closing_quote(Scanner *s, const u8 *p, int *plain) {
    for (;;) {
        p = skip_plain(p);
        if (LIKELY(*p == '"')) return p;
        if (*p == '\\') {
            *plain = 0;
            p = skip_escape(s, p + 1);
        } else if (*p >= 0x80) {
            p = skip_character(s, p);
        } else {
            return reject(s, p, "a control character in a text");
        }
        if (!p) return NULL;
    }
}

static inline const u8 *skip_digits(const u8 *p) {
    while ((u8)(*p - '0') <= 9) p++;
    return p;
}

static const u8 *skip_number(Scanner *s, const u8 *p) {
    if (*p == '-') p++;
    if (*p == '0') {
        p++;
    } else {
        const u8 *first = p;
        p = skip_digits(p);
        if (p == first) return reject(s, p, "an invalid value");
    }
    if (*p == '.') {
        const u8 *first = ++p;
        p = skip_digits(p);
        if (p == first) return reject(s, p, "a number without its digits");
    }
    if ((*p | 32) == 'e') {
        p++;
        if (*p == '+' || *p == '-') p++;
        const u8 *first = p;
        p = skip_digits(p);
        if (p == first) return reject(s, p, "a number without its digits");
    }
    return p;
}

static const u8 *skip_literal(Scanner *s, const u8 *p) {
    const char *word = *p == 't' ? "true" : *p == 'f' ? "false" : *p == 'n' ? "null" : "";
    const u8 *first = p;
    for (; *word; word++, p++)
        if (*p != (u8)*word) return reject(s, p, "an invalid value");
    return p == first ? reject(s, p, "an invalid value") : p;
}

#define IS(text, word) ((text).size == sizeof(word) - 1 && !memcmp((text).at, word, sizeof(word) - 1))

/* Returns the bit of a key of an event; 0 if it is not read. */
static inline unsigned find_event_key(Text key) {
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

/* Reads an id that links events: 1 to 18 digits at p. A second one is ignored. Returns the meaning of the number:
   `meaning` if it was read. */
static inline Meaning read_link(const u8 *p, int *has, i64 *value, Meaning meaning) {
    u64 n = 0;
    if (*has) return NUMBER;
    const u8 *end = read_digits(p, &n);
    if (end == p || end - p > 18) return FIXED;
    *has = 1;
    *value = (i64)n;
    return *end == '.' || (*end | 32) == 'e' ? FIXED : meaning;
}

/* Returns the meaning of a number that follows a key of the arguments; reads it if it links events. */
static inline Meaning classify_argument(Event *e, Text key, const u8 *value) {
    if (key.size == 11) {
        if (IS(key, "correlation")) return read_link(value, &e->has_correlation, &e->correlation, CORRELATION);
        if (!memcmp(key.at + 1, "xternal id", 10) && (key.at[0] == 'E' || key.at[0] == 'e'))
            return read_link(value, &e->has_external, &e->external, EXTERNAL);
    } else if (key.size == 10 && IS(key, "Input Dims")) {
        e->mentions_dims = 1;
    } else if (key.size == 8 && IS(key, "step_num")) {
        e->mentions_step = 1;
    }
    return NUMBER;
}

static inline void add_hole(Event *e, const u8 *at, const u8 *end, Meaning meaning) {
    if (e->n_holes < HOLES) e->holes[e->n_holes] = (Hole){at, end, (int)meaning};
    e->n_holes += e->n_holes <= HOLES;
}

/* Returns the detail that a key of the arguments names; N_DETAILS for other keys. */
static inline int find_detail(Text key) {
    switch (key.size) {
    case 4:
        return IS(key, "grid") ? GRID : N_DETAILS;
    case 5:
        return IS(key, "block") ? BLOCK : IS(key, "dtype") ? ELEMENT_TYPE : N_DETAILS;
    case 10:
        if (IS(key, "Group size")) return GROUP_SIZE;
        return IS(key, "Input Dims") ? DIMS : IS(key, "Input type") ? TYPES : N_DETAILS;
    case 13:
        if (IS(key, "Input Strides")) return STRIDES;
        return IS(key, "shared memory") ? SHARED : IS(key, "In msg nelems") ? SENT : N_DETAILS;
    case 14:
        return IS(key, "Out msg nelems") ? RECEIVED : N_DETAILS;
    case 15:
        return IS(key, "Concrete Inputs") ? VALUES : IS(key, "Collective name") ? COLLECTIVE : N_DETAILS;
    case 20:
        return IS(key, "registers per thread") ? REGISTERS : N_DETAILS;
    case 25:
        return IS(key, "est. achieved occupancy %") ? OCCUPANCY : N_DETAILS;
    default:
        return N_DETAILS;
    }
}

/* Reads a key and its colon; p is after the opening quote. Returns the position of the value. */
static inline const u8 *read_key(Scanner *s, const u8 *p, Text *key) {
    int plain = 1;
    const u8 *quote = find_closing_quote(s, p, &plain);
    if (!quote) return NULL;
    if (!plain) return reject(s, p, "an escape in a key");
    *key = (Text){p, (size_t)(quote - p)};
    p = skip_blanks(quote + 1);
    if (*p != ':') return reject(s, p, "a key without a value");
    return skip_blanks(p + 1);
}

/* Skips a value. If it is the arguments of an event (`args` is not NULL), their details are collected. */
static const u8 *skip_value(Scanner *s, const u8 *p, Event *args) {
    u8 keys[MAX_DEPTH]; /* per open object, bits of the event keys in it; ARRAY for an array */
    enum { ARRAY = 0x80 };
    int depth = 0, details = N_DETAILS, plain;
    const u8 *since = NULL;
    Meaning meaning = FIXED; /* of the next value, if it is a number */
    Text key;
value:
    if (*p == '"') {
        p = find_closing_quote(s, p + 1, &plain);
        if (!p) return NULL;
        p++;
    } else if (*p == '{') {
        if (depth == MAX_DEPTH) return reject(s, s->buffer.data, "nested too deep");
        keys[depth++] = 0;
        p = skip_blanks(p + 1);
        if (*p != '}') goto key;
        p++;
        depth--;
    } else if (*p == '[') {
        if (depth == MAX_DEPTH) return reject(s, s->buffer.data, "nested too deep");
        keys[depth++] = ARRAY;
        p = skip_blanks(p + 1);
        if (*p != ']') goto value;
        p++;
        depth--;
    } else if ((u8)(*p - '0') <= 9 || *p == '-') {
        const u8 *first = p;
        p = skip_number(s, p);
        if (!p) return NULL;
        if (depth == 1 && meaning != FIXED) add_hole(args, first, p, meaning);
    } else {
        p = skip_literal(s, p);
        if (!p) return NULL;
    }
after:
    if (!depth) return p;
    if (details != N_DETAILS && depth == 1) {
        args->details[details] = (Text){since, (size_t)(p - since)};
        args->has_details |= 1u << details;
        details = N_DETAILS;
    }
    p = skip_blanks(p);
    if (keys[depth - 1] & ARRAY) {
        if (*p == ',') {
            p = skip_blanks(p + 1);
            goto value;
        }
        if (*p != ']') return reject(s, p, "a list without its end");
    } else {
        if (*p == ',') {
            p = skip_blanks(p + 1);
            goto key;
        }
        if (*p != '}') return reject(s, p, "an object without its end");
    }
    p++;
    depth--;
    goto after;
key:
    if (*p != '"') return reject(s, p, "a key that is not a text");
    p = read_key(s, p + 1, &key);
    if (!p) return NULL;
    unsigned bit = find_event_key(key) & (PH | CAT | NAME | PID | TID | TS | DUR);
    if (bit) {
        if (keys[depth - 1] & bit) return reject(s, s->buffer.data, "a key twice");
        keys[depth - 1] |= (u8)bit;
    }
    if (args) {
        meaning = classify_argument(args, key, p);
        if (depth == 1) {
            if (UNLIKELY(IS(key, "call_stack") || IS(key, "module_fqn")))
                return reject(s, s->buffer.data, "an event with a call stack or module");
            args->is_graph_node |= IS(key, "graph node id");
            args->has_sequence |= IS(key, "Sequence number"); /* of an operator that autograd notes */
            args->has_annotation |= IS(key, "name") || IS(key, "str") || IS(key, "annotation");
            if (UNLIKELY(args->is_graph_node && args->has_annotation))
                return reject(s, s->buffer.data, "an annotated node of a graph");
            details = find_detail(key);
            since = p;
            if (details != N_DETAILS) meaning = FIXED;
        }
    }
    goto value;
}

/* Reads a time in µs as whole nanoseconds, rounded half to even, if it is a plain number; else only its text. */
static const u8 *read_time(Scanner *s, const u8 *p, Text *text, i64 *ns, int *is_plain) {
    const u8 *first = p, *point;
    i64 value = 0;
    int negative = *p == '-';
    *is_plain = 0;
    if ((u8)(*p - '0') > 9 && !negative) {
        p = skip_value(s, p, NULL);
        if (p) *text = (Text){first, (size_t)(p - first)};
        return p;
    }
    p = skip_number(s, p);
    if (!p) return NULL;
    *text = (Text){first, (size_t)(p - first)};
    const u8 *q = first + negative;
    u64 integer = 0;
    q = read_digits(q, &integer);
    if (q - first > 15 || p - q > 20) return p; /* long numbers are parsed in Python */
    value = (i64)integer;
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

/* Reads a text or null; a category can be nothing else. */
static const u8 *read_word(Scanner *s, const u8 *p, Text *text, u32 *has, u32 bit, int *plain) {
    if (*p == '"') {
        const u8 *first = p + 1;
        p = find_closing_quote(s, first, plain);
        if (!p) return NULL;
        *text = (Text){first, (size_t)(p - first)};
        *has |= bit;
        return p + 1;
    }
    if (*p != 'n') return reject(s, p, "a category that is not a text");
    return skip_literal(s, p);
}

static const u8 *read_name(Scanner *s, const u8 *p, Event *e) {
    int plain;
    if (*p == '"' || *p == 'n') return read_word(s, p, &e->name, &e->has, HAS_NAME, &plain);
    if (*p == '{' || *p == '[') return reject(s, s->buffer.data, "a name that is not a text");
    e->name_is_not_text = 1;
    return skip_value(s, p, NULL);
}

static const u8 *read_process_or_thread(Scanner *s, const u8 *p, Text *text) {
    const u8 *first = p;
    if (*p == '{' || *p == '[') return reject(s, s->buffer.data, "a process or thread that is a list or object");
    p = skip_value(s, p, NULL);
    if (p) *text = (Text){first, (size_t)(p - first)};
    return p;
}

static const u8 *read_id(Scanner *s, const u8 *p, Event *e) {
    const u8 *first = p;
    p = skip_value(s, p, NULL);
    if (p && ((u8)(*first - '0') <= 9 || *first == '-')) add_hole(e, first, p, NUMBER);
    return p;
}

static const u8 *read_member(Scanner *s, const u8 *p, Event *e, unsigned bit) {
    int plain = 1;
    u32 has = 0;
    switch (bit) {
    case PH:
        if (*p != '"') return reject(s, p, "a phase that is not a text");
        p = read_word(s, p, &e->ph, &has, 1, &plain);
        break;
    case CAT:
        p = read_word(s, p, &e->cat, &e->has, HAS_CAT, &plain);
        break;
    case NAME:
        return read_name(s, p, e);
    case PID:
        return read_process_or_thread(s, p, &e->pid);
    case TID:
        return read_process_or_thread(s, p, &e->tid);
    case TS:
        p = read_time(s, p, &e->ts, &e->t, &e->has_plain_ts);
        if (p) add_hole(e, e->ts.at, p, START);
        return p;
    case DUR:
        p = read_time(s, p, &e->dur, &e->length, &e->has_plain_dur);
        if (p) add_hole(e, e->dur.at, p, DURATION);
        return p;
    case ID:
        return read_id(s, p, e);
    case ARGS:
        return skip_value(s, p, e);
    default:
        return skip_value(s, p, NULL);
    }
    if (p && !plain) return reject(s, s->buffer.data, "an escape in a category or phase");
    return p;
}

/* Reads an event; p is after its opening brace. */
static const u8 *read_event(Scanner *s, const u8 *p, Event *e) {
    Text key;
    p = skip_blanks(p);
    if (*p == '}') return p + 1;
    for (;;) {
        if (*p != '"') return reject(s, p, "a key that is not a text");
        p = read_key(s, p + 1, &key);
        if (!p) return NULL;
        unsigned bit = find_event_key(key);
        if (bit) {
            if (e->keys & bit) return reject(s, s->buffer.data, "a key twice");
            e->keys |= bit;
        }
        p = read_member(s, p, e, bit);
        if (!p) return NULL;
        p = skip_blanks(p);
        if (*p == '}') return p + 1;
        if (*p != ',') return reject(s, p, "an object without its end");
        p = skip_blanks(p + 1);
    }
}

static int are_equal(Text a, Text b) { return a.size == b.size && (!a.size || !memcmp(a.at, b.at, a.size)); }

static int contains(Text text, const char *word, size_t size) {
    for (size_t i = 0; size && i + size <= text.size; i++)
        if (text.at[i] == (u8)word[0] && !memcmp(text.at + i, word, size)) return 1;
    return 0;
}

/* Returns whether a text spells an ASCII letter as an escape, which would hide words from `contains`. */
static int has_escaped_letter(Text text) {
    for (size_t i = 0; i + 6 <= text.size; i++)
        if (text.at[i] == '\\' && !memcmp(text.at + i + 1, "u00", 3) && text.at[i + 4] >= '4' && text.at[i + 4] < '8') return 1;
    return 0;
}

static u32 find_fields(const Scanner *s, const Event *e) {
    u32 fields = 0;
    for (int i = 0; e->has & HAS_CAT && i < s->n_categories; i++) {
        Text word = {(const u8 *)s->categories[i].word, s->categories[i].size};
        if (are_equal(e->cat, word)) fields |= s->categories[i].fields;
    }
    for (int i = 0; i < 3; i++)
        if (e->has & HAS_NAME && contains(e->name, s->valued[i], s->valued_size[i])) fields |= HAS_VALUES;
    return fields;
}

static int has_label(const Scanner *s, u32 row, const Event *e) {
    if (is_valid(&s->cat, row) != !!(e->has & HAS_CAT) || is_valid(&s->name, row) != !!(e->has & HAS_NAME)) return 0;
    return are_equal(get_text(&s->name, row), e->name) && are_equal(get_text(&s->tid, row), e->tid) &&
           are_equal(get_text(&s->pid, row), e->pid) && are_equal(get_text(&s->cat, row), e->cat);
}

/* Finds or adds the label of an event; returns 0 if it is rejected. */
static int find_or_add_label(Scanner *s, const Event *e, u32 *row) {
    u64 hash = hash_text(s->seed ^ e->has, e->name.at, e->name.size);
    hash = hash_text(hash_text(hash_text(hash, e->cat.at, e->cat.size), e->tid.at, e->tid.size), e->pid.at, e->pid.size);
    if (UNLIKELY(s->labels.used * 2 >= s->labels.mask) && !grow_table(&s->labels)) return reject_no_memory(s) != NULL;
    size_t at = hash & s->labels.mask;
    for (int probes = 0; s->labels.slots[at].code; at = (at + 1) & s->labels.mask) {
        Slot place = s->labels.slots[at];
        if (place.hash == hash && has_label(s, place.code - 1, e)) {
            *row = place.code - 1;
            return 1;
        }
        if (++probes > MAX_PROBES) return reject(s, s->buffer.data, "too many names with equal hashes") != NULL;
    }
    if (s->labels.used > UINT32_MAX / 2) return reject(s, s->buffer.data, "too many names") != NULL;
    if (has_escaped_letter(e->name)) return reject(s, s->buffer.data, "a name that spells letters as escapes") != NULL;
    *row = (u32)s->labels.used++;
    s->labels.slots[at] = (Slot){hash, *row + 1};
    if (!add_text(&s->cat, e->cat, !!(e->has & HAS_CAT)) || !add_text(&s->name, e->name, !!(e->has & HAS_NAME)) ||
        !add_text(&s->pid, e->pid, 1) || !add_text(&s->tid, e->tid, 1) || !add_u32(&s->fields, find_fields(s, e), 1))
        return reject_no_memory(s) != NULL;
    return 1;
}

#define PUT(word) put(&s->scratch, word, sizeof(word) - 1)

static int put_detail(Scanner *s, const Event *e, int which) {
    const Text *text = &e->details[which];
    return e->has_details >> which & 1 ? put(&s->scratch, text->at, text->size) : PUT("null");
}

/* Writes the operands of an operator, or the launch configuration of a kernel, as JSON into `scratch`, which stays
   empty if there are none; returns 0 without memory. */
static int write_details(Scanner *s, const Event *e, u32 fields) {
    static const char *const keys[] = {
        [GRID] = "\"grid\":",
        [BLOCK] = "\"block\":",
        [REGISTERS] = "\"registers per thread\":",
        [SHARED] = "\"shared memory\":",
        [OCCUPANCY] = "\"est. achieved occupancy %\":",
        [COLLECTIVE] = "\"Collective name\":",
        [SENT] = "\"In msg nelems\":",
        [RECEIVED] = "\"Out msg nelems\":",
        [ELEMENT_TYPE] = "\"dtype\":",
        [GROUP_SIZE] = "\"Group size\":",
    };
    s->scratch.size = 0;
    if (fields & READ_LAUNCH_CONFIG) {
        for (int i = GRID; i < N_DETAILS; i++) {
            if (!(e->has_details >> i & 1)) continue;
            if (!put(&s->scratch, s->scratch.size ? "," : "{", 1) || !put(&s->scratch, keys[i], strlen(keys[i])) ||
                !put_detail(s, e, i))
                return 0;
        }
        return !s->scratch.size || PUT("}");
    }
    if (!(fields & READ_OPERANDS) || !e->mentions_dims) return 1;
    if (!PUT("{\"Input Dims\": ") || !put_detail(s, e, DIMS) || !PUT(", \"Input type\": ") || !put_detail(s, e, TYPES))
        return 0;
    if (fields & HAS_VALUES && (!PUT(", \"Concrete Inputs\": ") || !put_detail(s, e, VALUES))) return 0;
    int has_strides = fields & HAS_VALUES && e->has_details >> STRIDES & 1;
    if (has_strides && (!PUT(", \"Input Strides\": ") || !put_detail(s, e, STRIDES))) return 0;
    if (e->has_sequence && !PUT(", \"Sequence number\": 0")) return 0;
    return PUT("}");
}

static int add_odd_times(Scanner *s, const Event *e) {
    return add_i64(&s->odd_row, s->label.rows, 1) && add_text(&s->odd_ts, e->ts, !!(e->keys & TS)) &&
           add_text(&s->odd_dur, e->dur, !!(e->keys & DUR));
}

static int add_row(Scanner *s, const Row *r) {
    return add_u32(&s->label, r->label, 1) && add_i64(&s->t, r->t, r->has_t) && add_i64(&s->dur, r->dur, r->has_dur) &&
           add_i64(&s->correlation, r->correlation, r->has_correlation) &&
           add_i64(&s->external, r->external, r->has_external) && add_u32(&s->args, r->args, r->has_args);
}

/* Adds the row of a complete event; returns 0 if the event is rejected. */
static int add_event_row(Scanner *s, const Event *e, Row *row) {
    u32 label = 0, code = 0;
    if (e->name_is_not_text) return reject(s, s->buffer.data, "a name that is not a text") != NULL;
    if (!find_or_add_label(s, e, &label)) return 0;
    u32 fields = ((const u32 *)(const void *)s->fields.values.data)[label];
    int is_odd = !e->has_plain_ts || (e->keys & DUR && !e->has_plain_dur);
    if (UNLIKELY(is_odd) && !add_odd_times(s, e)) return reject_no_memory(s) != NULL;
    if (!write_details(s, e, fields)) return reject_no_memory(s) != NULL;
    int has_details = s->scratch.size > 0;
    if (has_details) {
        Text text = {s->scratch.data, s->scratch.size};
        const char *reason = find_or_add_text(&s->words, &s->texts, s->seed, text, &code);
        if (reason) return reject(s, s->buffer.data, reason) != NULL;
    }
    *row = (Row){.label = label, .args = code, .has_args = (u8)has_details, .t = e->t, .dur = e->length};
    row->correlation = e->correlation;
    row->external = e->external;
    row->has_t = (u8)e->has_plain_ts;
    row->has_dur = (u8)e->has_plain_dur;
    row->has_correlation = e->has_correlation && fields & READ_CORRELATION;
    row->has_external = e->has_external && fields & READ_EXTERNAL_ID;
    return add_row(s, row) || reject_no_memory(s) != NULL;
}

enum { NO_ROW, ROW_ADDED, ARROW, REJECTED };

/* Adds an event according to its phase; returns the outcome. One that states the number of a step stays a text. */
static int add_event(Scanner *s, const Event *e, Text text, Row *row) {
    if (!e->ph.size) {
        s->empty++;
        return NO_ROW;
    }
    if (e->ph.size == 1) {
        u8 ph = e->ph.at[0];
        if (ph == 's' || ph == 't' || ph == 'f') return ARROW;
        s->read++;
        if (ph == 'X' && !e->mentions_step) return add_event_row(s, e, row) ? ROW_ADDED : REJECTED;
    } else {
        s->read++;
    }
    if ((s->others.size && !put(&s->others, ",", 1)) || !put(&s->others, text.at, text.size)) {
        reject_no_memory(s);
        return REJECTED;
    }
    return NO_ROW;
}

/* ---- shapes of events ---- */

/* Remembers the shape of an event (from `first` to `end`) and its row. */
static void remember_event(Scanner *s, const Event *e, const u8 *first, const u8 *end, const Row *row) {
    int place, is_new;
    if (!s->row_by_shape) s->row_by_shape = calloc(SHAPES, sizeof *s->row_by_shape);
    if (!s->row_by_shape) return;
    place = remember_shape(&s->shapes, s->seed, e->holes, e->n_holes, first, end, &s->scratch, &is_new);
    if (place >= 0 && is_new) s->row_by_shape[place] = *row;
}

/* Reads a number at a hole of a shape; returns the position after it, NULL if it does not fit. */
static inline const u8 *read_hole(void *scanner, const u8 *p, int meaning, void *into) {
    Row *row = into;
    const u8 *first = p;
    u64 n = 0;
    int plain = 1;
    Text text;
    switch ((Meaning)meaning) {
    case START:
        p = read_time(scanner, p, &text, &row->t, &plain);
        return plain ? p : NULL;
    case DURATION:
        p = read_time(scanner, p, &text, &row->dur, &plain);
        return plain ? p : NULL;
    case CORRELATION:
    case EXTERNAL:
        p = read_digits(p, &n);
        if (p == first || p - first > 18 || (*first == '0' && p - first > 1)) return NULL;
        *((Meaning)meaning == CORRELATION ? &row->correlation : &row->external) = (i64)n;
        return p;
    default:
        return (u8)(*p - '0') <= 9 || *p == '-' ? skip_number(scanner, p) : NULL;
    }
}

/* Reads an event that has a predicted shape into a copy of that shape's row, with its own numbers; returns NULL if
   it has another shape. */
static const u8 *read_expected_event(Scanner *s, const u8 *p, Row *row) {
    for (int i = 0; i < GUESSES && s->row_by_shape; i++) {
        int place = predict_shape(&s->shapes, i);
        if (place < 0) continue;
        *row = s->row_by_shape[place];
        const u8 *end = match_shape(s->shapes.shapes + place, p, s->end, read_hole, s, row);
        if (!end) continue;
        record_shape(&s->shapes, place);
        return end;
    }
    return NULL;
}

/* Reads the event that begins at p. */
static const u8 *read_next_event(Scanner *s, const u8 *p) {
    Event e;
    Row row = {0};
    const u8 *first = p;
    p = read_expected_event(s, first, &row);
    if (p) {
        if (row.is_arrow) return p;
        s->read++;
        return add_row(s, &row) || reject_no_memory(s) ? p : NULL;
    }
    memset(&e, 0, offsetof(Event, details));
    p = read_event(s, first + 1, &e);
    if (!p) return NULL;
    row = (Row){0};
    int outcome = add_event(s, &e, (Text){first, (size_t)(p - first)}, &row);
    if (outcome == REJECTED) return NULL;
    row.is_arrow = outcome == ARROW;
    int has_plain_times = e.has_plain_ts && (e.has_plain_dur || !(e.keys & DUR));
    if (row.is_arrow || (outcome == ROW_ADDED && has_plain_times)) remember_event(s, &e, first, p, &row);
    return p;
}

/* Reads all complete events of the buffer; sets the state. */
static void read_events(Scanner *s) {
    const u8 *p = s->buffer.data + s->consumed;
    s->end = s->buffer.data + s->buffer.size;
    while (s->state == READY) {
        p = skip_blanks(p);
        s->consumed = (size_t)(p - s->buffer.data);
        if (p >= s->end) return;
        if (s->expects == COMMA_OR_END) {
            if (*p == ',') {
                s->expects = NEXT_EVENT;
                p++;
                continue;
            }
            if (*p == ']') {
                s->state = ENDED;
                s->consumed++;
                return;
            }
        } else if (*p == '{') {
            if (s->base + (p - s->buffer.data) >= s->stop) {
                s->state = STOPPED;
                return;
            }
            p = read_next_event(s, p);
            if (p) {
                s->expects = s->lines ? NEXT_EVENT : COMMA_OR_END;
                s->consumed = (size_t)(p - s->buffer.data);
                continue;
            }
            if (s->error_at >= s->end) { /* incomplete: more bytes are needed */
                s->reason = "";
                return;
            }
            s->state = FAILED;
            return;
        } else if (s->expects == FIRST_EVENT && *p == ']') {
            s->state = ENDED;
            s->consumed++;
            return;
        }
        reject(s, p, "something that is not an event");
        s->state = FAILED;
    }
}

/* ---- Python ---- */

/* Copies a bytes object into an array of the scanner. PyArg formats with '#' are not used: compiled with the headers
   of Python 3.13, they fail on earlier versions. */
static int copy_word(PyObject *bytes, char *into, size_t room, size_t *size) {
    char *word;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(bytes, &word, &length)) return -1;
    if ((size_t)length > room) {
        PyErr_SetString(PyExc_ValueError, "a word is too long");
        return -1;
    }
    memcpy(into, word, (size_t)length);
    *size = (size_t)length;
    return 0;
}

static int copy_categories(Scanner *s, PyObject *categories) {
    Py_ssize_t n = PySequence_Size(categories);
    if (n < 0) return -1;
    s->n_categories = 0;
    if (n > (Py_ssize_t)(sizeof s->categories / sizeof *s->categories)) {
        PyErr_SetString(PyExc_ValueError, "too many categories");
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        Category *to = &s->categories[i];
        PyObject *word;
        PyObject *pair = PySequence_GetItem(categories, i);
        int is_valid = pair && PyArg_ParseTuple(pair, "SI", &word, &to->fields) &&
                   !copy_word(word, to->word, sizeof to->word, &to->size);
        Py_XDECREF(pair);
        if (!is_valid) return -1;
        s->n_categories++;
    }
    return 0;
}

static int scanner_init(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"categories", "valued", "seed", "begin", "stop", "inside", "lines", NULL};
    Scanner *s = (Scanner *)self;
    PyObject *categories, *words[3];
    unsigned long long seed;
    long long begin, stop;
    int inside, lines;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O(SSS)KLLpp", names, &categories, &words[0], &words[1], &words[2], &seed, &begin, &stop, &inside, &lines))
        return -1;
    for (int i = 0; i < 3; i++)
        if (copy_word(words[i], s->valued[i], sizeof s->valued[i], &s->valued_size[i])) return -1;
    s->seed = seed;
    s->base = begin;
    s->stop = stop;
    s->lines = lines;
    s->expects = inside || lines ? NEXT_EVENT : FIRST_EVENT;
    s->reason = "";
    s->t.kind = s->dur.kind = s->correlation.kind = s->external.kind = s->odd_row.kind = I64;
    s->cat.kind = s->name.kind = s->pid.kind = s->tid.kind = s->texts.kind = s->odd_ts.kind = s->odd_dur.kind = TEXT;
    return copy_categories(s, categories);
}

static void scanner_free(PyObject *self) {
    Scanner *s = (Scanner *)self;
    Column *columns[] = {&s->label, &s->t, &s->dur, &s->correlation, &s->external, &s->args, &s->cat, &s->name,
                         &s->pid, &s->tid, &s->fields, &s->texts, &s->odd_row, &s->odd_ts, &s->odd_dur};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) clear_column(columns[i]);
    free_bytes(&s->buffer);
    free_bytes(&s->others);
    free_bytes(&s->scratch);
    free(s->labels.slots);
    free(s->words.slots);
    free_shapes(&s->shapes);
    free(s->row_by_shape);
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static int is_busy(const Scanner *s) {
    if (s->busy) PyErr_SetString(PyExc_RuntimeError, "a scanner reads for one thread at a time");
    return s->busy;
}

static PyObject *scanner_feed(PyObject *self, PyObject *data) {
    Scanner *s = (Scanner *)self;
    Py_buffer view;
    int ok = 1;
    if (is_busy(s) || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) return NULL;
    s->busy = 1;
    Py_BEGIN_ALLOW_THREADS;
    ok = append_bytes(&s->buffer, &s->consumed, &s->base, view.buf, (size_t)view.len);
    if (ok && (!view.len || s->buffer.size - s->consumed >= s->min_unread)) read_events(s);
    size_t unread = s->buffer.size - s->consumed;
    if (ok && s->state == READY && unread > MAX_EVENT_BYTES) {
        reject(s, s->buffer.data, "an event that is too large");
        s->state = FAILED;
    }
    s->min_unread = unread * 2; /* so that an event in small pieces is not restarted for each of them */
    Py_END_ALLOW_THREADS;
    s->busy = 0;
    PyBuffer_Release(&view);
    if (!ok) return PyErr_NoMemory();
    return PyBool_FromLong(s->state == READY);
}

static PyObject *scanner_rest(PyObject *self, PyObject *unused) {
    (void)unused;
    Scanner *s = (Scanner *)self;
    if (is_busy(s)) return NULL;
    return PyBytes_FromStringAndSize((const char *)s->buffer.data + s->consumed, (Py_ssize_t)(s->buffer.size - s->consumed));
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
    static const char *const has_details[] = {"reading", "stopped", "ended", "failed"};
    long long at = (long long)(s->base + (i64)s->consumed);
    return Py_BuildValue("sLsLL", has_details[s->state], at, s->reason, (long long)s->read, (long long)s->empty);
}

static PyObject *scanner_rows(PyObject *self, PyObject *unused) {
    (void)unused;
    Scanner *s = (Scanner *)self;
    if (is_busy(s)) return NULL;
    static const char *const names[] = {"label", "t", "dur", "correlation", "external", "args"};
    Column *columns[] = {&s->label, &s->t, &s->dur, &s->correlation, &s->external, &s->args};
    return export_table(columns, names, 6);
}

static PyObject *scanner_labels(PyObject *self, PyObject *unused) {
    (void)unused;
    Scanner *s = (Scanner *)self;
    if (is_busy(s)) return NULL;
    static const char *const names[] = {"cat", "name", "pid", "tid"};
    Column *columns[] = {&s->cat, &s->name, &s->pid, &s->tid};
    s->state = FAILED; /* nothing can be read into exported columns */
    free(s->labels.slots);
    s->labels = (Table){0};
    return export_table(columns, names, 4);
}

static PyObject *scanner_texts(PyObject *self, PyObject *unused) {
    (void)unused;
    Scanner *s = (Scanner *)self;
    if (is_busy(s)) return NULL;
    static const char *const names[] = {"text"};
    Column *columns[] = {&s->texts};
    s->state = FAILED;
    free(s->words.slots);
    s->words = (Table){0};
    return export_table(columns, names, 1);
}

static PyObject *scanner_odd(PyObject *self, PyObject *unused) {
    (void)unused;
    Scanner *s = (Scanner *)self;
    if (is_busy(s)) return NULL;
    static const char *const names[] = {"row", "ts", "dur"};
    Column *columns[] = {&s->odd_row, &s->odd_ts, &s->odd_dur};
    return export_table(columns, names, 3);
}

static PyMethodDef methods[] = {
    {"feed", scanner_feed, METH_O, "feed(data) reads the next bytes, none at the end; returns whether more are needed."},
    {"rest", scanner_rest, METH_NOARGS, "rest() returns the bytes that were fed but not read."},
    {"others", scanner_others, METH_NOARGS, "others() returns the events that gave no row, as JSON with commas."},
    {"status", scanner_status, METH_NOARGS, "status() returns state, offset, reason, events read, events without a phase."},
    {"rows", scanner_rows, METH_NOARGS, "rows() exports the complete events as Arrow capsules."},
    {"labels", scanner_labels, METH_NOARGS, "labels() exports the distinct labels and ends the scan."},
    {"texts", scanner_texts, METH_NOARGS, "texts() exports the distinct texts of details and ends the scan."},
    {"odd", scanner_odd, METH_NOARGS, "odd() exports times that are not plain numbers as Arrow capsules."},
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

#include "cells.h"
#include "lines.h"

/* Incremented with every change that a caller sees; `_scan/__init__.py` requires this version. */
#define VERSION 10

static int add_type(PyObject *module, const char *name, PyType_Spec *of) {
    PyObject *type = PyType_FromSpec(of);
    if (!type) return -1;
    int failed = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return failed;
}

static int fill_module(PyObject *module) {
    if (add_type(module, "Scanner", &spec) || add_type(module, "Lines", &lines_spec)) return -1;
    return PyModule_AddIntConstant(module, "VERSION", VERSION);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static PyMethodDef functions[] = {
    {"cells", split_cells, METH_VARARGS,
     "cells(text, separator, width, quoted, threads) splits lines of separated values into columns of text, as Arrow "
     "capsules; None if a line is irregular, or `quoted` is set and a line does not begin with a quote."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_events",
    .m_doc = "Reads the events of Chrome traces, the lines of metallic recordings and separated values into columns.",
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__events(void) { return PyModuleDef_Init(&module); }
