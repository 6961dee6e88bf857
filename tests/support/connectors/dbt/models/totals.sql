{{ config(materialized='table') }}
select customer, sum(amount) as total, count(*) as n from {{ ref('orders') }} group by customer
