"""What the HTTP service and the console share: routes, and the threads of statements."""
