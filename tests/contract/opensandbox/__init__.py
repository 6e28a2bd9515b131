"""OpenSandbox's own clients, unmodified, against a real `paddock serve`."""
