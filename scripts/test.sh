#!/usr/bin/env bash
# The checks of softmkey. Every step runs, whatever failed before it. The output of a step goes to a
# file below .cache/test; tools/report prints its failures, and at the end a table of the steps and
# what could not be run on this machine.
#
#   scripts/test.sh         five minutes at most, without root; needs Go, and a C compiler for the race detector
#   scripts/test.sh all     everything that CI runs; first what the quick form runs
#   scripts/test.sh long    the same in the long form (100,000 random keys, gigabytes of faults), and more
#
# No form installs anything: scripts/setup.sh does.
set -uo pipefail
cd "$(dirname "$0")/.."

form=${1:-quick}
case $form in
quick | all) short=-short timeout=12m ;;
long) short= timeout=2h; export SOFTMKEY_LONG=1 ;;
*) echo "scripts/test.sh: $form: must be all, long or nothing" >&2; exit 2 ;;
esac

# Nothing that is compiled has the checkout's path in it, so that clones and work trees share go's build cache.
export GOFLAGS="$(go env GOFLAGS) -trimpath"

logs=$PWD/.cache/test/$form
rm -rf "$logs"
mkdir -p "$logs"
report=$logs/report
go build -C tools -o "$report" ./report || exit 1
work=$(mktemp -d)
beside=
ended() {
	[ -z "$beside" ] || { kill -- "-$beside" && wait "$beside"; } 2>/dev/null
	chmod -R u+w "$work" && rm -rf "$work"
}
trap ended EXIT

# step NAME COMMAND... runs a command, which may be a function; in a function the first command
# that fails ends the step.
step() {
	local name=$1 begin=$SECONDS status
	shift
	(set -e; "$@") </dev/null >"$logs/$name.out" 2>&1
	status=$?
	"$report" step "$logs" "$name" $status $((SECONDS - begin))
}
# Programs without DWARF are linked in two thirds of the time. Failures need none. The step vet has
# vetted everything.
gotest() { go test -json -vet=off -ldflags=-w -timeout $timeout "$@"; }
gotest_in() { cd "$1" && shift && gotest "$@"; }

# begin_beside starts a function with steps at a low priority, in a process group of its own, while the
# following steps run. end_beside waits for it.
begin_beside() {
	set -m
	(
		renice -n 19 -p "$BASHPID" >/dev/null
		"$@"
	) &
	beside=$!
	set +m
}
end_beside() {
	wait "$beside"
	beside=
}

# The packages whose code depends on the processor's instruction set, the tier. The tests of
# the kernels test every tier that the processor has. Those of the packages above use the tier
# that SOFTMKEY_CPU chooses.
kernels="./internal/base/kernel/..."
above="./sig/... ./xts/... ./mkey/... ./dek/..."

has_cgo() { [ "$(go env CGO_ENABLED)" = 1 ] && command -v "$(go env CC)" >/dev/null; }

gofmt_all() {
	local unformatted
	unformatted=$(find . -path ./.cache -prune -o -name '*.go' -print0 | xargs -0 gofmt -l)
	[ -z "$unformatted" ] || { echo "not gofmt-ed:" $unformatted; return 1; }
}

# need PACKAGE PROGRAM... succeeds if the programs and files are there. Otherwise it prints the line by which
# tools/report knows that a step, or a part of it, was not run.
need() {
	local package=$1 p
	shift
	for p; do
		[ -e "$p" ] || command -v "$p" >/dev/null || { echo "NOT RUN: $p is missing, of Debian's package $package"; return 1; }
	done
}

race() {
	need gcc "$(go env CC)" || return 0
	gotest -race -shuffle on "$@"
}

# Tests of the command that take long with programs of other projects, a browser, a flood or losses.
programs='^Test(CopyFlood|Draw.*|Run(Lossy|TraceSchema|MPI|UCX.*|Fio|Libfabric|XRC.*|Cluster|DPDK|ISER|Perfetto|FullMemory|Emulated|Pyverbs.*|TwoHosts))$'

# Tests of the command in which the supervisor, with its goroutines, is the process of the test. The other tests start
# a program that is built without the race detector.
supervisors='^Test(Script|Run(Hostile|Many|Waits|ReusedNumber))$'
# Scripts of commands that serve nobody: what they do with goroutines is tested in the packages.
alone='^TestScript$/^(usage|crypto|metadata|detect|names|output|sectors|verify|copy_usage|stdout|protect|image|escape|convert|json|inspect|draw|volume)$'

# Tests over modelled networks that the full form runs in full.
networks='^Test(Links|Overflow|ReorderingLinks|Sharing|FirstRoundTrip)$'

# Small packages with many goroutines.
few="./cm ./dek ./mkeyio ./internal/roce/inproc ./internal/roce/netem ./internal/device/engine ./internal/hca/frames ./internal/hca/share ./internal/hca/pump"

# The tests in which goroutines meet, of packages whose other tests run in one goroutine: roce's in virtual time.
meet='^Test(Concurren.*|Free.*|ReaderAt|Inside.*|Isolated.*|Poller.*|Port.*|PeerPort.*|RandomPacketFlood|ConnectedToItself)$'

quick() {
	step format gofmt_all
	step generated scripts/generate.sh --sums
	step vet go vet ./... # also compiles what the next steps need
	step import-order scripts/layers.sh
	step subjects scripts/subjects.sh
	step tests gotest -short -skip "$programs|$networks|^TestRun(Hostile|Many|Waits|ReusedNumber)$" ./...
	step report gotest_in tools ./report
	step purego gotest -short -tags purego $kernels
	step race race -short $few
	step race-roce race -short -run "$meet" ./internal/roce
}

# The packages that are neither among the few nor sequential: those that start goroutines, or whose tests do. The kernels
# are left out: they have no concurrency, and their tests take ten times as long.
race_others() {
	local others
	others=$(comm -23 <(
		go list -f '{{.ImportPath}} {{.Dir}}' ./... | grep -vE '/internal/base/kernel/|/cmd/softmkey ' | while read -r package dir; do
			! grep -qE '^\s*go (func|[[:alnum:]_.]+)\(|\.Go\(|\.(Run)?Parallel\(' "$dir"/*.go || echo "$package"
		done | sort
	) <(go list $few ./sig ./xts ./mkey ./internal/roce | sort))
	[ -n "$others" ]
	# The skipped tests start other processes, built without the detector, or run in one goroutine.
	race -short -skip '^Test(OutsideModule|Tshark|NothingLeft|RequestFloods|NextDefinition|KeyFootprint|LimitOfObjects|EveryBitOfContexts|CommandsOfDrivers|EveryKey)$' $others
}

race_everything() { race $(go list ./... | grep -v /internal/base/kernel/); }

# The vulnerability database is on the network.
vulnerabilities() {
	local text status=0
	text=$(go tool -modfile=tools/go.mod govulncheck ./... 2>&1) || status=$?
	if grep -q 'fetching vulnerabilities' <<<"$text"; then
		echo "NOT RUN: govulncheck cannot reach the vulnerability database"
		return 0
	fi
	echo "$text"
	return $status
}

tidy() { go mod tidy -diff; }

# Compares the public packages with those of the last release, for api_changes. An incompatible change is a failure from version 1 on.
api() {
	local tag
	tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null) || { echo "NOT RUN: this clone has no tag of a release to compare with"; return 0; }
	mkdir "$work/api"
	git archive "$tag" | tar -x -C "$work/api"
	go -C tools build -o "$work/apigate" ./apigate
	"$work/apigate" "$work/api" . >"$logs/api.txt" || [[ $? = 1 && $tag = v0.* ]]
}
api_changes() { [ ! -s "$logs/api.txt" ] || { echo "incompatible with the last release:"; cat "$logs/api.txt"; }; }

# vet looks at assembly and at what stands in its place; the compiler's types are checked for every package.
platforms() {
	CGO_ENABLED=0 GOARCH=arm64 go vet $kernels
	go -C tools vet ./...
	go -C tools run ./typecheck .. linux/arm64 linux/386 darwin/arm64 windows/amd64 js/wasm
	go vet -tags purego $kernels
	go vet -tags poison ./internal/base/loan
	go -C internal/base/kernel/_asm vet ./...
}

arm64() {
	need qemu-user qemu-aarch64 || return 0
	GOARCH=arm64 CGO_ENABLED=0 gotest -short -exec qemu-aarch64 $kernels $above ./internal/net/wire/...
}

# Guests on a processor with words of 32 bits. Debian 12's qemu-i386 cannot run Go programs.
words32() {
	export GOARCH=386 CGO_ENABLED=0
	go run ./internal/base/cpu/tiers >/dev/null || { echo "NOT RUN: this kernel runs no programs of 32 bits"; return 0; }
	gotest -short ./internal/hca/pci/...
}

# Memory is overwritten at the end of each loan (internal/base/loan).
poison() { gotest -short -tags poison "$@"; }

fuzz() { scripts/fuzz.sh "${FUZZTIME:-1000x}"; }

# Checks that only compute run beside the steps that wait much of the time.
computing() {
	step generators scripts/generate.sh --check
	step platforms platforms
	step arm64 arm64
	step words32 words32
	step fuzz fuzz
}

# tier NAME HERE runs the tests of the packages above the kernels on a tier that the processor has or not.
# -count=1: go test's cache does not know of a variable that is read before the tests start.
tier() {
	if [ "$2" = yes ]; then
		SOFTMKEY_CPU=$1 gotest ${3:-} -count=1 $above
	elif [ "$1" = avx2 ]; then
		need qemu-user qemu-x86_64 || return 0
		CGO_ENABLED=0 gotest -short -exec 'qemu-x86_64 -cpu max' $kernels $above
	else
		# qemu-user emulates AVX2, but neither VAES with 256 bits nor AVX-512.
		echo "NOT RUN: this processor lacks the instructions of the tier $1, and qemu-user does too"
	fi
}

# The tests run in full on the processor's best tier, and -short on the others. The tests with the tag purego
# test what the tier generic runs.
tiers() {
	local all best
	all=$(go run ./internal/base/cpu/tiers | grep -v '^generic ')
	best=$(awk '$2 == "yes" { best = $1 } END { print best }' <<<"$all")
	while read -r name here; do
		if [ "$name" = "$best" ]; then
			step "tier-$name" tier "$name" "$here"
		else
			step "tier-$name" tier "$name" "$here" -short
		fi
	done <<<"$all"
}

peers() {
	need libisal-dev /usr/include/isa-l.h || return 0
	need libssl-dev /usr/include/openssl/evp.h || return 0
	go -C bench vet ./...
	gotest_in bench ./...
}

release() {
	[ -z "$(git status --porcelain)" ] || { echo "NOT RUN: the tree has changes that are not committed"; return 0; }
	scripts/release.sh --check
	scripts/proxy.sh "$work/proxy"
	GOFLAGS=-modcacherw GOMODCACHE=$work/modules GOBIN=$work/bin GONOSUMDB=github.com/softmkey/softmkey \
		GOPROXY="file://$work/proxy,$(go env GOPROXY)" go -C "$work" install github.com/softmkey/softmkey/cmd/softmkey@latest
	"$work/bin/softmkey" version
}

# The kernel's soft-RoCE as a peer, and virtual machines.
guests() {
	[ "$(id -u)" = 0 ] || { echo "NOT RUN: the guests' network needs root, for a namespace and a tap device: sudo make test-all"; return 0; }
	need qemu-system-x86 qemu-system-x86_64 || return 0
	[ -e .cache/interop/kernel/boot ] || { echo "NOT RUN: the guests have no kernel: scripts/setup.sh interop"; return 0; }
	cd interop
	go vet ./...
	# If a guest's kernel crashes under the load, all later tests fail because its address
	# is gone. That is not a fault of softmkey, so there are up to two more attempts with
	# new guests. Any other failure counts.
	for try in 1 2 3; do
		if gotest $short -count=1 ./... >"$logs/guests-$try" 2>&1; then
			cat "$logs/guests-$try"
			return 0
		fi
		if [ $try = 3 ] || ! grep -aq 'no route to host' "$logs/guests-$try"; then
			cat "$logs/guests-$try"
			return 1
		fi
		echo "A GUEST WENT AWAY during try $try, see $logs/guests-$try; booting new ones"
	done
}

# Virtual machines that are processes of this host. Their kernel takes 25 minutes of compiling.
uml() {
	[ "$(id -u)" = 0 ] && cmp -s interop/guest/files/uml.config .cache/interop/uml/config || { echo "NOT RUN: guests in User-mode Linux need root, and a kernel that sudo interop/uml.sh makes"; return 0; }
	gotest_in interop -count=1 -run TestPCI . -uml
}

everything() {
	step tidy tidy
	step api api
	api_changes
	step staticcheck go tool -modfile=tools/go.mod staticcheck ./...
	step vulnerabilities vulnerabilities
	# Tests that wait run beside checks that only compute.
	begin_beside computing
	step programs gotest $short -run "$programs" ./cmd/softmkey
	step guests guests
	step uml uml
	step race-others race_others
	step race-named race -short -run "$meet" ./sig ./xts ./mkey
	step race-command race -short -run "$supervisors" -skip "$alone" ./cmd/softmkey
	# Many networks and floods, in full.
	step networks gotest ./internal/roce ./cm ./internal/device/cmcore ./internal/device/engine
	step poison poison ./internal/roce ./internal/device/engine ./internal/hca/share ./internal/hca/framenet ./mkey ./mkeyio ./internal/tool/nbd/...
	step kernels gotest $kernels
	tiers
	step purego-above gotest -short -tags purego $above ./internal/net/wire/...
	step peers peers
	end_beside
}

quick
case $form in
all) everything ;;
long)
	everything
	step release release
	step race-everything race_everything
	;;
esac
"$report" end "$logs"
