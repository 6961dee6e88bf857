"""The tests of `loaders.spark.test_source`, with a store elsewhere."""

from tests.loaders.spark import test_source as same
from tests.support.remote.same_tests import same_tests

NATIVE = "Spark reads no files of a server"

globals().update(
    same_tests(
        same,
        {
            "test_a_held_version_is_read_after_its_files_were_vacuumed": NATIVE,
            "test_files_of_one_size_keep_their_own_deletes": NATIVE,
            "test_open_tables_are_read_by_spark_itself_under_their_names_of_today": NATIVE,
            "test_parquet_tables_are_read_by_spark_itself_where_that_is_right": NATIVE,
            "test_sql_reads_and_inserts_through_a_view": "names a directory",
            "test_what_spark_cannot_read_itself_goes_through_the_source": NATIVE,
        },
    )
)
