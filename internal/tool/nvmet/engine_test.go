package nvmet

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/mkey"
)

// medium is a medium in memory.
type medium []byte

func (m medium) ReadAt(p []byte, off int64) (int, error)  { return copy(p, m[off:]), nil }
func (m medium) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }
func (m medium) Flush() error                             { return nil }

func (m medium) Trim(off, n int64) error {
	clear(m[off:][:n])
	return nil
}

// local is a Transfer whose host has its data in this process.
type local struct {
	host []byte
	buf  []byte
}

func (l *local) Len() int            { return len(l.host) }
func (l *local) Status() nvme.Status { return nvme.DataLengthInvalid }

func (l *local) Buffer(n int) ([]byte, error) {
	if n > MaxBuffer || l.buf != nil {
		return nil, errors.New("a second buffer, or one that is too large")
	}
	l.buf = make([]byte, n)
	return l.buf, nil
}

func (l *local) Pull(buf []byte, n int, s *mkey.Signature) (*mkey.BadBlock, error) {
	if s == nil {
		copy(buf, l.host[:n])
		return nil, nil
	}
	return Sign(s, mkey.WireDomain, buf, l.host[:n], len(buf)/s.Memory.Stride())
}

func (l *local) Push(buf []byte, n int, s *mkey.Signature) (*mkey.BadBlock, error) {
	if s == nil {
		copy(l.host[:n], buf)
		return nil, nil
	}
	return Sign(s, mkey.MemoryDomain, l.host[:n], buf, len(buf)/s.Memory.Stride())
}

// FuzzExecute executes commands of a hostile host on an admin queue and on an I/O queue. Each is completed once,
// or ends the connection.
func FuzzExecute(f *testing.F) {
	for _, op := range []nvme.Opcode{nvme.Identify, nvme.Read, nvme.Write, nvme.Compare, nvme.WriteZeroes, nvme.DatasetManagement, nvme.Verify, nvme.GetLogPage, nvme.SetFeatures, nvme.AsyncEvent, nvme.Abort, nvme.FabricsClass} {
		c := nvme.Command{Opcode: op, Flags: 1 << 6, NSID: 1, DW: [6]uint32{1, 0, 7 | 15<<26, 0, 1, 0xffff0000}}
		f.Add(c.Append(nil), uint16(4160))
		c.DW = [6]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}
		f.Add(c.Append(nil), uint16(0xffff))
	}
	f.Fuzz(func(t *testing.T, commands []byte, room uint16) {
		var list []*Namespace
		for pi := range uint8(4) {
			list = append(list, &Namespace{Store: make(medium, 100*520), Blocks: 100, BlockSize: 512, PI: pi})
		}
		list[0].Store = make(medium, 100*512)
		list[1].Damage = []*Damage{{Blocks: Blocks{1, 3}, Part: Guard, Wire: true}}
		target, err := New(Options{NQN: "t", Namespaces: list, CapsuleData: 16})
		fatal.If(t, err)
		var queues []*Queue
		var controller uint16
		for id, size := range []uint16{32, 128} {
			q := target.NewQueue(uint16(id), int(size), Peer{Local: netip.MustParseAddrPort("192.0.2.1:4420"), End: func(error) {}})
			defer q.Close()
			data := make([]byte, nvme.ConnectDataSize)
			binary.LittleEndian.PutUint16(data[16:], 0xffff)
			if id > 0 {
				binary.LittleEndian.PutUint16(data[16:], controller)
			}
			copy(data[256:], "t")
			copy(data[512:], "h")
			c := nvme.Command{Opcode: nvme.FabricsClass, Flags: 1 << 6, NSID: nvme.Connect, DW: [6]uint32{uint32(id) << 16, uint32(size - 1)}}
			must(t, q, c, &local{host: data})
			controller = q.controller().id
			if id == 0 {
				must(t, q, nvme.Command{Opcode: nvme.FabricsClass, Flags: 1 << 6, NSID: nvme.PropertySet, DW: [6]uint32{0, nvme.CC, ccRightSizes | ccEnable}}, &local{})
			}
			queues = append(queues, q)
		}
		for i := 0; len(commands) >= nvme.CommandSize && i < 16; i++ {
			c, err := nvme.ParseCommand(commands)
			fatal.If(t, err)
			commands = commands[nvme.CommandSize:]
			for _, q := range queues {
				n := 0
				err := q.Execute(&c, &local{host: make([]byte, room)}, func(d nvme.Completion) { n++ })
				if waits := c.Opcode == nvme.AsyncEvent && q.id == 0; n != 1 && err == nil && !waits {
					t.Fatalf("command %+v: %d completions", c, n)
				}
			}
		}
	})
}

func must(t *testing.T, q *Queue, c nvme.Command, x Transfer) {
	t.Helper()
	if err := q.Execute(&c, x, func(d nvme.Completion) {
		if d.Status != nvme.Success {
			t.Fatalf("command %#x: %v", c.Opcode, d.Status)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// TestParse reads the values of --damage and --delay, good and bad ones.
func TestParse(t *testing.T) {
	d, err := ParseDamage("wire:ref@0x10+3,once")
	if err != nil || !d.Wire || !d.Once || d.Part != Ref || d.Blocks != (Blocks{16, 3}) {
		t.Errorf("%+v %v", d, err)
	}
	if w, err := ParseDelay("2s@5"); err != nil || w.Blocks != (Blocks{5, 1}) || w.Time.Seconds() != 2 {
		t.Errorf("%+v %v", w, err)
	}
	for _, c := range []struct{ value, why string }{
		{"guard", "PART@LBA"}, {"guards@1", `"guards": must be one of data, guard, app, ref`}, {"guard@x", `"x": must be the number`},
		{"guard@1+0", `"0": must be a number of blocks`}, {"guard@1,twice", `"twice": must be once or always`}, {"guard@-1", `"-1"`}, {"guard@0x7fffffffffffffff", "must be the number"},
	} {
		if _, err := ParseDamage(c.value); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", c.value, err)
		}
	}
	for _, v := range []string{"", "1", "-1s", "2h", "1s@", "1s@x"} {
		if _, err := ParseDelay(v); err == nil {
			t.Errorf("%q was accepted", v)
		}
	}
}

// TestDelay has commands on blocks. Those that concern the blocks of a delay wait, once.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := &Namespace{Store: make(medium, 100*512), Blocks: 100, BlockSize: 512, Delay: []*Delay{{Blocks{10, 10}, 2 * time.Second}}}
		target, err := New(Options{NQN: "t", Namespaces: []*Namespace{ns}})
		fatal.If(t, err)
		q := target.NewQueue(1, 128, Peer{})
		c := &controller{target: target}
		ranges := make([]byte, 3*nvme.RangeSize) // of one block each, from 30 down
		for i := range 3 {
			ranges[i*nvme.RangeSize+4], ranges[i*nvme.RangeSize+8] = 1, byte(30-8*i)
		}
		for i, tc := range []struct {
			cmd  nvme.Command
			host []byte
			want time.Duration
		}{
			{nvme.Command{Opcode: nvme.Read, DW: [6]uint32{0, 0, 9}}, make([]byte, 5120), 0},
			{nvme.Command{Opcode: nvme.Read, DW: [6]uint32{0, 0, 10}}, make([]byte, 5632), 2 * time.Second},
			{nvme.Command{Opcode: nvme.DatasetManagement, DW: [6]uint32{1, 4}}, ranges, 0},
			{nvme.Command{Opcode: nvme.DatasetManagement, DW: [6]uint32{2, 4}}, ranges, 2 * time.Second},
		} {
			tc.cmd.NSID = 1
			start := time.Now()
			r := ioCommands[tc.cmd.Opcode].run(q, c, &tc.cmd, &local{host: tc.host})
			if waited := time.Since(start); r.status != nvme.Success || waited != tc.want {
				t.Errorf("command %d: %v after %v, want %v", i, r.status, waited, tc.want)
			}
		}
	})
}

// TestControllers has the first controllers of targets: two targets of one name must not give a host the same one.
func TestControllers(t *testing.T) {
	seen := map[uint16]bool{}
	for range 8 {
		target, err := New(Options{NQN: "t", Namespaces: []*Namespace{{Store: make(medium, 512), Blocks: 1, BlockSize: 512}}})
		fatal.If(t, err)
		seen[target.last] = true
	}
	if len(seen) < 2 {
		t.Errorf("8 targets begin with controller %v", seen)
	}
}
