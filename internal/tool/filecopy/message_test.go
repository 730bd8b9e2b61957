package filecopy

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
)

var someBad = &mkey.BadBlock{
	Domain: mkey.WireDomain, Key: 0x12345600,
	Sig: sig.Error{Kind: sig.BadRefTag, Block: 1 << 40, Offset: 1 << 50, Stored: 0xFFFFFFFF, Computed: 7},
}

func someSample(n, width uint8) (l sample) {
	l.N, l.Width = n, width
	for i := range l.First {
		l.First[i] = byte(i + 1)
	}
	for i := range l.Field {
		l.Field[i] = byte(0xF0 + i)
	}
	return l
}

var messages = []message{
	{kind: kindCredit, rkey: 0xAABBCC00, chunk: 1<<63 + 1, addr: 0x7FFF00001000},
	{kind: kindReady, rkey: 0xAABBCC00, chunk: 3, addr: 17, length: 1 << 31},
	{kind: kindTaken, chunk: 1 << 33},
	{kind: kindDone, chunk: 9, length: 12345678901, memory: someSample(16, 8), wire: someSample(3, 0)},
	{kind: kindDone, chunk: 9, length: 1, badChunks: 2, bad: someBad},
	{kind: kindResult, length: 77, badChunks: 1, bad: someBad, memory: someSample(1, 4)},
	{kind: kindStop, reason: reasonFailed, text: "no space left on device"},
	{kind: kindStop, reason: reasonBad, bad: someBad},
	{kind: kindStop, reason: reasonInterrupted},
	{kind: kindBye},
}

func TestMessages(t *testing.T) {
	for _, m := range messages {
		b := m.append(nil)
		got, err := parseMessage(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v came back as %+v, %v", m, got, err)
		}
		if len(b) > maxMessage {
			t.Errorf("%+v has %d bytes", m, len(b))
		}
		for n := range len(b) {
			if _, err := parseMessage(b[:n]); err == nil {
				t.Errorf("type %d, cut to %d of %d bytes: no error", m.kind, n, len(b))
			}
		}
		if _, err := parseMessage(append(b, 0)); err == nil {
			t.Errorf("type %d with a byte more: no error", m.kind)
		}
	}
	long := message{kind: kindStop, reason: reasonFailed, text: strings.Repeat("x", 1000)}
	if got, err := parseMessage(long.append(nil)); err != nil || got.text != long.text[:maxText] {
		t.Errorf("a long text: %+v, %v", got, err)
	}
}

// TestMessageBytes compares the format with the documentation of the package, because two
// versions of the program may have to share it.
func TestMessageBytes(t *testing.T) {
	m := message{kind: kindReady, rkey: 0x01020304, chunk: 5, addr: 6, length: 7}
	want := []byte{2, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7}
	if got := m.append(nil); !bytes.Equal(got, want) {
		t.Errorf("READY is % x", got)
	}
	m = message{kind: kindStop, reason: reasonBad, bad: someBad}
	got := m.append(nil)
	if got[0] != 6 || got[1] != 2 || got[16] != byte(sig.BadRefTag) || got[17] != 1 || !bytes.Equal(got[20:24], []byte{0x12, 0x34, 0x56, 0}) {
		t.Errorf("STOP is % x", got)
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range messages {
		f.Add(m.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMessage(b)
		if err != nil {
			return
		}
		again, err := parseMessage(m.append(nil))
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("% x: %+v came back as %+v, %v", b, m, again, err)
		}
	})
}
