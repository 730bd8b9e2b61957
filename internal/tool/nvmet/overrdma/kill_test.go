package overrdma

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/tool/nvmet"
	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

// killedAt is the variable that makes this program the target of TestKill: it has the target's address and
// its image.
const killedAt = "SOFTMKEY_NVMET_TARGET"

func TestMain(m *testing.M) {
	if v := os.Getenv(killedAt); v != "" {
		if err := serveFile(v); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// file is a medium in a file.
type file struct{ *os.File }

func (f file) Flush() error            { return f.Sync() }
func (f file) Trim(off, n int64) error { return nil }

// serveFile serves a file until the process is killed.
func serveFile(v string) error {
	var addr, name string
	if _, err := fmt.Sscan(v, &addr, &name); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	ns := &nvmet.Namespace{Store: file{f}, Blocks: testBlocks, BlockSize: 512, PI: 1}
	target, err := nvmet.New(nvmet.Options{NQN: testNQN, Namespaces: []*nvmet.Namespace{ns}, CapsuleData: CapsuleData})
	if err != nil {
		return err
	}
	dev, err := verbs.Open(netip.MustParseAddr(addr), nil)
	if err != nil {
		return err
	}
	s, err := Listen(dev, 4420, target, nil)
	if err != nil {
		return err
	}
	fmt.Println("listens")
	return s.Serve(context.Background())
}

// TestKill kills the target while a host has 64 writes in flight, and starts it again. Each write that
// was acknowledged must be there, no block may be bad, and each must be of one write.
func TestKill(t *testing.T) {
	const depth, group, groups = 64, 8, testBlocks / 8
	rounds := 3
	if os.Getenv("SOFTMKEY_LONG") != "" {
		rounds = 100
	}
	if c, err := net.ListenPacket("udp", "127.37.3.1:0"); err != nil {
		t.Skipf("NOT RUN: this system has no address 127.37.3.1: %v", err)
	} else {
		c.Close()
	}
	name := filepath.Join(t.TempDir(), "image")
	fatal.If(t, os.WriteFile(name, protect(t, make([]byte, testBlocks*512), 512, 1, 0, 0), 0o600))
	dev := must(t, func() (*verbs.Device, error) { return verbs.Open(netip.MustParseAddr("127.37.3.2"), nil) })
	pd := must(t, dev.NewPD)
	h := &testHost{lab: &lab{t: t, at: netip.MustParseAddrPort("127.37.3.1:4420")}, dev: dev, pd: pd}
	data := h.register(make([]byte, depth*group*520), rdma.LocalWrite|rdma.RemoteRead)
	t.Cleanup(func() {
		data.Close()
		pd.Close()
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	var sent, acknowledged [groups]uint32 // the last version of each group of blocks
	version, acks := uint32(0), 0
	for round := range rounds {
		target := exec.Command(os.Args[0])
		target.Env = append(os.Environ(), killedAt+"=127.37.3.1 "+name)
		var said bytes.Buffer
		target.Stderr = &said
		out := must(t, target.StdoutPipe)
		fatal.If(t, target.Start())
		defer target.Process.Kill() // if the test fails
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatalf("%q %v %s", line, err, &said)
		}
		admin, id := h.admin(testNQN)
		q, _ := h.queue(1, 128, id, testNQN, 0)
		slots := map[uint16]struct{ group, version uint32 }{}
		post := func(slot uint16) error {
			version++
			g := version * 7919 % groups
			for _, s := range slots {
				if s.group == g {
					g = groups // two writes to a group have no order
				}
			}
			if g == groups {
				g = groups - 1 - uint32(slot) // a group that only this slot has
			} else if g >= groups-depth {
				g -= depth
			}
			slots[slot] = struct{ group, version uint32 }{g, version}
			plain := bytes.Repeat(le.AppendUint32(le.AppendUint32(nil, g), version), group*64)
			f := sig.Format{Type: sig.T10DIF, RefTag: uint64(g * group)}
			if _, err := f.Protect(data.Bytes()[int(slot)*group*520:][:group*520], plain); err != nil {
				t.Fatal(err)
			}
			sent[g] = version
			c := rw(nvme.Write, uint64(g*group), group, 7, g*group, 0, 0xffff)
			c.ID = slot
			c.SGL = nvme.SGL{Type: nvme.KeyedBlock, Addr: data.Addr() + uint64(int(slot)*group*520), Length: group * 520, Key: data.RKey()}
			return q.post(&c, nil)
		}
		for slot := range uint16(depth) {
			fatal.If(t, post(slot))
		}
		for range 100 + 37*round%400 {
			done, _, ok := q.answer()
			if !ok || done.Status != nvme.Success {
				t.Fatalf("status %v, %v %s", done.Status, ok, &said)
			}
			acks++
			acknowledged[slots[done.ID].group] = slots[done.ID].version
			delete(slots, done.ID)
			fatal.If(t, post(done.ID))
		}
		target.Process.Kill()
		target.Wait()
		for { // answers that have arrived before
			var wcs [1]rdma.WC
			if q.rcvd.Poll(wcs[:]) == 0 || wcs[0].Status != rdma.StatusSuccess {
				break
			}
			b := q.msg.Bytes()[wcs[0].ID*nvme.CompletionSize:]
			if s := slots[le.Uint16(b[12:])]; le.Uint16(b[14:]) == 0 {
				acknowledged[s.group] = s.version
			}
		}
		for _, q := range []*queue{q, admin} {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			q.conn.Disconnect(ctx)
			cancel()
			q.conn = (*cm.Conn)(nil)
			q.close()
		}

		b, err := os.ReadFile(name)
		fatal.If(t, err)
		f := sig.Format{Type: sig.T10DIF}
		if err := f.Verify(b); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for i := range testBlocks {
			block := b[i*520:][:512]
			g := i / group
			v := le.Uint32(block[4:])
			if v != 0 && (!bytes.Equal(block, bytes.Repeat(block[:8], 64)) || le.Uint32(block) != uint32(g)) {
				t.Fatalf("round %d: block %d is of no write", round, i)
			}
			if v < acknowledged[g] || v > sent[g] {
				t.Fatalf("round %d: block %d is of write %d: number %d was acknowledged, %d was the last", round, i, v, acknowledged[g], sent[g])
			}
		}
	}
	t.Logf("%d writes acknowledged, killed %d times", acks, rounds)
}
