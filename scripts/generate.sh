#!/usr/bin/env bash
# Regenerates everything that is generated: assembly and manual pages, and the sums of the generators and of what they wrote.
#
#   scripts/generate.sh           writes the files
#   scripts/generate.sh --sums    fails if a generator or a generated file is not the one of the sums: a second's work
#   scripts/generate.sh --check   generates the assembly in a copy, and fails if it differs
#
# The tests of cmd/softmkey check the manual pages.
set -euo pipefail
cd "$(dirname "$0")/.."
kernels=internal/base/kernel
sums() { (cd $kernels && find . -name '*_a[mr][dm]64.s' -o -path './_asm/*' -name '*.go' ! -name '*_test.go' -o -name 'go.[ms]*' | LC_ALL=C sort | xargs sha256sum); }
case "${1:-}" in
"")
	go generate ./...
	sums >$kernels/_asm/SUMS
	;;
--sums)
	sums | diff $kernels/_asm/SUMS - && exit
	echo "a generator of assembly or what it wrote has changed: run make generate" >&2
	exit 1
	;;
--check)
	copy=.cache/generate
	rm -rf $copy
	mkdir -p $copy/internal/base
	cp go.mod $copy
	cp -r $kernels $copy/internal/base
	(cd $copy && go generate ./...)
	diff -rq $kernels $copy/$kernels && exit
	echo "these files differ from what their generators write: run make generate" >&2
	exit 1
	;;
esac
