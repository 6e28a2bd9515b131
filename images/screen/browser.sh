# Starts the browser, and creates a file when it accepts DevTools connections.
profile=$HOME/.browser
ready=$XDG_RUNTIME_DIR/browser
port=${PADDOCK_CDP##*:}
# Files of an earlier run would say that it is ready, or that another browser uses the profile.
rm -f "$ready" "$profile"/Singleton*

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
