"""Many sandboxes: made, kept, counted and ended."""
