// Words of an elementwise call's attribute, as ipu_tf/device/elementwise/encoding.py writes them.
#ifndef IPU_TF_ELEMENTWISE_H
#define IPU_TF_ELEMENTWISE_H

#include <stdint.h>

enum { AXES = 4, REGISTER = 2048 };  // axes of a broadcast operand; the most elements of a block

// What an operand or a result is.
enum { WHOLE, WHOLE_BOOL, BROADCAST, BROADCAST_BOOL, SCALAR };

typedef struct ElementwiseHead {
  int64_t level;     // the most capable instruction set to use: 0 plain, 1 AVX2, 2 AVX-512
  int64_t elements;  // of each result
  int64_t block;     // elements that are computed at a time, at most REGISTER
  int64_t parts;
  int64_t inputs, outputs, sums, registers, constants, instructions;
} ElementwiseHead;

typedef struct ElementwiseInput {
  int64_t kind;
  int64_t elements;
  int64_t sizes[AXES], strides[AXES];  // of a broadcast operand, outermost first; the stride of a repetition is 0
} ElementwiseInput;

// Operands and results are slots: registers, then inputs, outputs, constants. To a sum is added: `to` is its number.
typedef struct ElementwiseInstruction {
  int64_t code, to, a, b, c;
} ElementwiseInstruction;

#endif
