#!/usr/bin/env bash
# Runs everything that CI runs, the cheapest checks first. "make test" calls this script.
# SOFTMKEY_LONG=1 runs the same tests in their long form. At the end the script lists what
# it could not run on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

# The time limit of a package. When it ends, go test prints where the package hangs.
timeout=12m
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

# gotest runs go test with the arguments, prints a line for each package, and notes the
# tests that were skipped or that print NOT RUN. If a test fails, it prints the output
# without that of tests that passed.
gotest() {
	local status=0 log=$work/log.$BASHPID
	go test -v "$@" </dev/null >"$log" 2>&1 || status=$?
	if [ $status != 0 ]; then
		grep -avE '^ *(=== (RUN|PAUSE|CONT|NAME)|--- PASS)' "$log" >&2 || true
		return $status
	fi
	grep -aE '^ok ' "$log" || true
	# The reason for a skip is the last line that the test logged.
	awk '
		/^ *=== RUN/ { test = $3 }
		/^ +[^ ]+\.go:[0-9]+: / { said = $0; sub(/^ *[^ ]*: (NOT RUN: )?/, "", said) }
		/^ +[^ ]+\.go:[0-9]+: NOT RUN: / { print "NOT RUN: " test ": " said }
		/^ *--- SKIP: / { print "NOT RUN: " $3 ": " said }
	' "$log" | sort -u | tee -a "$work/not-run"
}

# begin_beside starts a command at a low priority, in a process group of its own, while the
# following steps run. end_beside waits for it and prints its output.
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
# The vulnerability database is on the network. If it cannot be reached, the check counts as
# not run. A finding, or any other failure, is an error.
if ! report=$(go tool -modfile=tools/go.mod govulncheck ./... 2>&1); then
	if grep -q 'fetching vulnerabilities' <<<"$report"; then
		not_run "govulncheck: the vulnerability database cannot be reached from here"
	else
		echo "$report" >&2
		exit 1
	fi
fi

step "tests, with the race detector"
# The kernels are left out, because they have no concurrency and their tests take ten times as
# long under the race detector. The packages that use the kernels test what these report to the
# detector. The skipped tests transfer megabytes over modelled networks in one goroutine; the next
# step runs them.
gotest -race $short -skip '^(TestLinks|TestOverflow|TestReorderingLinks|TestPathReports|TestRequestFloods)$' -shuffle on -timeout $timeout $(go list ./... | grep -v /internal/base/kernel/)

# The packages whose code depends on the processor's instruction set, the tier. The tests of
# the kernels test every tier that the processor has. Those of the packages above use the tier
# that SOFTMKEY_CPU chooses.
kernels="./internal/base/kernel/..."
above="./sig/... ./xts/... ./mkey/... ./dek/..."

# The tests with guests wait much of the time. Checks that only compute run beside them and the other
# steps that follow, at a low priority.
check_elsewhere() {
	step "other platforms"
	# vet is cheap for arm64 only, because its tests are compiled below anyway.
	CGO_ENABLED=0 GOARCH=arm64 go vet ./...
	(cd tools && go vet ./... && go run ./typecheck .. linux/386 darwin/arm64 windows/amd64)
	go vet -tags purego ./...
	(cd internal/base/kernel/_asm && go vet ./...)
	step "tests on arm64, under qemu"
	GOARCH=arm64 CGO_ENABLED=0 gotest -short -timeout $timeout -exec qemu-aarch64 $kernels $above ./internal/base/wire/...
	step "guests on a processor with words of 32 bits"
	GOARCH=386 CGO_ENABLED=0 gotest -short -timeout $timeout ./internal/hca/pci/...
	step "short fuzzing"
	scripts/fuzz.sh "${FUZZTIME:-1000x}"
	step "done with other platforms and fuzzing"
}
begin_beside check_elsewhere

step "transport and engine over many networks, without the race detector"
# The tests with modelled networks take ten times as long under the race detector.
gotest -timeout $timeout ./roce ./internal/base/cmcore ./internal/base/engine

step "tests of every tier, without the race detector"
gotest -timeout $timeout $kernels
go run ./internal/base/cpu/tiers | while read -r tier here; do
	[ "$tier" != generic ] || continue # the tests with the tag purego test the same code
	echo "-- tier $tier"
	if [ "$here" = yes ]; then
		# -count=1: go test's cache does not know of a variable that is read before the tests start.
		SOFTMKEY_CPU=$tier gotest -count=1 -timeout $timeout $above
	elif [ "$tier" = avx2 ]; then
		CGO_ENABLED=0 gotest -short -timeout $timeout -exec 'qemu-x86_64 -cpu max' $kernels $above
	else
		# qemu-user emulates AVX2, but neither VAES with 256 bits nor AVX-512.
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

step "the kernel's soft-RoCE as a peer, in qemu"
if [ "$(id -u)" = 0 ]; then
	interop/setup.sh
	(cd interop && go vet ./...)
	# If a guest's kernel crashes under the load, all later tests fail because its address
	# is gone. That is not a fault of softmkey, so there are up to two more attempts with
	# new guests. Any other failure counts.
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
