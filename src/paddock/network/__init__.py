"""The way of sandboxes to the network: policy decisions, address checks, and the relay of connections."""
