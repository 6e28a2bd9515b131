# Creates the user's C: drive while the image is built, so that no sandbox waits for it.
set -e
export HOME=/home/agent USER=agent WINEPREFIX=/home/agent/.wine WINEDEBUG=-all
# Mono and Gecko are not installed, and Wine must not ask for them; menus and file types stay as they are.
export WINEDLLOVERRIDES="mscoree=;mshtml=;winemenubuilder.exe=d"
unset DISPLAY
as_user() { setpriv --reuid=1000 --regid=1000 --clear-groups -- "$@"; }

# The Windows folders Documents, Desktop and so on are links to these.
as_user mkdir -p "$HOME/Desktop" "$HOME/Documents" "$HOME/Downloads" "$HOME/Music" "$HOME/Pictures" "$HOME/Videos"
as_user wine wineboot --init
as_user wine regedit /S 'Z:\usr\share\paddock\wine.reg'
as_user wineserver --wait

# The link names a directory of this build only; and sandboxes must not update the drive when they start.
rm -f "$WINEPREFIX/wineserver"
echo disable >"$WINEPREFIX/.update-timestamp"
# A sandbox copies its home when it starts. So the home has only the registry; the drive is outside it, writable for
# all users, and its files are copied when they change.
mkdir -p /var/lib/wine
mv "$WINEPREFIX/drive_c" /var/lib/wine/drive_c
ln -s /var/lib/wine/drive_c "$WINEPREFIX/drive_c"
chown -R --no-dereference 0:0 /var/lib/wine
chmod -R a+rwX /var/lib/wine
# Most of the drive is copies of Wine's own programs.
cd /var/lib/wine/drive_c/windows
find . -type f | while read -r copy; do
  own=/usr/lib/x86_64-linux-gnu/wine/x86_64-windows/${copy##*/}
  if [ -f "$own" ] && cmp -s "$own" "$copy"; then ln -f "$own" "$copy"; fi
done
