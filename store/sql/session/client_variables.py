"""Variables of MySQL and Doris that clients set or read, and that choose nothing here; see `check`."""

from __future__ import annotations

import platform
from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.translate.functions import SERVER_VERSION

_DEBUGGING: Final = "set skip_delete_sign, or show_hidden_columns, to see deleted rows"
_PROFILES: Final = "EXPLAIN shows the plan of a query, /metrics what it took"
_MEMORY: Final = "set exec_mem_limit, or memory_limit of a workload group"

# Words for the digits of a value.
_DIGITS: Final = {"true": "1", "on": "1", "false": "0", "off": "0", "disabled": "0", "no_chain": "0"}

# What the server is. SET of them is an error, as in MySQL.
FACTS: Final = {
    "character_set_system": "utf8mb4",
    "gtid_mode": "OFF",
    "have_query_cache": "NO",
    "hostname": platform.node(),
    "license": "",
    "lower_case_table_names": "0",
    "net_buffer_length": "16384",
    "performance_schema": "OFF",
    "protocol_version": "10",
    "socket": "",  # no file is one here: a client that asks for it goes on over TCP
    "system_time_zone": "UTC",
    "version": SERVER_VERSION,
    "version_comment": "seqstore",
    "version_compile_machine": platform.machine(),
    "version_compile_os": platform.system(),
}

# Choices of which the store has made one, which is the only value. Beside it: why, or what to do instead.
FIXED: Final = {
    **dict.fromkeys(
        ("skip_delete_bitmap", "skip_delete_predicate", "skip_storage_engine_merge"), ("false", _DEBUGGING)
    ),
    **dict.fromkeys(("load_mem_limit", "query_mem_limit", "scan_queue_mem_limit"), ("0", _MEMORY)),
    **dict.fromkeys(("enable_profile", "is_report_success", "profiling"), ("false", _PROFILES)),
    **dict.fromkeys(
        ("cloud_cluster", "compute_group", "resource_group"), ("", "workload_group names a group")
    ),
    **dict.fromkeys(("insert_id", "timestamp"), ("0", "generated values and now() are the server's own")),
    "auto_increment_increment": ("1", "each generated value is one more than the last"),
    "auto_increment_offset": ("1", "AUTO_INCREMENT(n) of the column sets the first value"),
    "block_encryption_mode": ("", "there are no functions that encrypt"),
    "allow_partition_column_nullable": ("true", "NOT NULL of the column refuses NULL"),
    "bypass_workload_group": ("false", "workload_group names another group"),
    "check_overflow_for_decimal": ("1", "a decimal that does not fit is an error"),
    "completion_type": ("NO_CHAIN", "BEGIN begins the next transaction"),
    "default_order_by_limit": ("-1", "sql_select_limit bounds the rows of a SELECT"),
    "default_week_format": ("0", "the second argument of week() names the mode"),
    "describe_extend_variant_column": ("false", "there are no VARIANT columns"),
    "div_precision_increment": ("4", "a CAST of the quotient sets its digits"),
    "dry_run_query": ("false", "EXPLAIN shows the plan of a query without its rows"),
    "enable_decimal256": ("false", "a DECIMAL has up to 38 digits"),
    "enable_strict_cast": ("false", "a CAST of a value that does not fit is NULL"),
    "event_scheduler": ("OFF", "a scheduler of the system can run the statements"),
    "group_by_and_having_use_alias_first": ("false", "a name is the column's before it is the alias's"),
    "init_connect": ("", "a client sends its own statements"),
    "lc_messages": ("en_US", "messages are English"),
    "lc_time_names": ("en_US", "names of days and months are English"),
    "max_error_count": ("64", "SHOW WARNINGS tells of so many values"),
    "read_only": ("0", "REVOKE of LOAD keeps users from writing"),
    "return_object_data_as_binary": ("false", "functions make texts of bitmaps"),
    "serde_dialect": ("doris", "values have the texts of Doris"),
    "show_column_comment_in_describe": ("false", "SHOW FULL COLUMNS has the comments"),
    "skip_bad_tablet": ("false", "seqstore repair restores what can be read"),
    "skip_missing_version": ("false", "seqstore repair restores what can be read"),
    "sql_auto_is_null": ("false", "last_insert_id() has the generated value"),
    "sql_big_selects": ("1", "query_timeout and exec_mem_limit bound a query"),
    "sql_converter_service_url": ("", "statements are those of Doris and MySQL"),
    "sql_dialect": ("doris", "statements are those of Doris and MySQL"),
    "sql_require_primary_key": ("0", "a table without a key is append-only"),
    "sql_quote_show_create": ("1", "names stand between backquotes"),
    "super_read_only": ("0", "REVOKE of LOAD keeps users from writing"),
    "truncate_char_or_varchar_columns": ("false", "left(text, n) cuts a text"),
}

# They tune what has no counterpart here, or ask for what is so anyway: no foreign keys, no cache of results,
# texts of any length. Any value is kept and read back.
# Of MySQL: buffers, the optimizer, logs.
_OF_MYSQL: Final = """
    big_tables binlog_format binlog_row_image bulk_insert_buffer_size cte_max_recursion_depth
    default_collation_for_utf8mb4 default_tmp_storage_engine end_markers_in_json eq_range_index_dive_limit
    explicit_defaults_for_timestamp group_concat_max_len gtid_next gtid_purged
    histogram_generation_max_mem_size innodb_strict_mode internal_tmp_mem_storage_engine join_buffer_size
    keep_files_on_create lock_wait_timeout long_query_time low_priority_updates max_heap_table_size
    max_join_size max_length_for_sort_data max_seeks_for_key max_sort_length min_examined_row_limit
    optimizer_prune_level optimizer_search_depth optimizer_switch optimizer_trace optimizer_trace_features
    optimizer_trace_limit optimizer_trace_max_mem_size optimizer_trace_offset preload_buffer_size
    print_identified_with_as_hex pseudo_slave_mode query_alloc_block_size query_cache_wlock_invalidate
    query_prealloc_size range_alloc_block_size range_optimizer_max_mem_size read_buffer_size
    read_rnd_buffer_size resultset_metadata session_track_gtids session_track_schema
    session_track_state_change session_track_system_variables session_track_transaction_info
    show_create_table_skip_secondary_engine show_create_table_verbosity sort_buffer_size sql_buffer_result
    sql_log_bin sql_log_off sql_warnings storage_engine tmp_table_size transaction_alloc_block_size
    transaction_prealloc_size updatable_views_with_limit windowing_use_high_precision
"""
# Of Doris: the planner and its statistics.
_PLANNING: Final = """
    agg_phase analyze_timeout auto_analyze_end_time auto_analyze_start_time auto_broadcast_join_threshold
    broadcast_hashtable_mem_limit_percentage broadcast_right_table_scale_factor broadcast_row_count_limit
    bucket_shuffle_downgrade_ratio cbo_cpu_weight cbo_mem_weight cbo_net_weight codegen_level
    cte_inline_mode debug_skip_fold_constant disable_colocate_plan disable_join_reorder
    disable_nereids_expression_rules disable_nereids_rules dphyper_limit eager_aggregation_mode
    enable_aggregate_cse enable_auto_analyze enable_auto_analyze_internal_catalog enable_bucket_shuffle_join
    enable_bucketed_hash_agg enable_bushy_tree enable_cost_based_join_reorder enable_cte_materialize
    enable_decoupled_runtime_filter enable_dml_materialized_view_rewrite enable_dphyp_optimizer
    enable_ext_func_pred_pushdown enable_fallback_to_original_planner enable_fast_analyze_into_values
    enable_fold_constant_by_be enable_fold_nondeterministic_fn enable_function_pushdown
    enable_hbo_info_collection enable_hbo_optimization enable_infer_predicate enable_left_zig_zag
    enable_materialized_view_nest_rewrite enable_materialized_view_rewrite
    enable_materialized_view_union_rewrite enable_nereids_distribute_planner enable_nereids_dml
    enable_nereids_dml_with_pipeline enable_nereids_planner enable_nereids_rules enable_nereids_timeout
    enable_nereids_trace enable_partition_analyze enable_projection enable_prune_nested_column
    enable_push_down_no_group_agg enable_pushdown_minmax_on_unique enable_pushdown_string_minmax
    enable_rewrite_element_at_to_slot enable_runtime_filter_partition_prune enable_runtime_filter_prune
    enable_save_statistics_sync_job enable_single_distinct_column_opt enable_stats
    enable_visitor_rewriter_depth_threshold expand_runtime_filter_by_inner_join extract_wide_range_expr
    forbid_unknown_col_stats force_sample_analyze hot_value_collect_count huge_table_default_sample_rows
    huge_table_lower_bound_size_in_bytes inline_cte_referenced_threshold join_order_time_limit
    left_semi_or_anti_probe_factor materialized_view_rewrite_success_candidate_num
    max_join_number_bushy_tree max_join_number_of_reorder max_scan_mem_ratio
    max_table_count_use_cascades_join_reorder multi_distinct_strategy nereids_cbo_penalty_factor
    nereids_timeout_second nth_optimized_plan parallel_sync_analyze_task_num
    partition_pruning_expand_threshold partition_sample_count partition_sample_row_count
    pre_materialized_view_rewrite_strategy prefer_join_method rewrite_count_distinct_to_bitmap_hll
    rewrite_or_to_in_predicate_threshold skew_rewrite_agg_bucket_num skew_rewrite_join_salt_explode_factor
    skip_prune_predicate table_stats_health_threshold
"""
# Of Doris: parallel parts, exchanges, replicas.
_PARALLEL: Final = """
    adaptive_pipeline_task_serial_read_on_limit change_visible_timeout_ms cloud_force_sync_version
    cloud_partition_version_cache_ttl_ms cloud_table_version_cache_ttl_ms colocate_max_parallel_num
    delete_without_partition dml_plan_retry_times enable_adaptive_pipeline_task_serial_read_on_limit
    enable_adaptive_scan enable_agg_state enable_aggregate_function_null_v2
    enable_broadcast_join_force_passthrough enable_cooldown_replica_affinity
    enable_distinct_streaming_aggregation enable_eventual_consistent_change
    enable_exchange_node_parallel_merge enable_file_scanner_v2 enable_group_commit_full_prepare
    enable_left_semi_direct_return_opt enable_local_exchange enable_local_exchange_before_agg
    enable_local_merge_sort enable_local_shuffle enable_local_shuffle_planner enable_memtable_on_sink_node
    enable_new_shuffle_hash_method enable_odbc_transcation enable_parallel_outfile
    enable_parallel_result_sink enable_parallel_scan enable_pipeline_engine enable_pipeline_x_engine
    enable_rpc_opt_for_pipeline enable_schema_scan_from_master_fe enable_share_hash_table_for_broadcast_join
    enable_shared_exchange_sink_buffer enable_shared_scan enable_single_replica_insert
    enable_streaming_agg_hash_join_force_passthrough enable_strict_consistency_dml
    enable_strong_consistency_read enable_vectorized_engine enable_vectorized_load
    exchange_multi_blocks_byte_size fallback_other_replica_when_fixed_corrupt fetch_all_fe_for_system_table
    fetch_splits_max_wait_time_ms force_to_local_shuffle forward_to_master
    fragment_transmission_compression_codec ignore_storage_data_distribution insert_visible_timeout_ms
    insert_visible_timeout_return_mode load_stream_per_node local_exchange_free_blocks_limit
    max_column_reader_num max_file_scanners_concurrency max_instance_num max_msg_size_of_result_receiver
    max_scanners_concurrency min_file_scanners_concurrency min_scan_scheduler_concurrency
    min_scanners_concurrency num_files_in_batch_mode num_partitions_in_batch_mode
    optimize_index_scan_parallelism parallel_exchange_instance_num parallel_fragment_exec_instance_num
    parallel_pipeline_task_num parallel_prepare_threshold parallel_scan_max_scanners_count
    parallel_scan_min_rows_per_scanner send_batch_parallelism use_fix_replica use_serial_exchange
"""
# Of Doris: caches, indexes, buffers, runtime filters.
_CACHES: Final = """
    auto_profile_threshold_ms batch_size broker_load_batch_size cache_sorted_partition_interval_second
    data_queue_max_blocks disable_file_cache disable_streaming_preaggregations enable_ann_index_result_cache
    enable_audit_plugin enable_binary_search_filtering_partitions enable_common_expr_pushdown
    enable_condition_cache enable_count_on_index_pushdown enable_expr_zonemap_filter
    enable_fallback_on_missing_inverted_index enable_file_cache enable_force_spill enable_hive_sql_cache
    enable_inverted_index_query enable_inverted_index_query_cache enable_inverted_index_searcher_cache
    enable_inverted_index_wand_query enable_match_without_inverted_index enable_mow_light_delete
    enable_no_need_read_data_opt enable_orc_filter_by_min_max enable_orc_lazy_materialization
    enable_page_cache enable_parquet_file_page_cache enable_parquet_filter_by_bloom_filter
    enable_parquet_filter_by_min_max enable_parquet_lazy_materialization enable_partition_cache
    enable_partition_topn enable_prefer_cached_rowset enable_prepared_stmt_audit_log enable_query_cache
    enable_query_cache_incremental enable_reserve_memory enable_segment_limit_pushdown
    enable_server_side_prepared_statement enable_short_circuit_query
    enable_short_circuit_query_access_column_store enable_snapshot_point_query enable_sort_spill
    enable_spill enable_sql_cache enable_sync_runtime_filter_size enable_two_phase_read_opt
    enable_unicode_name_support enable_use_hybrid_sort file_cache_base_path file_cache_query_limit_bytes
    file_cache_query_limit_percent file_split_size force_sort_algorithm full_sort_max_buffered_bytes
    global_partition_topn_threshold hnsw_bounded_queue hnsw_check_relative_distance hnsw_ef_search
    in_list_value_count_threshold inverted_index_compatible_read inverted_index_conjunction_opt_threshold
    inverted_index_max_expansions inverted_index_skip_threshold ivf_nprobe low_memory_mode_buffer_limit
    max_file_split_size max_initial_file_split_size max_pushdown_conditions_per_column max_scan_key_num
    merge_io_read_slice_size_bytes minimum_operator_memory_required_kb orc_max_merge_distance_bytes
    orc_once_max_read_bytes orc_tiny_stripe_threshold_bytes partition_topn_max_partitions
    partition_topn_pre_partition_rows preferred_block_size_bytes profile_level query_cache_entry_max_bytes
    query_cache_entry_max_rows query_cache_force_refresh query_freshness_tolerance_ms
    rpc_verbose_profile_max_instance_count runtime_bloom_filter_max_size runtime_bloom_filter_min_size
    runtime_bloom_filter_size runtime_filter_broadcast_join_producer_num runtime_filter_max_in_num
    runtime_filter_mode runtime_filter_type runtime_filter_wait_infinitely runtime_filter_wait_time_ms
    runtime_filters_max_num short_circuit_evaluation spill_aggregation_partition_count
    spill_buffer_size_bytes spill_hash_join_partition_count spill_min_revocable_mem
    spill_streaming_agg_mem_limit topn_filter_ratio topn_opt_limit_threshold
    use_one_phase_agg_for_group_concat_with_order use_rf_default
"""
WITHOUT_EFFECT: Final = {
    **dict.fromkeys("\n".join((_OF_MYSQL, _PLANNING, _PARALLEL, _CACHES)).split(), ""),
    **dict.fromkeys(("foreign_key_checks", "sql_notes", "unique_checks"), "1"),
    "lock_wait_timeout": "31536000",
    **dict.fromkeys(("information_schema_stats_expiry", "query_cache_size"), "0"),
    **dict.fromkeys(("net_read_timeout", "net_write_timeout"), "600"),
    "default_storage_engine": "OLAP",
    "query_cache_type": "OFF",
}


def check(name: str, value: str) -> None:
    """Checks that a variable of this module may have a value.

    1. The facts about the server cannot be set.
    2. A choice that the store has made has that value alone; words and digits of true and false are one.
    3. A variable without effect has any value.

    Raises:
        InvalidInputError: the variable is a fact, or has another value.
    """
    if name in FACTS:
        raise InvalidInputError(f"Variable '{name}' is a read only variable", kind="is_fact")
    if name in FIXED:
        only, instead = FIXED[name]
        if _plain(value) != _plain(only):
            raise InvalidInputError(
                f"Variable '{name}' can't be set to the value of '{value}'; expected '{only}': {instead}",
                kind="bad_variable",
            )


def _plain(value: str) -> str:
    lowered = value.strip().lower()
    return _DIGITS.get(lowered, lowered)
