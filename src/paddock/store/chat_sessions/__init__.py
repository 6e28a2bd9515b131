"""SQL stores of chat sessions, their messages, calls and checkpoints."""
