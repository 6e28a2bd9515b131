"""Chat with agents: engines, approvals, tools across sandboxes."""
