{% snapshot orders_history_ts %}
{{ config(target_schema='shop', unique_key='id', strategy='timestamp', updated_at='ordered_at') }}
select id, customer, amount, ordered_at from {{ ref('orders') }}
{% endsnapshot %}
