"""Routes for sandboxes, their images, snapshots, pools and network policy, and the proxy to their ports."""
