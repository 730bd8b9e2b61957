package nvmet

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
)

// Queue is a submission and a completion queue. Several goroutines may execute its commands.
type Queue struct {
	target *Target
	peer   Peer
	id     uint16
	most   uint32        // commands for which the host has room
	over   chan struct{} // closed when the connection has ended
	once   sync.Once

	mu   sync.Mutex // guards the following fields
	ctrl *controller
	size uint16 // commands in the queue
	head uint16
	flow bool // SQ flow control
}

// errFirst is the error of a queue whose first command is not Connect.
var errFirst = errors.New("the first command of a queue must be Connect")

// NewQueue returns the queue of a new connection. The transport calls Stop when the connection ends, and Close
// when no command is executed any more. The host has given the queue's number and its size in commands to the
// transport, and gives both again with Connect.
func (t *Target) NewQueue(id uint16, size int, peer Peer) *Queue {
	return &Queue{target: t, peer: peer, id: id, most: uint32(size), over: make(chan struct{})}
}

// Connected reports whether the queue belongs to a controller.
func (q *Queue) Connected() bool { return q.controller() != nil }

func (q *Queue) controller() *controller {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ctrl
}

// end ends the queue's connection.
func (q *Queue) end(err error) {
	q.Stop()
	q.peer.End(err)
}

// Stop shortens commands that take long, and takes an I/O queue from its controller: the host may connect another one
// with its number.
func (q *Queue) Stop() {
	q.once.Do(func() { close(q.over) })
	c := q.controller()
	if c == nil || q.id == 0 {
		return
	}
	c.mu.Lock()
	if c.queues[q.id] == q {
		delete(c.queues, q.id)
	}
	c.mu.Unlock()
}

// Close ends the queue, and the controller with its admin queue.
func (q *Queue) Close() {
	q.Stop()
	if c := q.controller(); c != nil && q.id == 0 {
		c.end(nil)
	}
}

// result is the outcome of a command.
type result struct {
	value  uint64
	status nvme.Status
	never  bool   // the command does not complete
	end    bool   // the connection ends after the completion
	why    string // of a connection that ends: what is wrong; "": it ends as it should
}

func fails(s nvme.Status) result { return result{status: s | nvme.DNR} }

// Execute executes a command and completes it by reply, unless it is an Asynchronous Event Request that waits. It
// returns an error if the connection must end.
func (q *Queue) Execute(cmd *nvme.Command, x Transfer, reply Reply) error {
	c := q.controller()
	if c != nil {
		c.alive()
	}
	var r result
	switch {
	case c == nil && (cmd.Opcode != nvme.FabricsClass || cmd.FabricsType() != nvme.Connect):
		return errFirst
	case cmd.Fused() != 0 || !cmd.UsesSGL():
		r = fails(nvme.InvalidField)
	case cmd.Opcode == nvme.FabricsClass:
		r = q.fabrics(c, cmd, x)
	default:
		r = q.dispatch(c, cmd, x)
	}
	if !r.never {
		q.complete(cmd.ID, r, reply)
	}
	if r.end && r.why == "" {
		q.end(nil)
	} else if r.end {
		return fmt.Errorf("its Connect is refused, %s: %s", r.status.Of(nvme.FabricsSet), r.why)
	}
	return nil
}

// complete completes a command.
func (q *Queue) complete(id uint16, r result, reply Reply) {
	q.mu.Lock()
	done := nvme.Completion{Result: r.value, ID: id, Status: r.status, SQHead: 0xffff}
	if q.flow {
		q.head = (q.head + 1) % q.size
		done.SQHead = q.head
	}
	q.mu.Unlock()
	reply(done)
}

// handler executes a command of an enabled controller.
type handler func(q *Queue, c *controller, cmd *nvme.Command, x Transfer) result

// command is a row of the table of commands. The effects log and the dispatch come from the same rows.
type command struct {
	run       handler
	discovery bool // discovery controllers have it
	change    bool // it changes blocks
}

var adminCommands, ioCommands map[nvme.Opcode]command

func init() { // in init, because the effects log reads the tables
	adminCommands = map[nvme.Opcode]command{
		nvme.GetLogPage:  {run: getLogPage, discovery: true},
		nvme.Identify:    {run: identify, discovery: true},
		nvme.Abort:       {run: abort},
		nvme.SetFeatures: {run: setFeatures, discovery: true},
		nvme.GetFeatures: {run: getFeatures, discovery: true},
		nvme.AsyncEvent:  {run: asyncEvent, discovery: true},
		nvme.KeepAlive:   {run: keepAlive, discovery: true},
	}
	ioCommands = map[nvme.Opcode]command{
		nvme.Flush:             {run: flush},
		nvme.Write:             {run: ranged(true, write), change: true},
		nvme.Read:              {run: ranged(true, read)},
		nvme.Compare:           {run: ranged(true, compare)},
		nvme.WriteZeroes:       {run: ranged(false, writeZeroes), change: true},
		nvme.DatasetManagement: {run: datasetManagement, change: true},
		nvme.Verify:            {run: ranged(false, verify)},
	}
}

// effects returns the rows of a table for the effects log, in the order of the opcodes.
func effects(table map[nvme.Opcode]command) (list []nvme.Effect) {
	for op, c := range table {
		list = append(list, nvme.Effect{Opcode: op, Change: c.change})
	}
	slices.SortFunc(list, func(a, b nvme.Effect) int { return int(a.Opcode) - int(b.Opcode) })
	return list
}

// dispatch executes a command that is not one of fabrics.
func (q *Queue) dispatch(c *controller, cmd *nvme.Command, x Transfer) result {
	c.mu.Lock()
	ready := c.csts&cstsReady != 0
	c.mu.Unlock()
	table := ioCommands
	if q.id == 0 {
		table = adminCommands
	}
	row, ok := table[cmd.Opcode]
	switch {
	case !ready:
		return fails(nvme.CommandSequenceError)
	case !ok || c.discovery && !row.discovery:
		return fails(nvme.InvalidOpcode)
	}
	return row.run(q, c, cmd, x)
}

// Bits of the properties (Base 3.1).
const (
	ccEnable      = 1 << 0
	ccShutdown    = 3 << 14
	ccSizes       = 0xf<<20 | 0xf<<16
	ccRightSizes  = 4<<20 | 6<<16
	ccSet         = 7<<4 | 0xf<<7 // command set and memory page size, which must be 0
	cstsReady     = 1 << 0
	cstsFatal     = 1 << 1
	cstsShutting  = 1 << 2
	cstsShutdown  = 2 << 2
	capNVM        = 1 << 37
	capContiguous = 1 << 16
	capTimeout    = 20 << 24 // in units of 500 ms
)

// fabrics executes a fabrics command.
func (q *Queue) fabrics(c *controller, cmd *nvme.Command, x Transfer) result {
	switch cmd.FabricsType() {
	case nvme.Connect:
		if c != nil {
			return fails(nvme.CommandSequenceError)
		}
		return q.connect(cmd, x)
	case nvme.Disconnect:
		if q.id == 0 {
			return fails(nvme.InvalidField)
		}
		q.Close()
		return result{end: true}
	case nvme.PropertyGet, nvme.PropertySet:
		if q.id != 0 {
			return fails(nvme.InvalidField)
		}
		if cmd.FabricsType() == nvme.PropertySet {
			return c.setProperty(q, cmd)
		}
		return c.getProperty(cmd.Property())
	}
	return fails(nvme.InvalidOpcode)
}

func (c *controller) getProperty(p nvme.Property) result {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case p.Offset == nvme.CAP && p.Size8:
		return result{value: capNVM | capTimeout | capContiguous | (MaxQueueSize - 1)}
	case p.Offset == nvme.VS && !p.Size8:
		return result{value: nvme.Version}
	case p.Offset == nvme.CC && !p.Size8:
		return result{value: uint64(c.cc)}
	case p.Offset == nvme.CSTS && !p.Size8:
		return result{value: uint64(c.csts)}
	}
	return fails(nvme.InvalidField)
}

// setProperty executes Property Set. A reset (CC.EN) ends the I/O queues. A shutdown (CC.SHN) is complete when what was
// written is on the media.
func (c *controller) setProperty(q *Queue, cmd *nvme.Command) result {
	p := cmd.Property()
	if p.Offset != nvme.CC || p.Size8 {
		return fails(nvme.InvalidField)
	}
	cc := uint32(p.Value)
	var queues []*Queue
	c.mu.Lock()
	if enable, was := cc&ccEnable != 0, c.cc&ccEnable != 0; enable && !was {
		c.csts = cstsReady
		if cc&ccSizes != ccRightSizes && !c.discovery || cc&ccSet != 0 {
			c.csts = cstsFatal
		}
	} else if was && !enable {
		queues = c.resetLocked()
	}
	shuts := cc&ccShutdown != 0 && c.cc&ccShutdown == 0
	if shuts {
		c.csts |= cstsShutting
	}
	c.cc = cc
	c.mu.Unlock()
	for _, q := range queues {
		q.end(nil)
	}
	if shuts {
		ends := uint32(cstsShutdown)
		if !c.discovery && c.flush(q, cmd, c.target.Namespaces) != nvme.Success {
			ends = cstsFatal
		}
		c.mu.Lock()
		c.csts = c.csts&^cstsShutting | ends
		c.mu.Unlock()
	}
	return result{}
}

// connect makes the queue one of a controller (Fabrics 3.3).
func (q *Queue) connect(cmd *nvme.Command, x Transfer) result {
	refused := func(s nvme.Status, format string, args ...any) result {
		return result{status: s | nvme.DNR, end: true, why: fmt.Sprintf(format, args...)}
	}
	invalid := func(inData bool, offset int, format string, args ...any) result {
		r := refused(nvme.InvalidParameters, format, args...)
		r.value = nvme.Invalid(inData, offset)
		return r
	}
	a := cmd.Connect()
	size := uint32(a.SQSize) + 1
	switch {
	case a.Format != 0:
		return refused(nvme.IncompatibleFormat, "RECFMT is %d", a.Format)
	case a.QID != q.id:
		return invalid(false, nvme.ConnectQID, "QID is %d, and was %d in the request of the connection", a.QID, q.id)
	case a.SQSize == 0, q.id == 0 && size > nvme.AdminQueueSize, size > MaxQueueSize:
		return invalid(false, nvme.ConnectSQSize, "SQSIZE is %d", a.SQSize)
	case size > q.most:
		return invalid(false, nvme.ConnectSQSize, "SQSIZE is %d, but HSQSIZE was %d in the request of the connection", a.SQSize, q.most-1)
	case x.Len() < nvme.ConnectDataSize:
		return refused(x.Status(), "its data has %d bytes", x.Len())
	}
	buf, err := x.Buffer(nvme.ConnectDataSize)
	if err == nil {
		_, err = x.Pull(buf, len(buf), nil)
	}
	if err != nil {
		return refused(nvme.DataTransferError, "its data: %v", err)
	}
	d, err := nvme.ParseConnectData(buf)
	if err != nil {
		return refused(nvme.DataLengthInvalid, "%v", err)
	}
	t := q.target
	switch {
	case d.Subsystem != t.NQN && d.Subsystem != nvme.DiscoveryNQN:
		return invalid(true, nvme.ConnectDataSUBNQN, "host %q asks for the subsystem %q (SUBNQN)", d.Host, d.Subsystem)
	case len(d.Host) > nvme.NQNSize || !utf8.ValidString(d.Host): // spdk_nvme_perf has no name
		return invalid(true, nvme.ConnectDataHOSTNQN, "HOSTNQN %q must be UTF-8 of at most %d bytes", d.Host, nvme.NQNSize)
	case d.Subsystem == t.NQN && !t.permits(d.Host):
		return refused(nvme.InvalidHost, "host %q (HOSTNQN) is not one that may connect", d.Host)
	}
	var c *controller
	if q.id == 0 {
		if d.CNTLID != nvme.AnyController {
			return invalid(true, nvme.ConnectDataCNTLID, "host %q chooses controller %d (CNTLID)", d.Host, d.CNTLID)
		}
		if c = t.newController(d, a.KATO, q); c == nil {
			r := refused(nvme.ControllerBusy, "host %q has %d controllers", d.Host, hostControllers)
			r.status &^= nvme.DNR
			return r
		}
	} else {
		if q.id > MaxIOQueues {
			return invalid(false, nvme.ConnectQID, "QID is %d", a.QID)
		}
		c = t.find(d.CNTLID)
		if c == nil || c.host != d.Host || c.hostID != d.HostID || c.discovery || d.Subsystem != t.NQN {
			return invalid(true, nvme.ConnectDataCNTLID, "host %q has no controller %d (CNTLID)", d.Host, d.CNTLID)
		}
		c.mu.Lock()
		before := c.queues[q.id]
		taken := c.ended || before != nil && !before.peer.Ended() // its commands may still be executed
		ready := c.csts&cstsReady != 0
		if !taken && ready {
			c.queues[q.id] = q
		}
		c.mu.Unlock()
		switch {
		case taken:
			return invalid(false, nvme.ConnectQID, "controller %d of host %q has a queue %d (QID)", c.id, d.Host, a.QID)
		case !ready:
			return refused(nvme.CommandSequenceError, "controller %d of host %q is not enabled", c.id, d.Host)
		}
	}
	q.mu.Lock()
	q.ctrl, q.size, q.flow = c, uint16(size), a.Attributes&nvme.NoFlowControl == 0
	q.mu.Unlock()
	return result{value: uint64(c.id)}
}
