#!/bin/sh
# Draws the pictures of the documentation from runs of the examples and of perftest. Addresses and
# times differ from run to run.
set -eu
cd "$(dirname "$0")/.."
softmkey=$PWD/bin/softmkey
pictures=$PWD/docs/pictures
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$pictures"

for name in pipelining domains; do
	(cd examples/c && cc -O1 -o "$tmp/$name" $name.c pair.c -libverbs -lmlx5)
	"$softmkey" run --trace="$tmp/$name.json" --trace-format json -- "$tmp/$name"
done
"$softmkey" draw --picture key -o "$pictures/key.svg" "$tmp/pipelining.json"
"$softmkey" draw --picture way -o "$pictures/way.svg" "$tmp/domains.json"
"$softmkey" draw --picture key --narrow -o "$pictures/key-narrow.svg" "$tmp/pipelining.json"
"$softmkey" draw --picture way --narrow -o "$pictures/way-narrow.svg" "$tmp/domains.json"
"$softmkey" draw --picture states -o "$pictures/states.svg" "$tmp/pipelining.json"

# Five RDMA WRITEs of 8 packets each between two runs, some of whose packets are lost.
test="ib_write_bw -F -x 3 -s 8192 -n 5 -m 1024 -p 18998"
"$softmkey" run --device 127.0.77.1 --pcap "$tmp/server.pcapng" -- $test >"$tmp/server.txt" 2>&1 &
server=$!
tries=0
until "$softmkey" run --device 127.0.77.2 --fault loss=8%,seed=3 --pcap "$tmp/client.pcapng" -- $test 127.0.77.1 >"$tmp/client.txt" 2>&1; do
	tries=$((tries + 1))
	[ $tries -lt 20 ] || { cat "$tmp"/*.txt >&2; exit 1; }
	sleep 0.5
done
wait $server
"$softmkey" draw --picture timeline -o "$pictures/timeline.svg" "$tmp/client.pcapng" "$tmp/server.pcapng"
