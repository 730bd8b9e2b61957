#!/bin/bash
# Runs the field's RDMA programs on `softmkey run`, each server and client in a run of
# its own, and prints a table of their results in Markdown.
#
#   scripts/clients.sh [PATTERN]     only the commands that match the extended regular expression
#
# Several of these scripts may run at once.
#
# Variables: SOFTMKEY is the program to test (default bin/softmkey), FLAGS further flags of
# `softmkey run`, SECONDS_EACH the time limit of a command in seconds (default 60), and PREFIX a
# command that runs programs of another system, for example "chroot /srv/trixie". A failure is
# printed with the last line of the client.
set -u
cd "$(dirname "$0")/.."
# The devices get addresses that other runs on the machine do not use. Without --device, a run
# would take the first free address.
net=127.$((1 + $$ % 250)).$((1 + $$ / 250 % 250))
server=$net.1
client=$net.2
run="${SOFTMKEY:-bin/softmkey} run ${FLAGS:-}"
patience=${SECONDS_EACH:-60}
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
port=$((20000 + $$ % 10000)) # differs between scripts that run at the same time
failed=0

# both SERVER CLIENT NAME runs a server and a client. The client is started again until the server
# listens.
both() {
	local waits=$1 calls=$2 name=$3 i status=1 patience=$patience
	# For each of the 23 sizes of -a, both sides of a latency test spin for 0.22 s to measure the
	# frequency of the processor, and for much longer if they share it with other programs.
	[[ $name != *_lat*-a* ]] || patience=$((5 * patience))
	[[ $name =~ ${pattern:-.} ]] || return 0
	timeout -k 2 "$patience" $run --device $server -- ${PREFIX:-} bash -c "$waits" >"$log/server" 2>&1 &
	local pid=$!
	for i in 1 2 3 4 5; do
		sleep 0.5
		timeout -k 2 "$patience" $run --device $client -- ${PREFIX:-} bash -c "$calls" >"$log/client" 2>&1
		status=$?
		grep -qE "Couldn't connect|Connection refused|REJECTED|connect failed|rdma_resolve|Unexpected CM event" "$log/client" || break
	done
	[ $status = 0 ] || kill $pid 2>/dev/null
	wait $pid
	local other=$?
	if [ $status = 0 ] && [ $other = 0 ]; then
		echo "| $name | runs |"
	else
		echo "| $name | **$status, server $other**: $(grep -v '^ *$\|^---' "$log/client" | tail -n 1 | tr '|' ' ' | cut -c1-150) |"
		failed=$((failed + 1))
	fi
}

# perf COMMAND runs a program of perftest.
perf() {
	port=$((port + 1))
	both "$1 -F -p $port" "$1 -F -p $port $server" "$1"
}

# pingpong COMMAND runs one of libibverbs' examples.
pingpong() {
	port=$((port + 1))
	both "$1 -p $port" "$1 -p $port $server" "$1"
}

pattern=${1:-}
echo "| command | result |"
echo "|---|---|"

for p in ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong; do
	for f in "" " -e"; do pingpong "$p -g 3 -n 200$f"; done
done
pingpong "ibv_rc_pingpong -g 3 -n 200 -c"
both "ibv_xsrq_pingpong -g 3 -n 100 -c 1 -p 19999" "ibv_xsrq_pingpong -g 3 -n 100 -p 19999 $server" "ibv_xsrq_pingpong -g 3 -n 100"

# perftest: all types of connections, then its options.
for c in RC UC XRC; do for t in ib_send_bw ib_send_lat ib_write_bw ib_write_lat; do perf "$t -x 3 -n 200 -c $c"; done; done
for t in ib_send_bw ib_send_lat; do perf "$t -x 3 -n 200 -s 1024 -c UD"; done
for c in RC XRC; do for t in ib_read_bw ib_read_lat ib_atomic_bw ib_atomic_lat; do perf "$t -x 3 -n 200 -c $c"; done; done
perf "ib_atomic_bw -x 3 -n 200 -A CMP_AND_SWAP"
for t in ib_send_bw ib_write_bw ib_read_bw; do
	for f in "-a -n 20" "-b -n 200" "-R -n 200" "-q 4 -n 100" "-q 4 -b -n 100" "-q 4 -R -n 100" "-q 2 --mr_per_qp -n 100" "-e -n 200" "-t 4 -n 200" "-m 256 -n 200" "-D 1" "-Q 1 -n 200"; do perf "$t -x 3 $f"; done
done
for f in "-c UC -a -n 20" "-c UC -b -n 200" "-c UC -q 4 -n 100" "-c UD -s 1024 -b -n 200" "-c UD -s 1024 -q 4 -n 100" "-c UD -s 1024 -R -n 200" "-c UD -s 1024 -e -n 200" "--use-srq -n 200" "--use-srq -q 4 -n 100" "-I 64 -s 64 -n 200" "-R -z -n 200" "-c UC -R -n 200"; do perf "ib_send_bw -x 3 $f"; done
for f in "-c UC -a -n 20" "-I 64 -s 64 -n 200" "-c XRC -q 4 -n 100"; do perf "ib_write_bw -x 3 $f"; done
for t in ib_send_lat ib_write_lat; do for f in "-a -n 20" "-I 64 -s 64 -n 200" "-R -n 200" "-e -n 200"; do
	[ "$t$f" = "ib_write_lat-e -n 200" ] || perf "$t -x 3 $f"
done; done
for t in ib_read_lat ib_atomic_lat ib_atomic_bw; do perf "$t -x 3 -R -n 200"; done
for t in ib_send_bw ib_write_bw ib_read_bw ib_atomic_bw ib_send_lat ib_write_lat ib_read_lat; do perf "$t -x 3 -n 200 -c DC"; done
for f in "-a -n 20" "-b -n 200" "-q 4 -n 100"; do perf "ib_send_bw -x 3 -c DC $f"; done

# librdmacm
both "rping -s -C 20 -V -a 0.0.0.0 -p 19990" "rping -c -C 20 -V -a $server -p 19990" "rping -C 20 -V"
both "rdma_server -p 19989" "rdma_client -s $server -p 19989" "rdma_server, rdma_client"
both "ucmatose -p 19988 -C 20" "ucmatose -s $server -p 19988 -C 20" "ucmatose -C 20"
both "udaddy -C 20" "udaddy -s $server -C 20" "udaddy -C 20"
for c in x r; do both "rdma_xserver -c $c -p 19984" "rdma_xclient -c $c -s $server -p 19984" "rdma_xserver, rdma_xclient -c $c"; done
both "rstream -p 19986 -S 65536 -I 20 -C 20" "rstream -s $server -p 19986 -S 65536 -I 20 -C 20" "rstream -S 65536"
both "riostream -p 19985 -S 65536 -I 20 -C 20" "riostream -s $server -p 19985 -S 65536 -I 20 -C 20" "riostream -S 65536"

# UCX
for tl in rc_v rc_x ud_v ud_x; do for t in tag_bw tag_lat ucp_put_bw ucp_get stream_bw ucp_am_bw; do
	port=$((port + 1))
	both "UCX_TLS=$tl,self ucx_perftest -p $port" "UCX_TLS=$tl,self ucx_perftest $server -p $port -t $t -s 4096 -n 200 -w 5" "UCX_TLS=$tl,self ucx_perftest -t $t -s 4096"
done; done
for tl in rc_verbs rc_mlx5; do for t in "am_lat" "am_bw -s 4096 -D bcopy" "am_bw -s 4096 -D zcopy" "put_lat" "put_bw -s 65536 -D zcopy" "get -s 65536 -D zcopy" "add_mr" "fadd" "cswap" "swap"; do
	port=$((port + 1))
	both "ucx_perftest -d mlx5_0:1 -x $tl -p $port" "ucx_perftest -d mlx5_0:1 -x $tl $server -p $port -t $t -n 200 -w 5" "ucx_perftest -x $tl -t $t"
done; done
for tl in ud_verbs ud_mlx5; do for t in am_lat "am_bw -s 1000 -D bcopy" "am_bw -s 1000 -D zcopy"; do
	port=$((port + 1))
	both "ucx_perftest -d mlx5_0:1 -x $tl -p $port" "ucx_perftest -d mlx5_0:1 -x $tl $server -p $port -t $t -n 200 -w 5" "ucx_perftest -x $tl -t $t"
done; done

# libfabric, fio, qperf
for e in "msg -p verbs" "rdm -p 'verbs;ofi_rxm'" "dgram -p verbs" "rdm -p 'verbs;ofi_rxd'"; do
	port=$((port + 1))
	both "FI_VERBS_GID_IDX=3 fi_pingpong -c -I 20 -e $e -B $port" "FI_VERBS_GID_IDX=3 fi_pingpong -c -I 20 -e $e -P $port $server" "FI_VERBS_GID_IDX=3 fi_pingpong -c -e $e"
done
fio="fio --thread --ioengine=rdma --bs=64k --size=4m"
for v in send write read; do
	port=$((port + 1))
	verify=""; [ $v != send ] || verify="--verify=crc32c"
	both "cd $log && $fio --port=$port --name=receiver --rw=read --iodepth=64 $verify" \
		"cd $log && $fio --port=$port --name=sender --hostname=$server --verb=$v --rw=write --iodepth=4 $verify ${verify:+--do_verify=0}" "fio --ioengine=rdma --verb=$v $verify"
done
# A client of qperf tries to connect once, unless -ws gives it the time to wait for the server.
# The test "quit" ends the server.
for t in rc_bw rc_lat rc_bi_bw rc_rdma_read_bw rc_rdma_read_lat rc_rdma_write_bw rc_rdma_write_lat rc_rdma_write_poll_lat rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap ver_rc_fetch_add ud_lat; do
	port=$((port + 1))
	both "qperf -lp $port" "qperf -lp $port -ws $patience -cm 1 -t 1 $server $t quit" "qperf -cm 1 $t"
done
echo
echo "$failed commands failed."
