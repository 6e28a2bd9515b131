"""Output of entrypoints: following it, masking secrets, logging it, and publishing agent events."""
