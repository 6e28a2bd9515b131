"""Local backend: sandboxes as bubblewrap processes with cgroups, without a daemon on the host."""
