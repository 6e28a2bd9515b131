# Starts the browser, and creates a file when it accepts DevTools connections.
profile=$HOME/.browser
ready=$XDG_RUNTIME_DIR/browser
port=${PADDOCK_CDP##*:}
# Files of an earlier run would say that it is ready, or that another browser uses the profile.
rm -f "$ready" "$profile"/Singleton*

# The browser trusts its own list of authorities, and those of the user's database. The server writes the file soon after
# the start of the sandbox.
if [ -n "$PADDOCK_EXTRA_CERTIFICATES" ]; then
  attempts=100
  until [ -e "$PADDOCK_EXTRA_CERTIFICATES" ] || [ $((attempts -= 1)) -eq 0 ]; do sleep 0.05; done
  database=$HOME/.pki/nssdb
  parts=$(mktemp -d)
  mkdir -p "$database"
  awk -v parts="$parts" '/-BEGIN CERTIFICATE-/ { file = parts "/" ++count ".pem"
    print "-A -n paddock-" count " -t C,, -a -i " file >(parts "/commands") } file { print >file }' \
    "$PADDOCK_EXTRA_CERTIFICATES"
  [ -e "$database/cert9.db" ] || certutil -N -d "sql:$database" --empty-password
  [ ! -e "$parts/commands" ] || certutil -B -d "sql:$database" -i "$parts/commands"
  rm -rf "$parts"
fi

# In an orphaned process, so that the browser has no unknown child.
(
  {
    attempts=600
    until bash -c "exec 3<>/dev/tcp/127.0.0.1/$port" 2>/dev/null || [ $((attempts -= 1)) -eq 0 ]; do sleep 0.05; done
    [ $attempts -eq 0 ] || : >"$ready"
  } &
)

exec chromium --user-data-dir="$profile" --remote-debugging-port="$port" \
  --window-position=0,0 --window-size="$(echo "$PADDOCK_SCREEN" | tr x ,)" \
  --no-first-run --no-default-browser-check --disable-default-apps --disable-infobars --hide-crash-restore-bubble \
  --disable-background-networking --disable-component-update --disable-sync --disable-breakpad \
  --disable-features=Translate,MediaRouter,OptimizationHints,NetworkTimeServiceQuerying --password-store=basic \
  --component-updater=url-source=http://127.0.0.1:9/ \
  --disable-gpu --enable-unsafe-swiftshader \
  $PADDOCK_BROWSER_FLAGS "${PADDOCK_START_PAGE:-file:///usr/share/paddock/start.html}"
