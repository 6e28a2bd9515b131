"""Routes for API keys, logins, events, logs, metrics and the server itself, and the files of the web console."""
