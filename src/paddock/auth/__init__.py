"""Who a request comes from, and what it may do."""

from paddock.auth.exposure import check_exposure, is_loopback
from paddock.auth.keys import Keys

__all__ = ["Keys", "check_exposure", "is_loopback"]
