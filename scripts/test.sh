#!/usr/bin/env bash
# Everything that CI runs, in the order in which a mistake is cheapest to find.
# make test calls it; SOFTMKEY_LONG=1 makes the same tests run in their long form.
# Whatever was not run here is listed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

# The long form takes its time; the short one that hangs should say where.
timeout=8m
short=-short
[ -z "${SOFTMKEY_LONG:-}" ] || { timeout=2h; short=; }

started=$SECONDS
step() { printf '\n== %s (%ds)\n' "$*" $((SECONDS - started)); }

work=$(mktemp -d)
beside=
ended() {
	[ -z "$beside" ] || { kill -- "-$beside" && wait "$beside" || true; } 2>/dev/null
	rm -rf "$work"
}
trap ended EXIT
: >"$work/not-run"
not_run() { echo "NOT RUN: $*" | tee -a "$work/not-run"; }

# gotest runs go test with the arguments, prints a line for each package, and notes
# tests that were skipped, or that say NOT RUN. If one fails, it prints all that is not
# about tests that passed.
gotest() {
	local status=0 log=$work/log.$BASHPID
	go test -v "$@" </dev/null >"$log" 2>&1 || status=$?
	if [ $status != 0 ]; then
		grep -avE '^ *(=== (RUN|PAUSE|CONT|NAME)|--- PASS)' "$log" >&2 || true
		return $status
	fi
	grep -aE '^ok ' "$log" || true
	# The reason of a skipped test is the last that it logged.
	awk '
		/^ *=== RUN/ { test = $3 }
		/^ +[^ ]+\.go:[0-9]+: / { said = $0; sub(/^ *[^ ]*: (NOT RUN: )?/, "", said) }
		/^ +[^ ]+\.go:[0-9]+: NOT RUN: / { print "NOT RUN: " test ": " said }
		/^ *--- SKIP: / { print "NOT RUN: " $3 ": " said }
	' "$log" | sort -u | tee -a "$work/not-run"
}

# begin_beside starts a command that runs beside the following steps with the processor
# time that they leave, in a process group of its own. end_beside waits for it and prints
# its output.
begin_beside() {
	set -m
	(
		renice -n 19 -p "$BASHPID" >/dev/null
		"$@"
	) >"$work/beside" 2>&1 &
	beside=$!
	set +m
}
end_beside() {
	local status=0
	wait "$beside" || status=$?
	beside=
	cat "$work/beside"
	[ $status = 0 ] || exit $status
}

step "Debian packages"
scripts/setup.sh

step "format, tidy, vet, staticcheck"
unformatted=$(git ls-files '*.go' | xargs gofmt -l)
[ -z "$unformatted" ] || { echo "not gofmt-ed: $unformatted" >&2; exit 1; }
go mod tidy -diff
go vet ./...
go tool -modfile=tools/go.mod staticcheck ./...

step "import order, generated files"
scripts/layers.sh
scripts/generate.sh --check

step "govulncheck"
# The vulnerability database is on the network. Without it nothing is known, and
# that is said; a finding, or any other failure, is an error.
if ! report=$(go tool -modfile=tools/go.mod govulncheck ./... 2>&1); then
	if grep -q 'fetching vulnerabilities' <<<"$report"; then
		not_run "govulncheck: the vulnerability database cannot be reached from here"
	else
		echo "$report" >&2
		exit 1
	fi
fi

step "other platforms"
# Only arm64's tests are compiled, below, so only there is vet cheap.
CGO_ENABLED=0 GOARCH=arm64 go vet ./...
(cd tools && go vet ./... && go run ./typecheck .. linux/386 darwin/arm64 windows/amd64)
go vet -tags purego ./...
(cd internal/base/kernel/_asm && go vet ./...)

step "tests, with the race detector"
# The kernels have no concurrency, and the race detector makes their long tests ten times
# longer. What they announce to it is tested by the packages above them. The skipped tests
# move megabytes and floods over modelled networks in one goroutine; the next step runs them.
gotest -race $short -skip '^(TestLinks|TestOverflow|TestPaths|TestFloods)$' -shuffle on -timeout $timeout $(go list ./... | grep -v /internal/base/kernel/)

step "transport and engine over many networks, without the race detector"
# The modelled networks of roce take ten times as long with it.
gotest -timeout $timeout ./roce ./internal/base/cmcore ./internal/base/engine

# The packages whose code depends on the processor. Tests of the kernels themselves run
# every tier that the processor has; those above run with the tier that is chosen.
kernels="./internal/base/kernel/..."
above="./sig/... ./xts/... ./mkey/... ./dek/..."

step "tests of every tier, without the race detector"
gotest -timeout $timeout $kernels
go run ./internal/base/cpu/tiers | while read -r tier here; do
	[ "$tier" != generic ] || continue # purego is the same code
	echo "-- tier $tier"
	if [ "$here" = yes ]; then
		# -count=1: the test cache does not know of a variable that is read at start.
		SOFTMKEY_CPU=$tier gotest -count=1 -timeout $timeout $above
	elif [ "$tier" = avx2 ]; then
		CGO_ENABLED=0 gotest -short -timeout $timeout -exec 'qemu-x86_64 -cpu max' $kernels $above
	else
		# qemu-user emulates AVX2, and neither VAES on 256 bits nor AVX-512.
		not_run "tier $tier: this processor lacks its instructions, and qemu-user does too"
	fi
done

step "tests of plain Go (purego)"
gotest -tags purego -timeout $timeout $kernels $above ./internal/base/wire/...

step "agreement with ISA-L and OpenSSL"
(cd bench && go vet ./... && gotest ./...)

if [ -n "${SOFTMKEY_LONG:-}" ]; then
	step "a release, twice, and go install from a module proxy"
	if [ -z "$(git status --porcelain)" ]; then
		scripts/release.sh --check
		scripts/proxy.sh "$work/proxy"
		GOFLAGS=-modcacherw GOMODCACHE=$work/modules GOBIN=$work/bin GONOSUMDB=github.com/softmkey/softmkey \
			GOPROXY="file://$work/proxy,$(go env GOPROXY)" go -C "$work" install github.com/softmkey/softmkey/cmd/softmkey@latest
		"$work/bin/softmkey" version
	else
		not_run "a release, twice: the tree has changes that are not committed"
	fi
fi

# The guests sleep for much of their time. What only computes runs beside them, at a low
# priority.
emulate_and_fuzz() {
	step "tests on arm64, under qemu"
	GOARCH=arm64 CGO_ENABLED=0 gotest -short -timeout $timeout -exec qemu-aarch64 $kernels $above ./internal/base/wire/...
	step "short fuzzing"
	scripts/fuzz.sh "${FUZZTIME:-3000x}"
	step "done with arm64 and fuzzing"
}
begin_beside emulate_and_fuzz

step "the kernel's soft-RoCE as a peer, in qemu"
if [ "$(id -u)" = 0 ]; then
	interop/setup.sh
	(cd interop && go vet ./...)
	# A guest whose kernel dies under the load takes every test after it along. That
	# is no fault of softmkey, and it shows as an address that has gone: then there are
	# up to two more tries with new guests. Anything else is a failure.
	for try in 1 2 3; do
		(cd interop && gotest $short -count=1 -timeout $timeout ./...) 2>"$work/guests" && break
		if [ $try = 3 ] || ! grep -aq 'no route to host' "$work/guests"; then
			cat "$work/guests" >&2
			exit 1
		fi
		grep -a -m 1 -A 3 -e '--- FAIL' "$work/guests"
		sed -n '/^the end of .*:$/,$p' "$work/guests" # the guests' consoles
		echo "A GUEST WENT AWAY during try $try; booting new ones"
	done
else
	not_run "interop: the guest's network needs root, for a namespace and a tap device"
fi

end_beside

step "done"
sort -u "$work/not-run"
