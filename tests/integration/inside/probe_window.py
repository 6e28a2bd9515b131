"""Program with a window that logs its input events; runs in a sandbox under the sandbox's Python."""

PROBE = r"""
import os, sys
from Xlib import X, XK, display
title, log = sys.argv[1], sys.argv[2]
d = display.Display()
screen = d.screen()
w = screen.root.create_window(200, 150, 400, 300, 0, screen.root_depth, background_pixel=screen.white_pixel,
    event_mask=X.ButtonPressMask | X.ButtonReleaseMask | X.KeyPressMask | X.ButtonMotionMask | X.ExposureMask)
w.set_wm_name(title)
w.set_wm_class("probe", "Probe")
w.change_property(d.intern_atom("_NET_WM_PID"), d.intern_atom("CARDINAL"), 32, [os.getpid()])
w.set_wm_protocols([d.intern_atom("WM_DELETE_WINDOW")])
w.map()
gc = w.create_gc(foreground=screen.black_pixel)
d.flush()
names = {getattr(XK, n): n[3:] for n in dir(XK) if n.startswith("XK_")}
with open(log, "a", buffering=1) as out:
    while True:
        e = d.next_event()
        if e.type == X.ButtonPress:
            out.write(f"press {e.detail} {e.root_x} {e.root_y} {e.state & 0xff}\n")
            w.fill_rectangle(gc, e.event_x, e.event_y, 20, 20)
            d.flush()
        elif e.type == X.ButtonRelease:
            out.write(f"release {e.detail} {e.root_x} {e.root_y}\n")
        elif e.type == X.MotionNotify:
            out.write(f"move {e.root_x} {e.root_y}\n")
        elif e.type == X.KeyPress:
            symbol = d.keycode_to_keysym(e.detail, 1 if e.state & 1 else 0)
            out.write(f"key {names.get(symbol, symbol)} {e.state & 0xff}\n")
            if symbol == XK.XK_F9:
                # A window that does not take the focus, like Wine's dialogs.
                shy = screen.root.create_window(20, 20, 90, 90, 0, screen.root_depth, background_pixel=0)
                shy.set_wm_name("back\\slash")
                shy.change_property(d.intern_atom("_NET_WM_USER_TIME"), d.intern_atom("CARDINAL"), 32, [0])
                shy.map()
                d.flush()
        elif e.type == X.ClientMessage:
            sys.exit()
"""

BLINKER = r"""
import time
from Xlib import X, display
d = display.Display()
s = d.screen()
w = s.root.create_window(0, 0, 50, 50, 0, s.root_depth, background_pixel=s.white_pixel, override_redirect=True)
w.map()
gc = [w.create_gc(foreground=c) for c in (s.black_pixel, s.white_pixel)]
for n in range(100000):
    w.fill_rectangle(gc[n % 2], 0, 0, 50, 50)
    d.sync()
    time.sleep(0.02)
"""

RESIZE = r"""
import sys
from Xlib import display
from Xlib.ext import randr
d = display.Display()
root = d.screen().root
info = root.xrandr_get_screen_info()
wanted = tuple(map(int, sys.argv[1].split("x")))
number = next(n for n, s in enumerate(info.sizes) if (s.width_in_pixels, s.height_in_pixels) == wanted)
root.xrandr_set_screen_config(number, randr.Rotate_0, info.config_timestamp, 0, 0)
d.sync()
"""

DEAF_OWNER = r"""
from Xlib import X, display
d = display.Display()
w = d.screen().root.create_window(0, 0, 1, 1, 0, X.CopyFromParent)
for name in ("CLIPBOARD", "PRIMARY"):
    w.set_selection_owner(d.intern_atom(name), X.CurrentTime)
d.sync()
print("owns", flush=True)
while True:
    d.next_event()  # And never answers.
"""

GREEDY = r"""
from Xlib import X, display
d = display.Display()
w = d.screen().root.create_window(0, 0, 60, 60, 0, X.CopyFromParent)
w.change_property(d.intern_atom("_NET_WM_NAME"), d.intern_atom("UTF8_STRING"), 8, b"\xff" * 200_000)
w.set_wm_class("a" * 1000, "\x01" * 1000)
w.map()
d.sync()
while True:
    d.next_event()
"""
