"""The ops of the IPU, one module a family."""
