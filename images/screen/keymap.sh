#!/bin/sh
# Makes a directory for the display's -xkbdir, in which its keymap is in one piece: nothing of it is included any more.
#
# A display compiles its keymap anew each time it starts, from a dozen files of several hundred keyboards. Here it finds
# one file for each part. All other keyboards are still there, for setxkbmap.
set -eu
keyboards=$1
cp -rs /usr/share/X11/xkb "$keyboards"
whole=$(mktemp)
xkbcomp -w 0 -xkb -o "$whole" - <<'KEYMAP'
xkb_keymap {
  xkb_keycodes { include "evdev+aliases(qwerty)" };
  xkb_types { include "complete" };
  xkb_compat { include "complete" };
  xkb_symbols { include "pc+us+inet(evdev)" };
  xkb_geometry { include "pc(pc105)" };
};
KEYMAP
rm "$keyboards/rules/evdev"
for part in keycodes types compatibility symbols geometry; do
  place=${part%ibility}
  sed -n "/^xkb_$part /,/^};/p" "$whole" | sed "1s/.*/default xkb_$part \"paddock\" {/" >"$keyboards/$place/paddock"
  test "$(wc -l <"$keyboards/$place/paddock")" -gt 3
  case $place in symbols) of=layout ;; *) of=model ;; esac
  printf '! %s = %s\n  * = paddock\n' "$of" "$place" >>"$keyboards/rules/evdev"
done
rm "$whole"
