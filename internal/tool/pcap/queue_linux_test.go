package pcap

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestLateReader records to a pipe whose reader begins to read after all packets: recording does not
// wait for it, and the recording tells how many packets it lacks.
func TestLateReader(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fifo")
	fatal.If(t, syscall.Mkfifo(name, 0o600))
	reader, err := os.OpenFile(name, os.O_RDWR, 0)
	fatal.If(t, err)
	r, err := Create(name, nil)
	fatal.If(t, err)
	const packets = 6000
	send := func(n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for range n {
			r.packet = append(r.packet[:0], make([]byte, 4096)...)
			r.writePacket(0, time.Unix(0, 0), &outbound)
		}
	}
	r.mu.Lock()
	r.addInterface("test")
	r.mu.Unlock()
	send(packets)
	dropped := r.dropped
	if dropped == 0 || r.Packets()+dropped != packets {
		t.Fatalf("%d packets recorded, %d left out", r.Packets(), dropped)
	}

	only, err := os.Open(name)
	fatal.If(t, err)
	reader.Close()
	content := make(chan []byte)
	first := make([]byte, 20<<20)
	if _, err := io.ReadFull(only, first[:16<<20]); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the recording
		rest, _ := io.ReadAll(only)
		content <- append(first[:16<<20], rest...)
	}()
	for r.queue.full() {
		time.Sleep(time.Millisecond)
	}
	send(1)
	fatal.If(t, r.Close())
	recording := <-content
	ng, err := pcapgo.NewNgReader(bytes.NewReader(recording), pcapgo.DefaultNgReaderOptions)
	fatal.If(t, err)
	n := uint64(0)
	for ; ; n++ {
		if _, _, err := ng.ReadPacketData(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n != r.Packets() {
		t.Errorf("%d packets in the recording, want %d", n, r.Packets())
	}
	if !strings.Contains(string(recording), "packets before this one were left out") {
		t.Error("no comment tells how many packets are missing")
	}
}
