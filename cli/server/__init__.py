"""The server: stream load over HTTP and SQL over the MySQL protocol, thin over store and loaders."""
