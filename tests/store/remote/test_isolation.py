"""The tests of `store.conflict.test_isolation`, with a store elsewhere."""

from tests.store.conflict import test_isolation as same
from tests.support.remote.same_tests import same_tests

globals().update(
    same_tests(
        same,
        {
            "test_27_a_budget_that_is_used_up_is_a_conflict": "opens the directory with other settings",
            "test_a_table_that_is_only_read_may_not_change_between_prepare_and_commit_point": "steps into it",
        },
    )
)
