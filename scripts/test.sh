#!/usr/bin/env bash
# Everything that CI runs, in the order in which a mistake is cheapest to find.
# make test calls it; SOFTMKEY_LONG=1 makes the same tests run in their long form.
set -euo pipefail
cd "$(dirname "$0")/.."

# The long form takes its time; the short one that hangs should say where.
timeout=8m
short=-short
[ -z "${SOFTMKEY_LONG:-}" ] || { timeout=2h; short=; }

started=$SECONDS
step() { printf '\n== %s (%ds)\n' "$*" $((SECONDS - started)); }

step "Debian packages"
scripts/setup.sh

step "format, tidy, vet, staticcheck"
unformatted=$(git ls-files '*.go' | xargs gofmt -l)
[ -z "$unformatted" ] || { echo "not gofmt-ed: $unformatted" >&2; exit 1; }
go mod tidy -diff
go vet ./...
go tool staticcheck ./...

step "import order, generated files"
scripts/layers.sh
scripts/generate.sh --check

step "govulncheck"
# The vulnerability database is on the network. Without it nothing is known, and
# that is said; a finding, or any other failure, is an error.
if ! report=$(go tool govulncheck ./... 2>&1); then
	if grep -q 'fetching vulnerabilities' <<<"$report"; then
		echo "NOT CHECKED: the vulnerability database cannot be reached from here"
	else
		echo "$report" >&2
		exit 1
	fi
fi

step "builds for other platforms"
for target in linux/arm64 darwin/arm64 windows/amd64; do
	GOOS=${target%/*} GOARCH=${target#*/} CGO_ENABLED=0 go vet ./...
done
go vet -tags purego ./...

step "tests, with the race detector"
go test -race -shuffle on -timeout $timeout ./...

step "tests of every tier, without it"
for tier in $(go run ./internal/base/cpu/tiers); do
	echo "-- SOFTMKEY_CPU=$tier"
	# -count=1: the test cache does not know of a variable that is read at start.
	SOFTMKEY_CPU=$tier go test -count=1 -timeout $timeout ./sig/... ./xts/... ./mkey/... ./internal/base/kernel/...
done

step "tests on arm64, under qemu"
GOARCH=arm64 CGO_ENABLED=0 go test -short -timeout $timeout -exec qemu-aarch64 ./sig/... ./xts/... ./mkey/... ./internal/base/kernel/... ./internal/base/wire/... ./dek/...

step "agreement with ISA-L and OpenSSL"
(cd bench && go vet ./... && go test ./...)

step "the kernel's soft-RoCE as a peer, in qemu"
if [ "$(id -u)" = 0 ]; then
	interop/setup.sh
	(cd interop && go vet ./...)
	# A guest whose kernel dies under the load takes every test after it along. That
	# says nothing of us and is told apart by its address, which has gone: then it
	# is said, and there are up to two more tries with new guests. Anything else is a failure.
	log=$(mktemp)
	for try in 1 2 3; do
		(cd interop && go test $short -count=1 -timeout $timeout ./...) >"$log" 2>&1 && break
		if [ $try = 3 ] || ! grep -q 'no route to host' "$log"; then
			cat "$log" >&2
			exit 1
		fi
		grep -m 1 -A 3 -e '--- FAIL' "$log"
		sed -n '/^the end of .*:$/,$p' "$log" # the guests' consoles
		echo "A GUEST WENT AWAY during try $try; booting new ones"
	done
	cat "$log"
	rm -f "$log"
else
	echo "NOT RUN: the guest's network needs root, for a namespace and a tap device"
fi

step "short fuzzing"
scripts/fuzz.sh "${FUZZTIME:-3000x}"

step "done"
