#!/bin/sh
# The name of this file's copy is the language. A cell that is interrupted in a timer leaves Node's async hooks unbalanced.
exec node --no-warnings --experimental-import-meta-resolve --no-force-async-hooks-checks \
  /usr/local/lib/paddock/kernels/kernel.mjs "$(basename "$0")"
