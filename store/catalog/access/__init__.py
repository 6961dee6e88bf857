"""The privileges of users: scopes, roles, and the hosts that users log in from."""
