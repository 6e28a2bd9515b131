"""Chat sessions with agents: turns, approvals and tools across sandboxes."""
