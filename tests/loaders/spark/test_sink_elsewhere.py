"""The tests of `loaders.spark.test_sink`, with a store elsewhere."""

from tests.loaders.spark import test_sink as same
from tests.support.remote.same_tests import same_tests

globals().update(same_tests(same, {}))
