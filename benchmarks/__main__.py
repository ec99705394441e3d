"""`python -m benchmarks`: the table of `loop_speed`."""

from benchmarks.loop_speed import main

if __name__ == "__main__":
    main()
