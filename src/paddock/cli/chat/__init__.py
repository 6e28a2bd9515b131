"""Commands on chats with agents: `paddock chat` and `paddock session`."""
