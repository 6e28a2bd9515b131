"""The model proxy: relay model requests of sandboxes, runs and clients to providers, and archive them."""
