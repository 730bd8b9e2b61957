#!/bin/sh
# needgo.sh [GO.MOD]: says in one sentence which Go is needed if there is none, or one before 1.21, which cannot fetch a
# newer one.
want=$(sed -n 's/^go //p' "${1:-go.mod}")
from="https://go.dev/dl has it: unpack it below /usr/local, and put /usr/local/go/bin in front of the PATH"
if ! command -v go >/dev/null; then
	echo "Go $want or newer is needed, and there is no go in the PATH: $from" >&2
	exit 1
fi
have=$(GOTOOLCHAIN=local go version | sed -n 's/^go version go1\.\([0-9]*\).*/\1/p')
if [ -n "$have" ] && [ "$have" -lt 21 ]; then
	echo "Go $want or newer is needed, and $(command -v go) is Go 1.$have: $from" >&2
	exit 1
fi
