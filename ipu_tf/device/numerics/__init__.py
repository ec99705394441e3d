"""IPU arithmetic: float16 overflow, stochastic rounding, random bits, floating-point exceptions, assertions."""
