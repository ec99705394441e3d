"""`python -m ipu_tf SCRIPT`: runs a program written for Graphcore's TensorFlow."""

from ipu_tf._compat.launcher import main

if __name__ == "__main__":
    main()
