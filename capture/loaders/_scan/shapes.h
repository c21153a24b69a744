/* What repeats: most records repeat one that was read before but for some numbers. What stands between the numbers
   is remembered as a shape, and so is which shape followed which; a record that has the bytes of the shape that
   is expected says what that one said, with other numbers. */

#include "columns.h"

#define HOLES 32        /* numbers in a record of which a shape is kept */
#define LONGEST_SHAPE 2048
#define SHAPES 16384    /* shapes that are remembered, */
#define FOLLOWERS 65536 /* and rows of shapes of which it is known what came after them */
#define GUESSES 2       /* by the last four shapes, and by the last two */

typedef struct {
    const u8 *at, *end;
    int meaning;
} Hole;

/* A record without its numbers: the bytes between them, one behind the other. */
typedef struct {
    u64 hash;
    u8 *letters;
    u32 size, room;
    int n_holes;
    u16 sizes[HOLES + 1]; /* of the bytes before each number, and behind the last */
    u8 meanings[HOLES];
} Shape;

typedef struct {
    Shape *shapes;  /* SHAPES of them, NULL before the first */
    u16 *followers; /* one more than the place of the shape that followed */
    u64 history;    /* one more than the places of the last four shapes */
} Shapes;

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

static inline u16 *follower(const Shapes *s, int guess) {
    u64 hash = (guess ? s->history & 0xFFFFFFFF : s->history) * 0x9E3779B97F4A7C15u;
    return s->followers + (hash ^ hash >> 29) % FOLLOWERS;
}

/* Returns the place of the shape that is expected next, by one of the GUESSES; -1 for none that is new. */
static inline int expected(const Shapes *s, int guess) {
    if (!s->followers) return -1;
    int place = *follower(s, guess) - 1;
    return guess && place == *follower(s, 0) - 1 ? -1 : place;
}

static inline void note_shape(Shapes *s, int place) {
    for (int i = 0; i < GUESSES; i++) *follower(s, i) = (u16)(place + 1);
    s->history = s->history << 16 | (u64)(place + 1);
}

static int are_there(Shapes *s) {
    if (!s->shapes) s->shapes = calloc(SHAPES, sizeof *s->shapes);
    if (!s->followers) s->followers = calloc(FOLLOWERS, sizeof *s->followers);
    return s->shapes && s->followers;
}

/* Remembers the shape of a record (from `first` to `end`) that was read; returns its place, -1 where none is kept.
   `is_new` says whether another one stood there. */
static int learn_shape(Shapes *s, u64 seed, const Hole *holes, int n_holes, const u8 *first, const u8 *end,
                       Bytes *letters, int *is_new) {
    u16 sizes[HOLES + 1] = {0};
    if (n_holes > HOLES || end - first > LONGEST_SHAPE || !are_there(s)) return -1;
    letters->size = 0;
    for (int i = 0; i <= n_holes; i++) {
        const u8 *until = i < n_holes ? holes[i].at : end;
        sizes[i] = (u16)(until - first);
        if (!put(letters, first, sizes[i])) return -1;
        if (i < n_holes) first = holes[i].end;
    }
    u64 hash = mix(seed, letters->data, letters->size);
    int place = (int)((hash >> 20) % SHAPES);
    Shape *shape = s->shapes + place;
    *is_new = !shape->letters || shape->hash != hash || shape->size != letters->size;
    if (*is_new && shape->room < letters->size + 16) {
        free(shape->letters);
        *shape = (Shape){.letters = malloc(letters->size + 16), .room = (u32)letters->size + 16};
        if (!shape->letters) {
            *shape = (Shape){0};
            return -1;
        }
    }
    note_shape(s, place);
    if (!*is_new) return place;
    memcpy(shape->letters, letters->data, letters->size);
    memset(shape->letters + letters->size, 0, 16);
    memcpy(shape->sizes, sizes, sizeof sizes);
    for (int i = 0; i < n_holes; i++) shape->meanings[i] = (u8)holes[i].meaning;
    shape->hash = hash;
    shape->size = (u32)letters->size;
    shape->n_holes = n_holes;
    return place;
}

/* Reads a record that has a shape; returns the first byte behind it, NULL where it has another one. `hole_end` reads
   a number of some meaning into a row and returns the first byte behind it, NULL where it cannot be that. */
static inline const u8 *shape_end(const Shape *shape, const u8 *p, const u8 *end,
                                  const u8 *(*hole_end)(void *, const u8 *, int, void *), void *scanner, void *row) {
    const u8 *letters = shape->letters;
    if (!letters) return NULL;
    for (int i = 0;; i++) {
        size_t size = shape->sizes[i];
        if ((size_t)(end - p) < size || !agree(p, letters, size)) return NULL;
        p += size;
        letters += size;
        if (i == shape->n_holes) return p;
        p = hole_end(scanner, p, shape->meanings[i], row);
        if (!p) return NULL;
    }
}

static void discard_shapes(Shapes *s) {
    for (u32 i = 0; s->shapes && i < SHAPES; i++) free(s->shapes[i].letters);
    free(s->shapes);
    free(s->followers);
    *s = (Shapes){0};
}
