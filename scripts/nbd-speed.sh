#!/usr/bin/env bash
# usage: nbd-speed.sh SOFTMKEY [ROUNDS [SECONDS]]
# Measures reads of 128 KiB with fio, from the page cache: through softmkey nbd with T10-DIF beside
# nbdkit's file plugin, and through softmkey nbd with AES-XTS beside qemu-nbd's LUKS. Measurements
# alternate. Prints MB/s of each round, and the medians of the ratios.
# Needs fio, nbdkit, qemu-utils and libnbd-bin.
set -euo pipefail
softmkey=$(realpath "$1") rounds=${2:-6} seconds=${3:-1}
dir=$(mktemp -d)
servers=
ended() {
	[ -z "$servers" ] || kill $servers 2>/dev/null || true
	wait || true
	rm -rf "$dir"
}
trap ended EXIT
cd "$dir"
head -c 256M /dev/urandom >plain
"$softmkey" protect -q --sig t10dif plain dif512
"$softmkey" protect -q --sig t10dif:4096 plain dif4096
"$softmkey" dek generate dek >/dev/null
"$softmkey" tx -q --crypto encrypt --unit 4096 --dek dek plain xts
luks=driver=luks,file.driver=file,file.filename=luks,key-secret=s
qemu-img create -q -f luks --object secret,id=s,data=speed -o key-secret=s,iter-time=10 luks 256M
nbdcopy plain "[ qemu-nbd --object secret,id=s,data=speed --image-opts $luks ]"

serve() { # NAME COMMAND...
	"${@:2}" >/dev/null &
	servers="$servers $!"
}
serve dif512 "$softmkey" nbd -r --sig t10dif --socket dif512.sock dif512
serve dif4096 "$softmkey" nbd -r --sig t10dif:4096 --socket dif4096.sock dif4096
serve xts "$softmkey" nbd -r --crypto encrypt --unit 4096 --dek dek --socket xts.sock xts
serve nbdkit nbdkit -r -f -U "$dir/nbdkit.sock" file plain
serve luks qemu-nbd -r -t -k "$dir/luks.sock" --object secret,id=s,data=speed --image-opts "$luks"
names="dif512 dif4096 nbdkit xts luks"
for name in $names; do
	for _ in $(seq 100); do
		[ -S "$name.sock" ] && continue 2
		sleep 0.1
	done
	echo "the server of $name has not started" >&2
	exit 1
done

# median EXPRESSION prints the median of an expression over the columns of a table of rounds.
median() {
	awk "{ print $1 }" rounds | sort -n |
		awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}
line="%-12s %8s %8s %8s %8s %8s %15s %16s %10s\n"
table=$(printf "$line" "in flight" $names dif512/nbdkit dif4096/nbdkit xts/luks)
for depth in 8 1; do
	echo "128 KiB, $depth in flight, MB/s: $names"
	for _ in $(seq "$rounds"); do
		for name in $names; do
			fio --name=x --ioengine=nbd --uri="nbd+unix:///?socket=$dir/$name.sock" --rw=read --bs=128k --iodepth=$depth \
				--time_based --runtime="$seconds" --output-format=terse --terse-version=3 2>/dev/null | awk -F';' '$1 == 3 { printf "%d ", $7 * 1024 / 1e6 }'
		done
		echo
	done | tee rounds
	speeds=$(for k in 1 2 3 4 5; do printf '%.0f ' "$(median "\$$k")"; done)
	ratios=$(for k in '$1 / $3' '$2 / $3' '$4 / $5'; do printf '%.2f ' "$(median "$k")"; done)
	table+=$'\n'$(printf "$line" $depth $speeds $ratios)
done
echo "medians of $rounds rounds, MB/s, and of their ratios"
echo "$table"
