"""Tools that see and control the X desktop: screenshots, mouse, keyboard, clipboard, windows and programs."""
