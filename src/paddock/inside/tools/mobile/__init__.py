"""Tools that drive a phone: chromium as a phone, or a real Android device over ADB."""
