"""The tests of `loaders.spark.test_sink`, with a store elsewhere."""

from tests.loaders.spark import test_sink as same
from tests.support.remote.same_tests import same_tests

KILLED = "its driver is a program that names a directory"

globals().update(same_tests(same, {"test_a_driver_killed_right_after_a_load_repeats_nothing": KILLED}))
