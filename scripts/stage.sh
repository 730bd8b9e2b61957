#!/usr/bin/env bash
# usage: stage.sh BINARY DIR [RUNNABLE]
# Copies a built softmkey, its manual pages, its completions and, for Linux, its units of systemd to DIR, with the folders of a
# prefix such as /usr. RUNNABLE is a softmkey that runs on this machine and prints the
# completions; it is needed if BINARY is for another system.
set -euo pipefail
binary=$1 dir=$2 runnable=${3:-$1}
cd "$(dirname "$0")/.."
install -Dm755 "$binary" "$dir/bin/softmkey"
mkdir -p "$dir/share/man/man1"
for page in docs/man/*.1; do
	gzip -9nc "$page" >"$dir/share/man/man1/$(basename "$page").gz"
	chmod 644 "$dir/share/man/man1/$(basename "$page").gz"
done
complete() { mkdir -p "$(dirname "$2")" && "$runnable" completion "$1" >"$2" && chmod 644 "$2"; }
complete bash "$dir/share/bash-completion/completions/softmkey"
complete zsh "$dir/share/zsh/site-functions/_softmkey"
complete fish "$dir/share/fish/vendor_completions.d/softmkey.fish"
if [ "$(head -c 4 "$binary" | tail -c 3)" = ELF ]; then
	install -Dm644 -t "$dir/lib/systemd/system" scripts/systemd/*
fi
