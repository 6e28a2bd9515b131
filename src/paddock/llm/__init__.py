"""The LLM proxy: wire formats in, providers out."""
