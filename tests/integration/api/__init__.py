"""The HTTP API, spoken to over a socket."""
