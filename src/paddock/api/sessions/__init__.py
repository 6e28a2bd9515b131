"""Routes for chat sessions, their approvals and files, as JSON, WebSocket and AG-UI."""
