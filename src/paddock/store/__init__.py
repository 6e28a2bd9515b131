"""Keeps what must survive a restart."""

from paddock.store.database import Store

__all__ = ["Store"]
