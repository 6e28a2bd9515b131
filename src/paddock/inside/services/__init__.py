"""Long-running parts of a sandbox: supervised services, the tool worker, and uplink ports to the host."""
