"""Parse, patch and translate large requests in worker processes."""
