/* Shapes of records. Most records equal an earlier one except for some numbers. The bytes between the numbers are
   remembered as a shape, and so is which shape followed which. A record that has the bytes of the predicted shape
   need not be parsed: only its numbers are read. */

#ifndef TRACETUI_SCAN_SHAPES_H
#define TRACETUI_SCAN_SHAPES_H

#include "columns.h"

#define HOLES 32        /* numbers in a record; those with more have no shape */
#define MAX_SHAPE_BYTES 2048
#define SHAPES 16384    /* remembered shapes */
#define FOLLOWERS 65536 /* remembered sequences of shapes, each with the shape that followed */
#define GUESSES 2       /* predictions: by the last four shapes, and by the last two */

typedef struct {
    const u8 *at, *end;
    int meaning;
} Hole;

/* A record without its numbers: the bytes between them, concatenated. */
typedef struct {
    u64 hash;
    u8 *chars;
    u32 size, room;
    int n_holes;
    u16 sizes[HOLES + 1]; /* of the bytes before each number, and after the last */
    u8 meanings[HOLES];
} Shape;

typedef struct {
    Shape *shapes;  /* SHAPES of them, NULL before the first */
    u16 *followers; /* index of the shape that followed, + 1 */
    u64 history;    /* indices of the last four shapes, each + 1 */
} Shapes;

/* Returns whether n bytes are equal; 16 more of each must be readable. */
static inline int have_equal_bytes(const u8 *a, const u8 *b, size_t n) {
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

static inline u16 *find_follower(const Shapes *s, int guess) {
    u64 hash = (guess ? s->history & 0xFFFFFFFF : s->history) * 0x9E3779B97F4A7C15u;
    return s->followers + (hash ^ hash >> 29) % FOLLOWERS;
}

/* Returns the index of the shape predicted by one of the GUESSES; -1 if it predicts none, or the same as the first. */
static inline int predict_shape(const Shapes *s, int guess) {
    if (!s->followers) return -1;
    int place = *find_follower(s, guess) - 1;
    return guess && place == *find_follower(s, 0) - 1 ? -1 : place;
}

static inline void record_shape(Shapes *s, int place) {
    for (int i = 0; i < GUESSES; i++) *find_follower(s, i) = (u16)(place + 1);
    s->history = s->history << 16 | (u64)(place + 1);
}

static int allocate_shapes(Shapes *s) {
    if (!s->shapes) s->shapes = calloc(SHAPES, sizeof *s->shapes);
    if (!s->followers) s->followers = calloc(FOLLOWERS, sizeof *s->followers);
    return s->shapes && s->followers;
}

/* Remembers the shape of a record (from `first` to `end`); returns its index, -1 if it has too many numbers or bytes.
   `is_new` is set if the shape was not remembered before. */
static int remember_shape(Shapes *s, u64 seed, const Hole *holes, int n_holes, const u8 *first, const u8 *end,
                       Bytes *chars, int *is_new) {
    u16 sizes[HOLES + 1] = {0};
    if (n_holes > HOLES || end - first > MAX_SHAPE_BYTES || !allocate_shapes(s)) return -1;
    chars->size = 0;
    for (int i = 0; i <= n_holes; i++) {
        const u8 *until = i < n_holes ? holes[i].at : end;
        sizes[i] = (u16)(until - first);
        if (!put(chars, first, sizes[i])) return -1;
        if (i < n_holes) first = holes[i].end;
    }
    u64 hash = hash_text(seed, chars->data, chars->size);
    int place = (int)((hash >> 20) % SHAPES);
    Shape *shape = s->shapes + place;
    *is_new = !shape->chars || shape->hash != hash || shape->size != chars->size;
    if (*is_new && shape->room < chars->size + 16) {
        free(shape->chars);
        *shape = (Shape){.chars = malloc(chars->size + 16), .room = (u32)chars->size + 16};
        if (!shape->chars) {
            *shape = (Shape){0};
            return -1;
        }
    }
    record_shape(s, place);
    if (!*is_new) return place;
    memcpy(shape->chars, chars->data, chars->size);
    memset(shape->chars + chars->size, 0, 16);
    memcpy(shape->sizes, sizes, sizeof sizes);
    for (int i = 0; i < n_holes; i++) shape->meanings[i] = (u8)holes[i].meaning;
    shape->hash = hash;
    shape->size = (u32)chars->size;
    shape->n_holes = n_holes;
    return place;
}

/* Reads a record that has a shape; returns the position after it, NULL if it has another one. `read_hole` reads a
   number of a given meaning into a row and returns the position after it, NULL if it does not fit. */
static inline const u8 *match_shape(const Shape *shape, const u8 *p, const u8 *end,
                                  const u8 *(*read_hole)(void *, const u8 *, int, void *), void *scanner, void *row) {
    const u8 *chars = shape->chars;
    if (!chars) return NULL;
    for (int i = 0;; i++) {
        size_t size = shape->sizes[i];
        if ((size_t)(end - p) < size || !have_equal_bytes(p, chars, size)) return NULL;
        p += size;
        chars += size;
        if (i == shape->n_holes) return p;
        p = read_hole(scanner, p, shape->meanings[i], row);
        if (!p) return NULL;
    }
}

static void free_shapes(Shapes *s) {
    for (u32 i = 0; s->shapes && i < SHAPES; i++) free(s->shapes[i].chars);
    free(s->shapes);
    free(s->followers);
    *s = (Shapes){0};
}

#endif
