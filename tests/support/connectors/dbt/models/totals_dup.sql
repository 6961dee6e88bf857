{{ config(materialized='table', duplicate_key=['customer'], distributed_by=['customer'], properties={'replication_num': '1'}) }}
select customer, amount from {{ ref('orders') }}
