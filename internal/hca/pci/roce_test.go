package pci

import (
	"bytes"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/rdma"
)

// booted returns a driver in the middle of its recorded boot, when everything is in use.
func booted(t *testing.T, cfg Config) *driver {
	d := newDriver(t, cfg)
	boot := readBoot(t)
	for _, c := range boot[:len(boot)/2] {
		d.exec(c.In, len(c.Out))
	}
	d.settle()
	return d
}

// setRoCE executes SET_ROCE_ADDRESS and returns the status of the answer.
func (d *driver) setRoCE(index int, gid [16]byte, mac [6]byte, version uint64) prm.CommandStatus {
	in := build(prm.CmdSetRoCEAddress, 0, 0x30, [3]uint64{0x40, 16, uint64(index)}, [3]uint64{0x80 + 0xd8, 8, version})
	copy(in[0x10:], gid[:])
	copy(in[0x10+0x12:], mac[:])
	_, out := d.exec(in, 16)
	return prm.CommandStatus(out[0])
}

// TestRoCEAddresses changes the table of RoCE addresses while the function is in use. The table
// refuses values that are not the address of one host.
func TestRoCEAddresses(t *testing.T) {
	d := booted(t, Config{})
	v4 := [16]byte{10: 0xff, 11: 0xff, 12: 192, 0, 2, 9}
	mac := [6]byte{2, 0, 0, 0, 0, 9}
	for _, row := range []struct {
		what    string
		index   int
		gid     [16]byte
		mac     [6]byte
		version uint64
		refused bool
	}{
		{"an address", 9, v4, mac, roceV2, false},
		{"the same again", 9, v4, mac, roceV2, false},
		{"the same in another entry", 10, v4, mac, roceV2, true},
		{"the same of RoCE v1", 10, v4, mac, roceV1, false},
		{"an unknown version", 11, v4, mac, 1, true},
		{"beyond the table", gidEntries, v4, mac, roceV2, true},
		{"a multicast group", 11, [16]byte{0xff, 2, 15: 1}, mac, roceV2, true},
		{"the MAC address of a group", 11, [16]byte{0xfe, 0x80, 15: 1}, [6]byte{1}, roceV2, true},
		{"no address", 9, [16]byte{}, [6]byte{}, 0, false},
		{"the address that was removed", 12, v4, mac, roceV2, false},
	} {
		if st := d.setRoCE(row.index, row.gid, row.mac, row.version); (st != 0) != row.refused {
			t.Errorf("%s: status %v", row.what, st)
		}
	}
	table := d.dev.firmware().rdma.dev.GIDs()
	for i, want := range map[int][16]byte{9: {}, 10: v4, 11: {}, 12: v4} {
		if table[i].GID != want {
			t.Errorf("entry %d: %x, want %x", i, table[i].GID, want)
		}
	}
}

// TestAsyncEvents raises asynchronous events. They reach the queue that takes their type, with the
// object's number.
func TestAsyncEvents(t *testing.T) {
	d := booted(t, Config{})
	fw := d.dev.firmware()
	var cq *adapter.CQ
	for n := uint32(0); cq == nil && n < 100; n++ {
		cq = fw.rdma.ctx.CQ(n)
	}
	if cq == nil {
		t.Fatal("the boot has made no CQ")
	}
	events{fw}.Async(rdma.EventCQErr, cq)
	fw.eqs.mu.Lock()
	defer fw.eqs.mu.Unlock()
	for _, q := range fw.eqs.eqs.objects {
		const cqError, syndrome, overrun = 0x04, 11, 1 // enum mlx5_event and struct mlx5_eqe_cq_err in Linux's device.h
		if q.events>>cqError&1 == 0 {
			continue
		}
		e := make([]byte, eqeSize)
		at := q.offset + uint64((q.producer-1)&(1<<q.logSize-1))*eqeSize
		if err := q.mem.Read(q.pages[at>>q.shift]+at&(1<<q.shift-1), e); err != nil {
			t.Fatal(err)
		}
		want := make([]byte, 32)
		be.PutUint32(want, cq.Number())
		want[syndrome] = overrun
		if e[1] != cqError || !bytes.Equal(e[0x20:0x3f], want[:31]) {
			t.Errorf("entry %x", e)
		}
		return
	}
	t.Error("no queue wants errors of CQs")
}

// TestMulticastGroups attaches a queue pair to multicast groups and detaches it, as Linux does for
// ibv_attach_mcast.
func TestMulticastGroups(t *testing.T) {
	d := booted(t, Config{})
	if st := d.setRoCE(9, [16]byte{10: 0xff, 11: 0xff, 12: 192, 0, 2, 9}, [6]byte{2, 0, 0, 0, 0, 9}, roceV2); st != 0 {
		t.Fatal(st)
	}
	var cq uint32
	for n := uint32(0); d.dev.firmware().rdma.ctx.CQ(cq) == nil && n < 100; n++ {
		cq = n
	}
	create := func(service uint8) uint32 {
		in := build(prm.CmdCreateQP, 0, 0x110)
		prm.PutQP(in, &prm.QPContext{Service: service, PD: 1, UAR: barFirstUAR, UserIndex: 0xffffff, SendCQ: cq, RecvCQ: cq, NoSQ: true, RQType: prm.RQNone})
		_, out := d.exec(in, 16)
		if out[0] != 0 {
			t.Fatalf("CREATE_QP: %v", prm.CommandStatus(out[0]))
		}
		return prm.NumberOf(out)
	}
	ud, rc := create(prm.QPServiceUD), create(prm.QPServiceRC)
	group4, group6 := [16]byte{10: 0xff, 11: 0xff, 12: 239, 15: 1}, [16]byte{0xff, 0x0e, 15: 1}
	for _, row := range []struct {
		what string
		op   prm.Command
		qp   uint32
		gid  [16]byte
		want prm.CommandStatus
	}{
		{"a group", prm.CmdAttachMCG, ud, group4, prm.CmdOK},
		{"the same again", prm.CmdAttachMCG, ud, group4, prm.CmdOK},
		{"no group", prm.CmdAttachMCG, ud, [16]byte{10: 0xff, 11: 0xff, 12: 192, 15: 1}, prm.CmdBadParam},
		{"an RC queue pair", prm.CmdAttachMCG, rc, group4, prm.CmdBadParam},
		{"no queue pair", prm.CmdAttachMCG, 0xfffffe, group4, prm.CmdBadResource},
		{"a group that it is not in", prm.CmdDetachMCG, ud, group6, prm.CmdBadParam},
		{"its group", prm.CmdDetachMCG, ud, group4, prm.CmdOK},
		{"the group that it has left", prm.CmdDetachMCG, ud, group4, prm.CmdBadParam},
		{"a group when everything is closed", prm.CmdAttachMCG, ud, group4, prm.CmdOK},
	} {
		in := build(row.op, 0, 0x20)
		prm.PutNumber(in, row.qp)
		copy(in[0x10:], row.gid[:])
		if _, out := d.exec(in, 16); prm.CommandStatus(out[0]) != row.want {
			t.Errorf("%s: status %v, want %v", row.what, prm.CommandStatus(out[0]), row.want)
		}
	}
}

// TestOneClock compares the timer in BAR 0 with the clock of completions: Linux relates both to the time of day by the
// timer.
func TestOneClock(t *testing.T) {
	d := booted(t, Config{})
	timer := func() uint64 { return uint64(d.dev.register(regTimerHigh))<<32 | uint64(d.dev.register(regTimerLow)) }
	before := timer()
	at := d.dev.firmware().rdma.dev.Clock()
	if after := timer(); at < before || at > after {
		t.Errorf("the clock of completions is %d, between %d and %d of the timer", at, before, after)
	}
}
