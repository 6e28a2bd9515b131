"""Commands on task runs and task files: `paddock run`, `paddock runs` and `paddock task`."""
