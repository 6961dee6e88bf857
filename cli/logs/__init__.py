"""The server's log on standard error: the form of its lines, their statement or load, their number.

- `log_throttle`: repeated lines are left out;
- `current_ids`: the ids of the statement or load that a thread works for;
- `json_lines`: a line as JSON;
- `traces`: spans of loads, for a collector of OpenTelemetry.
"""
