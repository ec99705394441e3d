// What the next unit of a filter gradient reads, which is prefetched while this one is computed.
#ifndef IPU_TF_NEXT_UNIT_H
#define IPU_TF_NEXT_UNIT_H

#include "geometry.h"
#include "prefetch.h"

typedef struct NextUnit {
  Ahead x, g;
} NextUnit;

static inline Ahead ahead_of_g(const Work *w, Unit u, int64_t portions) {
  const Geometry *s = w->geometry;
  const float *from = w->g + ((u.plane * s->output[1] + u.row) * s->output[2] + u.column) * s->out;
  const int64_t rows = (u.plane_end - u.plane) * (u.row_end - u.row);
  return ahead_of(from, rows, s->output[2] * s->out, (u.column_end - u.column) * s->out, portions);
}

// Returns the first position along an axis that windows from `first` on see, and the one after the last.
static inline void seen(const Geometry *s, int axis, int64_t first, int64_t end, int64_t *from, int64_t *to) {
  *from = most(0, first * s->step[axis] - s->low[axis]);
  *to = least(s->input[axis],
              (end - 1) * s->step[axis] + (s->window[axis] - 1) * s->reach[axis] - s->low[axis] + 1);
}

// Of the planes in depth that a window sees only the last, of rows only those that the unit above has not seen.
static inline Ahead ahead_of_x(const Work *w, Unit u, int64_t portions) {
  const Geometry *s = w->geometry;
  const int64_t row = s->input[2] * s->in, image = u.plane / s->output[0];
  int64_t top, bottom, left, right, before, above, front, back;
  seen(s, 0, u.plane % s->output[0], u.plane % s->output[0] + 1, &front, &back);
  const float *from = w->x + (image * s->input[0] + most(0, back - 1)) * s->input[1] * row;
  if (u.plane_end - u.plane > 1) return ahead_of(from, 1, 0, (u.plane_end - u.plane) * s->input[1] * row, portions);
  seen(s, 1, u.row, u.row_end, &top, &bottom);
  seen(s, 2, u.column, u.column_end, &left, &right);
  if (u.row > 0 && u.column_end - u.column == s->output[2]) {
    seen(s, 1, u.row - 1, u.row, &before, &above);
    top = most(top, above);
  }
  return ahead_of(from + top * row + left * s->in, bottom - top, row, (right - left) * s->in, portions);
}

// What a unit reads, in so many portions.
static inline NextUnit next_unit(const Work *w, Unit u, int64_t portions) {
  return (NextUnit){ahead_of_x(w, u, portions), ahead_of_g(w, u, portions)};
}

static inline void prefetch(NextUnit *next) {
  prefetch_portion(&next->x);
  prefetch_portion(&next->g);
}

// Floats from a position of x, and of g, to the same one of the next unit.
static inline int64_t to_next_x(const Geometry *s, Unit u) {
  const int64_t rows = u.row_end - u.row, columns = u.column_end - u.column;
  if (columns < s->output[2]) return columns * s->step[2] * s->in;
  return (rows < s->output[1] ? rows * s->step[1] : s->input[1]) * s->input[2] * s->in;
}

static inline int64_t to_next_g(const Geometry *s, Unit u) {
  const int64_t columns = u.column_end - u.column;
  return (columns < s->output[2] ? columns : (u.row_end - u.row) * s->output[2]) * s->out;
}

#endif
