"""The history of the schema, applied by `paddock.store.schema_migration`."""
