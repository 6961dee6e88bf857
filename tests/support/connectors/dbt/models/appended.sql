{{ config(materialized='incremental', incremental_strategy='append', distributed_by=['id']) }}
select id, amount from {{ ref('orders') }}
