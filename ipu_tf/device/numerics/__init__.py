"""Arithmetic as an IPU has it: half precision, stochastic rounding, random bits, floating-point exceptions."""
