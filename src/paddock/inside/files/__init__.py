"""Safe access to files: path resolution below a root, metadata, atomic writes, tar archives, deliveries."""
