"""Sums between instances of one host go through memory that they share, in the order of the instances."""

from __future__ import annotations

import pytest

from tests.helpers.instances import run_instances

SUMS = """
    import functools, operator
    import jax, numpy as np
    from jax import lax
    from ipu_tf.device.instances import across, sums
    from ipu_tf.device.instances.joined import group, join
    join()
    COUNT = int(os.environ["POPDIST_NUM_INSTANCES"])
    across.run_programs_together(COUNT)
    def of(instance, size, dtype=np.float32):
        return (np.random.default_rng([instance, size]).normal(size=size) * 1000).astype(dtype)
    def added(size, dtype=np.float32):
        return functools.reduce(operator.add, (of(each, size, dtype) for each in range(COUNT)))
    def program(function, name="sums"):
        return across.FunctionOfInstances(jax.jit(across.over_instances(function)), name)
    def calls():
        return group().memory.calls() if group().memory else 0
"""
SIZES = """
    several = program(lambda *given: [sums.sum_over_instances(each) for each in given])
    sizes = [0, 1, 2, 17, 1000, 65537, *np.random.default_rng(5).integers(0, 300000, 5), 2_500_001]
    for turn in range(3):
        for size, result in zip(sizes, several(*(of(INDEX, size) for size in sizes))):
            np.testing.assert_array_equal(np.asarray(result), added(size))
    whole = program(lambda x: sums.sum_over_instances(x))(of(INDEX, 999, np.int32))
    np.testing.assert_array_equal(np.asarray(whole), added(999, np.int32))
    half = program(lambda x: sums.sum_over_instances(x))(of(INDEX, 99, np.float16))
    np.testing.assert_array_equal(np.asarray(half), added(99, np.float16))
    print("calls", calls() if group().memory else "none")
"""
PARTS = """
    def parts(x):
        def turn(carry, row):
            return carry + sums.sum_over_instances(row), sums.sum_over_instances(row * 2)
        first = sums.sum_over_instances(x)
        total, rows = lax.scan(turn, jax.numpy.zeros(3), x)
        more = lambda state: sums.max_over_instances(state[0]) < 5
        more_of = lambda state: (state[0] + 1, sums.sum_over_instances(state[1]))
        counted, _ = lax.while_loop(more, more_of, (INDEX_OF(), x))
        chosen = lax.cond(counted > 0, lambda: sums.sum_over_instances(x), lambda: x)
        gathered = [sums.gather_over_instances(each) for each in (x, x > 0, x.astype(np.float16), counted)]
        gradient = jax.grad(lambda y: (sums.gather_over_instances(y) ** 2).sum())(x)
        return first, total, rows, counted, chosen, gathered, gradient, sums.min_over_instances(x)
    INDEX_OF = lambda: lax.axis_index(across.INSTANCES)
    x = of(INDEX, 12).reshape(4, 3)
    first, total, rows, counted, chosen, gathered, gradient, least = program(parts)(x)
    all_of = np.stack([of(each, 12).reshape(4, 3) for each in range(COUNT)])
    np.testing.assert_array_equal(first, added(12).reshape(4, 3))
    np.testing.assert_array_equal(first, chosen)
    np.testing.assert_array_equal(rows, added(12).reshape(4, 3) * 2)
    np.testing.assert_allclose(total, added(12).reshape(4, 3).sum(0), rtol=1e-5)
    assert int(counted) == 5 - (COUNT - 1 - INDEX), counted
    for found, expected in zip(gathered, (all_of, all_of > 0, all_of.astype(np.float16))):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(gradient, 2 * COUNT * x, rtol=1e-5)
    np.testing.assert_array_equal(least, all_of.min(0))
    print("calls", calls() > 12)
"""
KILLED = """
    import time
    loop = program(lambda x: lax.fori_loop(0, 100000, lambda _, y: sums.sum_over_instances(y) / COUNT, x), "a program")
    x = of(INDEX, 300000)
    if INDEX == COUNT - 1:
        import signal
        signal.setitimer(signal.ITIMER_REAL, 3.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        loop(x)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
        os._exit(3)
"""


@pytest.mark.parametrize("count", [2, 4])
def test_sums_are_those_of_numpy_in_the_order_of_the_instances(count: int) -> None:
    for done in run_instances(SUMS + SIZES, count):
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("\ncalls 38\n")  # 12 sizes, three times; 2 dtypes


def test_exchanges_in_loops_branches_and_gradients_come_in_one_order() -> None:
    for done in run_instances(SUMS + PARTS, 2):
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("\ncalls True\n")


def test_the_memory_can_be_switched_off() -> None:
    for done in run_instances(SUMS + PARTS, 2, IPU_TF_INSTANCE_MEMORY="0"):
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("\ncalls False\n")


def test_a_memory_without_the_token_is_not_used_and_the_log_says_so() -> None:
    damaged = """
    from ipu_tf.device.instances import memory
    stock = memory._made
    def other(size):
        descriptor, token = stock(size)
        return descriptor, "00" * 16
    memory._made = other
    """
    first, second = run_instances(damaged + SUMS + PARTS, 2)
    for done in (first, second):
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("\ncalls False\n")
    assert "through XLA's collectives: instance 0: what it finds in place of the memory of instance 0" in first.stderr


def test_an_instance_that_is_killed_in_a_sum_is_named_at_once() -> None:
    *others, killed = run_instances(SUMS + KILLED, 3, IPU_TF_INSTANCE_TIMEOUT="60")
    assert killed.returncode == -14, killed.stderr
    for index, done in enumerate(others):
        assert done.returncode == 3, done.stderr
        said = f"InstanceError Instance {index} lost another instance in the program 'a program': instance 2 has ended."
        assert done.stdout.endswith(f"\n{said}\n")


def test_an_instance_does_not_wait_at_its_end_for_one_that_was_killed() -> None:
    """Without the memory it waits until 20 seconds passed without a sign of life."""
    ending = """
    import atexit, time
    since = [0.0]
    atexit.register(lambda: print("left after", time.monotonic() - since[0] < 8, flush=True))
    """
    lasting = KILLED.replace("os._exit(3)", "since[0] = time.monotonic()\n        raise SystemExit(3)")
    first, killed = run_instances(ending + SUMS + lasting, 2, IPU_TF_INSTANCE_TIMEOUT="60")
    assert (first.returncode, killed.returncode) == (3, -14), first.stderr
    assert first.stdout.endswith("has ended.\nleft after True\n")
