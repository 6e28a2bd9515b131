"""Administration commands: `paddock serve`, `console`, `doctor`, `config`, `key`, `events` and `version`."""
