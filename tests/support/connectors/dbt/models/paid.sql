{{ config(materialized='view') }}
select * from {{ ref('orders') }} where is_paid
