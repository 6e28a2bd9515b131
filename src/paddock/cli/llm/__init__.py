"""Commands on models and recorded requests: `paddock llm`."""
