//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunISER reads a disk of tgt's iSER target with libiscsi. tgt accepts only an initiator whose
// address and name are bound to the target. libiscsi fails requests of more than 256 KiB over iSER
// with ENOMEM, so qemu's blkdebug splits those of qemu-img. libiscsi 1.19 crashes or hangs after a
// discovery over iSER, so the exit status of iscsi-ls is ignored.
func TestRunISER(t *testing.T) {
	need(t, "stdbuf", "tgtd", "tgtadm", "iscsi-ls", "iscsi-readcapacity16", "qemu-img")
	program, dir := builtProgram(t), t.TempDir()
	disk := make([]byte, 4<<20)
	rand.Read(disk)
	writeFile(t, filepath.Join(dir, "disk"), disk, 0o600)
	out := runWith(t, program, nil, `cd `+dir+` && export TGT_IPC_SOCKET=$PWD/ipc
		target=iqn.2026-01.org.softmkey:disk me=iqn.2026-01.org.softmkey:client
		tgtd -f --iscsi portal=$ADDR:3260 --iser pool_sz_mb=64 > tgtd.log 2>&1 &
		trap "kill $!" EXIT
		until tgtadm --op show --mode sys > tgtadm.log 2>&1; do kill -0 $! || { cat tgtd.log; exit 1; }; sleep 0.02; done
		t() { tgtadm --lld iser --mode "$@" || { cat tgtd.log; exit 1; }; }
		t target --op new --tid 1 -T $target
		t logicalunit --op new --tid 1 --lun 1 -b disk
		t target --op bind --tid 1 -I ALL
		t target --op bind --tid 1 -Q $me
		timeout -s KILL 5 stdbuf -oL iscsi-ls -i $me "iscsi://$ADDR?iser"
		iscsi-readcapacity16 -i $me iser://$ADDR/$target/1 || exit
		json='{"driver":"iscsi","transport":"iser","portal":"'$ADDR'","target":"'$target'","lun":1,"initiator-name":"'$me'"}'
		qemu-img dd -O raw bs=64k if=json:"$json" of=small &&
			qemu-img convert -O raw json:'{"driver":"blkdebug","max-transfer":262144,"image":'"$json}" large`)
	if !strings.Contains(out, "Target:iqn.2026-01.org.softmkey:disk") || !strings.Contains(out, "Total size:4194304") {
		t.Error(out)
	}
	for _, name := range []string{"small", "large"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, disk) {
			t.Errorf("%s: %d bytes that differ, or %v: %s", name, len(got), err, out)
		}
	}
}
