"""Live desktops, terminals, recordings and tool calls of sandboxes, and the lease on their input."""
