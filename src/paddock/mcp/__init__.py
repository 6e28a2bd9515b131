"""Tools over MCP: the servers of a sandbox, of this network and of the internet, reached alike."""
