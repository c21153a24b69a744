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

#include "shapes.h"

#define DEEPEST 128      /* levels of nesting inside one event */
#define LARGEST_EVENT ((size_t)1 << 30)
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
    u32 label, args;
    i64 t, dur, correlation, external;
    u8 has_t, has_dur, has_correlation, has_external, has_args;
    u8 is_arrow; /* an arrow gives no row */
} Row;

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
    Shapes shapes;
    Row *shown;          /* the row of each shape, NULL before the first */
    /* clang-format on */
} Scanner;

static const u8 *bad(Scanner *s, const u8 *p, const char *reason) {
    s->fail = p;
    s->reason = reason;
    return NULL;
}

static const u8 *starved(Scanner *s) { return bad(s, s->buffer.data, NO_MEMORY); }

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

static const u8 *character(Scanner *s, const u8 *p) {
    const u8 *fail, *end = character_end(p, &fail);
    return end ? end : bad(s, fail, "bytes that are not UTF-8");
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
    if (states) {
        Text text = {s->scratch.data, s->scratch.size};
        const char *reason = code_of(&s->words, &s->texts, s->seed, text, &code);
        if (reason) return bad(s, s->buffer.data, reason) != NULL;
    }
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

/* ---- what repeats ---- */

/* Remembers the shape of an event (from `first` to `end`) and the row that it gave. */
static void learn(Scanner *s, const Event *e, const u8 *first, const u8 *end, const Row *row) {
    int place, is_new;
    if (!s->shown) s->shown = calloc(SHAPES, sizeof *s->shown);
    if (!s->shown) return;
    place = learn_shape(&s->shapes, s->seed, e->holes, e->n_holes, first, end, &s->scratch, &is_new);
    if (place >= 0 && is_new) s->shown[place] = *row;
}

/* Reads a number of a shape; returns the first byte behind it, NULL where it is not as the shape's. */
static inline const u8 *hole_end(void *scanner, const u8 *p, int meaning, void *into) {
    Row *row = into;
    const u8 *first = p;
    u64 n = 0;
    int plain = 1;
    Text text;
    switch ((Meaning)meaning) {
    case START:
        p = time_end(scanner, p, &text, &row->t, &plain);
        return plain ? p : NULL;
    case DURATION:
        p = time_end(scanner, p, &text, &row->dur, &plain);
        return plain ? p : NULL;
    case CORRELATION:
    case EXTERNAL:
        p = whole_number(p, &n);
        if (p == first || p - first > 18 || (*first == '0' && p - first > 1)) return NULL;
        *((Meaning)meaning == CORRELATION ? &row->correlation : &row->external) = (i64)n;
        return p;
    default:
        return (u8)(*p - '0') <= 9 || *p == '-' ? number_end(scanner, p) : NULL;
    }
}

/* Reads an event that has an expected shape, into a row as the shape's but for its numbers; returns the first
   byte behind it, NULL where it has another one. */
static const u8 *expected_end(Scanner *s, const u8 *p, Row *row) {
    for (int i = 0; i < GUESSES && s->shown; i++) {
        int place = expected(&s->shapes, i);
        if (place < 0) continue;
        *row = s->shown[place];
        const u8 *end = shape_end(s->shapes.shapes + place, p, s->end, hole_end, s, row);
        if (!end) continue;
        note_shape(&s->shapes, place);
        return end;
    }
    return NULL;
}

/* Reads an event that begins at p; returns the first byte behind it, NULL for none. */
static const u8 *one(Scanner *s, const u8 *p) {
    Event e;
    Row row = {0};
    const u8 *first = p;
    p = expected_end(s, first, &row);
    if (p) {
        if (row.is_arrow) return p;
        s->read++;
        return add_row(s, &row) || starved(s) ? p : NULL;
    }
    memset(&e, 0, offsetof(Event, stated));
    p = event_end(s, first + 1, &e);
    if (!p) return NULL;
    row = (Row){0};
    int kept = keep(s, &e, (Text){first, (size_t)(p - first)}, &row);
    if (kept == NOT_KEPT) return NULL;
    row.is_arrow = kept == AN_ARROW;
    if (row.is_arrow || (kept == A_ROW && e.plain_ts && (e.plain_dur || !(e.seen & DUR)))) learn(s, &e, first, p, &row);
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

/* ---- Python ---- */

/* Copies a bytes object into a room of the scanner. No format with '#': built with the headers of 3.13, such
   a part does not run on the Pythons before it. */
static int take_word(PyObject *bytes, char *into, size_t room, size_t *size) {
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

static int take_categories(Scanner *s, PyObject *categories) {
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
        int fine = pair && PyArg_ParseTuple(pair, "SI", &word, &to->wanted) &&
                   !take_word(word, to->word, sizeof to->word, &to->size);
        Py_XDECREF(pair);
        if (!fine) return -1;
        s->n_categories++;
    }
    return 0;
}

static int scanner_init(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"categories", "attention", "seed", "begin", "stop", "inside", "lines", NULL};
    Scanner *s = (Scanner *)self;
    PyObject *categories, *word;
    unsigned long long seed;
    long long begin, stop;
    int inside, lines;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OSKLLpp", names, &categories, &word, &seed, &begin, &stop, &inside, &lines))
        return -1;
    if (take_word(word, s->attention, sizeof s->attention, &s->attention_size)) return -1;
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
    discard_shapes(&s->shapes);
    free(s->shown);
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
    int fits = 1;
    if (is_busy(s) || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) return NULL;
    s->busy = 1;
    Py_BEGIN_ALLOW_THREADS;
    fits = take_bytes(&s->buffer, &s->done, &s->base, view.buf, (size_t)view.len);
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

#include "cells.h"
#include "lines.h"

/* Counts up with every change of what a caller sees; `scan/__init__.py` names the one that it knows. */
#define VERSION 3

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
    {"cells", cells, METH_VARARGS,
     "cells(text, separator, width, quoted, threads) cuts lines of separated values into columns of text, as Arrow capsules; None where "
     "one is not regular, or is to begin with a quote and does not."},
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
