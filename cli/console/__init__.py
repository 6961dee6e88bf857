"""The console: pages that a browser shows, and the JSON endpoints that they read.

- `static_files`: the pages, with a policy that lets them load nothing from elsewhere;
- `console_api`: the routes, their logins and privileges;
- `table_view`, `table_list`, `lateness`: tables, their versions and segments;
- `load_view`: loads, jobs and rejected rows; `findings`: what is wrong and what to do;
- `server_view`, `audit_tail`: connections, memory, queues, settings and events;
- `queries`, `download`: statements, their rows and files of them.
"""
