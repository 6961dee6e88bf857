"""What the workloads load, from a seed, and what must come of it.

orders.py          the rows of our own workloads
price_changes.py   partial updates of them
oracle.py          the state after some loads, by NumPy alone
"""
