package netconn_test

import (
	"testing"
	"unsafe"

	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/packetconn"
)

// TestBuffer has payloads behind headers of every length, and the memory of programs at the beginning of a page. The
// distance between them, modulo the size of a page, must not be one with which processors copy slowly.
func TestBuffer(t *testing.T) {
	const page, slow = 4096, 32
	for _, size := range []int{packetconn.RecvSize, 1 << 20} {
		for range 8 {
			b := netconn.NewBuffer(size)
			if len(b) != size || cap(b) != size {
				t.Fatalf("length %d, capacity %d, want %d", len(b), cap(b), size)
			}
			for headers := wire.BTHLen; headers <= wire.MaxHeaders; headers += 4 {
				if d := (uintptr(unsafe.Pointer(&b[headers]))) % page; d > 0 && d < slow {
					t.Errorf("headers of %d bytes: the payload begins %d bytes after a page", headers, d)
				}
			}
		}
	}
}
