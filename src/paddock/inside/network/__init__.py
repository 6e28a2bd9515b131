"""Network of the sandbox: DNS with made-up addresses, and connections passed to the server."""
