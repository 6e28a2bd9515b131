"""Tools that drive chromium: pages, elements, tabs, downloads, and tools in which a model works a page."""
