package nvmet

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
)

// Queue is a submission and a completion queue. Several goroutines may execute its commands.
type Queue struct {
	target *Target
	peer   Peer
	id     uint16
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
// when no command is executed any more. The host has given the queue's number to the
// transport, and gives it again with Connect.
func (t *Target) NewQueue(id uint16, peer Peer) *Queue {
	return &Queue{target: t, peer: peer, id: id, over: make(chan struct{})}
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

// Stop shortens commands that take long.
func (q *Queue) Stop() { q.once.Do(func() { close(q.over) }) }

// Close takes the queue from its controller. A controller ends with its admin queue.
func (q *Queue) Close() {
	q.Stop()
	c := q.controller()
	if c == nil {
		return
	}
	if q.id == 0 {
		c.end(nil)
		return
	}
	c.mu.Lock()
	if c.queues[q.id] == q {
		delete(c.queues, q.id)
	}
	c.mu.Unlock()
}

// result is the outcome of a command.
type result struct {
	value  uint64
	status nvme.Status
	later  bool // the command completes later
	end    bool // the connection ends after the completion
}

func fails(s nvme.Status) result { return result{status: s | nvme.DNR} }

// Execute executes a command and completes it by reply, which may be called later for an Asynchronous
// Event Request. It returns an error if the connection must end.
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
		r = q.dispatch(c, cmd, x, reply)
	}
	if !r.later {
		q.complete(cmd.ID, r, reply)
	}
	if r.end {
		return fmt.Errorf("command %#x: %v", cmd.Opcode, r.status)
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
type handler func(q *Queue, c *controller, cmd *nvme.Command, x Transfer, reply Reply) result

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
func (q *Queue) dispatch(c *controller, cmd *nvme.Command, x Transfer, reply Reply) result {
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
	return row.run(q, c, cmd, x, reply)
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
			return c.setProperty(cmd.Property())
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

func (c *controller) setProperty(p nvme.Property) result {
	if p.Offset != nvme.CC || p.Size8 {
		return fails(nvme.InvalidField)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	cc := uint32(p.Value)
	if cc&ccEnable != 0 && c.cc&ccEnable == 0 {
		c.csts = cstsReady
		if cc&ccSizes != ccRightSizes && !c.discovery || cc&ccSet != 0 {
			c.csts = cstsFatal
		}
	}
	if cc&ccEnable == 0 && c.cc&ccEnable != 0 {
		c.csts = 0
		c.events = nil // a reset ends them without a completion
	}
	if cc&ccShutdown != 0 {
		c.csts |= cstsShutdown // all that flushes have promised is on the medium
	}
	c.cc = cc
	return result{}
}

// connect makes the queue one of a controller (Fabrics 3.3).
func (q *Queue) connect(cmd *nvme.Command, x Transfer) result {
	invalid := func(inData bool, offset int) result {
		return result{value: nvme.Invalid(inData, offset), status: nvme.InvalidParameters | nvme.DNR, end: true}
	}
	refused := func(s nvme.Status) result { return result{status: s | nvme.DNR, end: true} }
	a := cmd.Connect()
	size := uint32(a.SQSize) + 1
	switch {
	case a.Format != 0:
		return refused(nvme.IncompatibleFormat)
	case a.QID != q.id:
		return invalid(false, nvme.ConnectQID)
	case a.SQSize == 0, q.id == 0 && size > nvme.AdminQueueSize, size > MaxQueueSize:
		return invalid(false, nvme.ConnectSQSize)
	case x.Len() < nvme.ConnectDataSize:
		return refused(x.Status())
	}
	buf, err := x.Buffer(nvme.ConnectDataSize)
	if err == nil {
		_, err = x.Pull(buf, len(buf), nil)
	}
	if err != nil {
		return refused(nvme.DataTransferError)
	}
	d, err := nvme.ParseConnectData(buf)
	if err != nil {
		return refused(nvme.DataLengthInvalid)
	}
	t := q.target
	switch {
	case d.Subsystem != t.NQN && d.Subsystem != nvme.DiscoveryNQN:
		return invalid(true, nvme.ConnectDataSUBNQN)
	case len(d.Host) > nvme.NQNSize: // spdk_nvme_perf has no name
		return invalid(true, nvme.ConnectDataHOSTNQN)
	case len(t.Hosts) > 0 && d.Subsystem == t.NQN && !slices.Contains(t.Hosts, d.Host):
		return refused(nvme.InvalidHost)
	}
	var c *controller
	if q.id == 0 {
		if d.CNTLID != nvme.AnyController {
			return invalid(true, nvme.ConnectDataCNTLID)
		}
		if c = t.newController(d, a.KATO, q); c == nil {
			return result{status: nvme.ControllerBusy, end: true}
		}
	} else {
		if q.id > MaxIOQueues {
			return invalid(false, nvme.ConnectQID)
		}
		c = t.find(d.CNTLID)
		if c == nil || c.host != d.Host || c.hostID != d.HostID || c.discovery || d.Subsystem != t.NQN {
			return invalid(true, nvme.ConnectDataCNTLID)
		}
		c.mu.Lock()
		taken := c.ended || c.queues[q.id] != nil
		ready := c.csts&cstsReady != 0
		if !taken && ready {
			c.queues[q.id] = q
		}
		c.mu.Unlock()
		switch {
		case taken:
			return invalid(false, nvme.ConnectQID)
		case !ready:
			return refused(nvme.CommandSequenceError)
		}
	}
	q.mu.Lock()
	q.ctrl, q.size, q.flow = c, uint16(size), a.Attributes&nvme.NoFlowControl == 0
	q.mu.Unlock()
	return result{value: uint64(c.id)}
}
