"""Network of the sandbox: DNS with synthetic addresses, and connections passed to the server."""
