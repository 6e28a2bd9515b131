"""Routes for what people and agents do in a running sandbox: desktop, terminals, recordings and tool calls."""
