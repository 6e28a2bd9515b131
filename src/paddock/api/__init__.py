"""HTTP in, calls of the fleet out."""
