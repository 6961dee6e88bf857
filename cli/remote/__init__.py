"""The server of stores elsewhere (`Store.connect`), beside Flight SQL on its port.

`client_sessions` holds the sessions of clients and what they have opened, `replies` what was answered,
`calls` runs the calls of `store.remote.surface`, `access` checks their privileges.
"""
