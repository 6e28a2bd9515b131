"""Relays desktops over RFB and streams pictures of screens to viewers."""
