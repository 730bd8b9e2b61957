//go:build linux

package uverbs

import (
	"bytes"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// FuzzRequest parses ioctls of arbitrary bytes, and writes their attributes back.
func FuzzRequest(f *testing.F) {
	good := make([]byte, headerSize+attrSize)
	le.PutUint16(good, headerSize+attrSize)
	le.PutUint16(good[6:], 1)
	le.PutUint32(good[16:], driverMLX5)
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		_, n, err := parseHeader(b)
		if err != nil || len(b) < headerSize+n*attrSize {
			return
		}
		raw := b[headerSize : headerSize+n*attrSize]
		attrs, err := parseAttrs(raw)
		if err != nil {
			return
		}
		again := bytes.Clone(raw)
		putAttrs(again, attrs)
		if !bytes.Equal(again, raw) {
			t.Fatalf("attributes % x came back as % x", raw, again)
		}
		parseModify(fields(raw)) // of any length
		ahAttr(fields(raw), 24)
	})
}

// TestChannelTakesBack destroys an object with unread events. Only events that the program
// has read count, and the events of other objects stay in order.
func TestChannelTakesBack(t *testing.T) {
	ch, err := newChannel(compEventSize, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ch.close()
	var a, b uint32
	ch.put(newEvent(compEventSize, 1, 0), &a)
	ch.put(newEvent(compEventSize, 1, 0), &a)
	ch.put(newEvent(compEventSize, 2, 0), &b)
	ch.put(newEvent(compEventSize, 1, 0), &a)
	read := make([]byte, compEventSize)
	if _, err := ch.r.Read(read); err != nil || le.Uint64(read) != 1 {
		t.Fatalf("read % x, %v", read, err)
	}
	if n := ch.take(1, &a); n != 1 {
		t.Errorf("%d events were given, want 1", n)
	}
	if _, err := ch.r.Read(read); err != nil || le.Uint64(read) != 2 {
		t.Errorf("the other object's event: % x, %v", read, err)
	}
	if n := ch.take(2, &b); n != 1 {
		t.Errorf("%d events of the other were given, want 1", n)
	}
}

// TestModifyXRC modifies XRC QPs with the attributes of both sides, as perftest does.
func TestModifyXRC(t *testing.T) {
	const both = ibv.AttrState | ibv.AttrMaxRdAtomic | ibv.AttrMaxDestRdAtomic | ibv.AttrMinRNRTimer | ibv.AttrRetryCnt | ibv.AttrRNRRetry
	for typ, want := range map[rdma.QPType]ibv.AttrMask{
		rdma.RC:     both,
		ibv.XRCSend: ibv.AttrState | ibv.AttrMaxRdAtomic | ibv.AttrRetryCnt | ibv.AttrRNRRetry,
		ibv.XRCRecv: ibv.AttrState | ibv.AttrMaxDestRdAtomic | ibv.AttrMinRNRTimer,
	} {
		if got := ownAttrs(typ, both); got != want {
			t.Errorf("type %d: attributes %#x, want %#x", typ, got, want)
		}
	}
}

// TestModifyFlush modifies a QP with the access flags of FLUSH, as pyverbs 56 does.
func TestModifyFlush(t *testing.T) {
	in := make(fields, 144)
	in.put32(88, 0x30e)
	if m, _ := parseModify(in); m.AccessFlags != 0xe {
		t.Errorf("access flags %#x, want 0xe", m.AccessFlags)
	}
}
