package pci

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// command executes a command without mailboxes' contents, and fails the test unless it succeeds.
func (d *driver) command(op prm.Command, mod uint16, inLen, outLen int, fields ...[3]uint64) []byte {
	d.t.Helper()
	status, out := d.exec(build(op, mod, inLen, fields...), outLen)
	if status != deliverOK || out[0] != 0 {
		d.t.Fatalf("%v: delivery status %#x, status %v", op, status, prm.CommandStatus(out[0]))
	}
	return out
}

// TestQueueCounters queries sets of counters. A set that a QP names counts what the port's QPs do; another
// one stays 0; clearing begins anew.
func TestQueueCounters(t *testing.T) {
	d := booted(t, Config{})
	number := func(out []byte) uint64 { return prm.Bits(out, 0x58, 8) }
	unused := number(d.command(prm.CmdAllocQCounter, 0, 16, 16))
	used := number(d.command(prm.CmdAllocQCounter, 0, 16, 16))
	fw := d.dev.firmware()
	set := fw.counters.objects[uint32(used)]
	// A QP's context names the set, in the commands that create the QP and change it.
	for _, row := range []struct {
		command prm.Command
		option  uint64
		named   bool
	}{
		{prm.CmdCreateQP, 0, true}, {prm.CmdRst2InitQP, 0, true}, {prm.CmdInit2InitQP, 0, true},
		{prm.CmdRTS2RTSQP, optCounterSet, true}, {prm.CmdRTS2RTSQP, 0, false}, {prm.CmdQueryQP, optCounterSet, false},
	} {
		c := &call{Call: prm.Call{Command: row.command, In: make([]byte, 0x110), Out: make([]byte, 16)}}
		prm.PutNumber(c.In, 0x77)
		prm.PutNumber(c.Out, 0x77)
		prm.SetBits(c.In, 0x80, 32, row.option)
		prm.SetBits(c.In, qpCounterSet, 8, used)
		if qp, got := fw.namedSet(c); (got == set) != row.named || got != nil && qp != 0x77 {
			t.Errorf("%v with options %#x names set %p of QP %#x", row.command, row.option, got, qp)
		}
	}
	// Counts that the set does not have yet.
	base := &set.base
	base.Probes -= 5
	base.WriteRequests -= 7
	base.SequenceNAKsReceived -= 3
	base.Timeouts -= 2
	query := func(n, clear uint64) map[string]uint64 {
		out := d.command(prm.CmdQueryQCounter, 0, 32, 0x100, [3]uint64{0xf8, 8, n}, [3]uint64{0xc0, 1, clear})
		m := make(map[string]uint64)
		for _, q := range adapter.QueueCounters {
			if v := prm.Bits(out, q.Off, 32); v != 0 {
				m[q.Name] = v
			}
		}
		return m
	}
	want := map[string]uint64{"rx_write_requests": 7, "packet_seq_err": 3, "local_ack_timeout_err": 2, "roce_adp_retrans": 5, "roce_adp_retrans_to": 5}
	for _, row := range []struct {
		set, clear uint64
		want       map[string]uint64
	}{{unused, 0, nil}, {used, 0, want}, {used, 1, want}, {used, 0, nil}} {
		got := query(row.set, row.clear)
		if len(got) != len(row.want) {
			t.Errorf("set %d: %v, want %v", row.set, got, row.want)
		}
		for name, v := range row.want {
			if got[name] != v {
				t.Errorf("set %d: %s %d, want %d", row.set, name, got[name], v)
			}
		}
	}
}

// TestQuestionsOfTools executes the queries that ethtool, devlink and a bond make. Each of them that fails
// leaves a line in the guest's log.
func TestQuestionsOfTools(t *testing.T) {
	d := booted(t, Config{})
	d.command(prm.CmdQueryVNICEnv, 0, 32, 0x110) // QUERY_VNIC_ENV
	for _, reg := range []uint64{regPMLP, regPMTU, regPTYS, regPFCC, regPPCNT, regPAOS} {
		out := d.command(prm.CmdAccessReg, 1, 0x50, 0x50, [3]uint64{0x50, 16, reg}, [3]uint64{0x80 + 8, 8, 1})
		if reg == regPFCC && prm.Bits(out, 0x80+0x40, 64) != 0 {
			t.Errorf("pause frames: %x", out)
		}
	}
}

// recordedTrace keeps the records of a trace.
type recordedTrace struct {
	mu  sync.Mutex
	all []adapter.Record
}

func (r *recordedTrace) Trace(rec *adapter.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, *rec)
}

// TestDoorbellsInTrace rings doorbells, and finds a record for each.
func TestDoorbellsInTrace(t *testing.T) {
	trace := &recordedTrace{}
	d := booted(t, Config{Tracer: trace})
	trace.all = nil
	const page = barFirstUAR * prm.UARSize
	d.dev.WriteBAR(page+prm.UARArmCQ, be.AppendUint64(nil, 7))
	d.dev.WriteBAR(page+uarArmEQ, be.AppendUint32(nil, 3<<24|9)) // Linux writes words for event queues
	d.dev.WriteBAR(page+uarEQ, be.AppendUint32(nil, 4<<24|9))
	var got []string
	for _, r := range trace.all {
		got = append(got, fmt.Sprint(r.Object, " ", r.Number, " ", r.Action))
	}
	if want := []string{"cq 7 arm", "eq 3 arm", "eq 4 doorbell"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
