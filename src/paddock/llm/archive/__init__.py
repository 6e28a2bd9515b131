"""Store every exchange with a model, and list, search, group, export and delete exchanges."""
