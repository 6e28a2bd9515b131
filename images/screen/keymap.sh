#!/bin/sh
# Creates a directory for the display's -xkbdir with a keymap in one file per part, without includes.
#
# A display compiles its keymap at each start, by default from a dozen files of several hundred keyboards. All other
# keyboards are still there, for setxkbmap.
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
  directory=${part%ibility}
  sed -n "/^xkb_$part /,/^};/p" "$whole" | sed "1s/.*/default xkb_$part \"paddock\" {/" >"$keyboards/$directory/paddock"
  test "$(wc -l <"$keyboards/$directory/paddock")" -gt 3
  case $directory in symbols) of=layout ;; *) of=model ;; esac
  printf '! %s = %s\n  * = paddock\n' "$of" "$directory" >>"$keyboards/rules/evdev"
done
rm "$whole"
