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
sleep 1

# median A B prints the median of the ratios of two columns.
median() {
	awk -v a="$1" -v b="$2" 'NR > 1 { print $a / $b }' table | sort -n |
		awk '{ v[NR] = $1 } END { printf "%.2f", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}
for depth in 8 1; do
	echo "128 KiB, $depth in flight, MB/s"
	echo "dif512 dif4096 nbdkit xts luks" | tee table
	for _ in $(seq "$rounds"); do
		for name in dif512 dif4096 nbdkit xts luks; do
			fio --name=x --ioengine=nbd --uri="nbd+unix:///?socket=$dir/$name.sock" --rw=read --bs=128k --iodepth=$depth \
				--time_based --runtime="$seconds" --output-format=terse --terse-version=3 2>/dev/null | awk -F';' '$1 == 3 { printf "%d ", $7 * 1024 / 1e6 }'
		done
		echo
	done | tee -a table
	echo "medians: T10-DIF on 512 bytes / nbdkit $(median 1 3), on 4096 bytes / nbdkit $(median 2 3), AES-XTS / LUKS $(median 4 5)"
done
