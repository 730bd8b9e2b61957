# The targets people use. What each does is in scripts/, so that it can be read. bench,
# interop, guests, two-guests, uml, clients and docs need what `make setup` installs.

.PHONY: build install release images demo test test-all long setup fuzz bench growth clients docs generate interop guests guests-hostile two-guests uml clean

build:
	@scripts/needgo.sh
	CGO_ENABLED=0 go build -trimpath -ldflags "-X 'main.release=$$(scripts/version.sh)'" -o bin/softmkey ./cmd/softmkey
	scripts/library.sh bin

# The command, its manual pages and completions below PREFIX. DESTDIR goes before it.
PREFIX = /usr/local
install: build
	scripts/stage.sh bin/softmkey "$(DESTDIR)$(PREFIX)"
	[ ! -e bin/libsoftmkey-run.so ] || install -Dm644 -t "$(DESTDIR)$(PREFIX)/lib/softmkey" bin/libsoftmkey-run.so

# Binaries, .deb, .rpm and archives in dist/, the same bytes wherever they are built. `scripts/release.sh --check` builds them twice.
release:
	scripts/release.sh

# Container images for podman, without a registry: one of the binary alone, one with Debian's rdma-core.
images:
	scripts/images.sh

demo: build
	bin/softmkey copy README.md bin/README.copy.md --wire t10dif
	cmp README.md bin/README.copy.md

# What every change needs, in five minutes. Needs Go, and a C compiler for the race detector.
test:
	scripts/test.sh

# Everything that CI runs. Tests that need a program, root or the network are skipped without it, and listed.
test-all:
	scripts/test.sh all

# The same tests in their long form: 100,000 random keys, gigabytes of faults, the race detector everywhere.
long:
	FUZZTIME=50000x scripts/test.sh long

# Debian's packages for the tests, benchmarks and pictures, and kernels for virtual machines; needs root.
# `scripts/setup.sh run` installs only the five packages for the examples of the README.
setup:
	scripts/setup.sh

fuzz:
	scripts/fuzz.sh

bench:
	cd bench && go run ./cmd/bench --files --docs ../docs

# How cost grows with the number of objects; takes ten minutes, and 3 GB of memory.
growth:
	cd bench && go run ./cmd/bench --growth --files

# The long form of the tests against the kernel's soft-RoCE; needs root.
interop:
	cd interop && go test -v -timeout 30m ./...

# Virtual machines with adapters of softmkey pci; needs root.
guests:
	cd interop && go test -v -count=1 -timeout 60m -run 'TestPCI' .

# Two virtual machines with an adapter each: ibv_rc_pingpong and NVMe over RDMA with T10-PI, with the time of each step.
two-guests: build
	cd interop && go run ./cmd/twoguests

# A guest, a monitor and a network that do what they like, for an hour against `softmkey pci`.
guests-hostile:
	go test -v -count=1 -timeout 2h -run TestHostileGuest ./internal/hca/pci/vm -hostile 1h

# The tests of virtual machines that need no program on RDMA in the guest, with a kernel in User-mode Linux, which runs
# at native speed; then speeds of storage and of TCP between two guests. Makes the kernel first. Needs root.
uml:
	interop/uml.sh
	cd interop && go test -v -count=1 -timeout 60m -run 'TestPCI|TestUMLSpeed' . -uml -uml-rounds 3

# The field's RDMA programs on `softmkey run`: a table of what runs.
clients: build
	scripts/clients.sh

# The pictures of the documentation, from real runs.
docs: build
	scripts/docs.sh

generate:
	scripts/generate.sh

clean:
	rm -rf bin dist .cache
