"""MCP over gRPC: many exchanges on one stream between hosts, and typed calls for programs that are not MCP clients."""
