{{ config(materialized='incremental', unique_key=['id'], distributed_by=['id']) }}
select id, customer, amount, ordered_at from {{ ref('orders') }}
{% if is_incremental() %} where ordered_at >= (select max(ordered_at) from {{ this }}) {% endif %}
