"""A numerical fuzz of XLA through the device: random programs against NumPy in float64.

    python -m tests.xla_fuzz --cases 4000 --seed 1

cases ──► a program of several ──► TensorFlow: straight, in a loop; JAX: in a loop ──► results
  └─────► NumPy in float64, with a bound on the rounding of each result ─────────────────┴─► compared

`ops` is what programs are written in; `reference`, `tensorflow_ops` and `jax_ops` compute it; `cases` and `families`
make programs; `jobs` says what a campaign consists of; `runs` runs one program, and `campaign` many of them, in a
process of its own that may die.
"""
