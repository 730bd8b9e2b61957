package nvmet

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
)

// send sends data to the host, at most n bytes.
func send(x Transfer, data []byte, n int) result {
	if x.Len() < n {
		return fails(x.Status())
	}
	if n == 0 {
		return result{}
	}
	buf, err := x.Buffer(n)
	if err != nil {
		return fails(nvme.InternalError)
	}
	clear(buf[copy(buf, data):])
	if _, err := x.Push(buf, n, nil); err != nil {
		return fails(nvme.DataTransferError)
	}
	return result{}
}

func identify(q *Queue, c *controller, cmd *nvme.Command, x Transfer, _ Reply) result {
	var ns *Namespace
	if !c.discovery {
		ns = c.target.namespace(cmd.NSID)
	}
	cns := uint8(cmd.DW[0])
	if c.discovery && cns != nvme.CNSController {
		return fails(nvme.InvalidField)
	}
	var b []byte
	switch cns {
	case nvme.CNSController:
		b = c.identify()
	case nvme.CNSNamespace:
		if ns == nil {
			return fails(nvme.InvalidNamespace)
		}
		n := ns.identify()
		b = n.Append(nil)
	case nvme.CNSActiveList:
		if cmd.NSID >= nvme.AllNamespaces-1 {
			return fails(nvme.InvalidNamespace)
		}
		ids := make([]uint32, len(c.target.Namespaces))
		for i := range ids {
			ids[i] = uint32(i + 1)
		}
		b = nvme.AppendList(nil, ids, cmd.NSID)
	case nvme.CNSDescriptors:
		if ns == nil {
			return fails(nvme.InvalidNamespace)
		}
		b = nvme.AppendDescriptors(nil, ns.ID)
	default:
		return fails(nvme.InvalidField)
	}
	return send(x, b, len(b))
}

// firmware is the revision that a controller reports.
const firmware = "1"

// identify returns the data structure of Identify.
func (c *controller) identify() []byte {
	t := c.target
	d := nvme.Controller{
		Serial: t.Serial, Model: "softmkey target", Firmware: firmware, Subsystem: t.NQN, ID: c.id, Discovery: c.discovery,
		MDTS: maxTransfer, MaxEvents: maxEvents, ErrorEntries: errorEntries, MaxCommands: MaxQueueSize, KeepAlive: keepAliveUnit,
		Namespaces: uint32(len(t.Namespaces)), CapsuleData: t.CapsuleData,
		Optional: nvme.HasCompare | nvme.HasDatasetManagement | nvme.HasWriteZeroes | nvme.HasVerify,
	}
	if c.discovery {
		d.Subsystem, d.Namespaces, d.Optional = nvme.DiscoveryNQN, 0, 0
	}
	return d.Append(nil)
}

func getLogPage(q *Queue, c *controller, cmd *nvme.Command, x Transfer, _ Reply) result {
	page := cmd.LogPage()
	if page.Length > MaxTransfer || page.Offset%4 != 0 {
		return fails(nvme.InvalidField)
	}
	var b []byte
	switch {
	case page.ID == nvme.DiscoveryLog && c.discovery:
		b = nvme.AppendDiscovery(nil, 1, []nvme.DiscoveryEntry{{
			Subsystem: c.target.NQN, Address: q.peer.Local.Addr().String(), Port: strconv.Itoa(int(q.peer.Local.Port())),
			IPv6: q.peer.Local.Addr().Is6(), PortID: portID(q.peer.Local),
		}})
	case page.ID == nvme.ErrorLog:
		c.health.Lock()
		for _, e := range c.health.entries {
			b = e.Append(b)
		}
		c.health.Unlock()
		b = append(b, make([]byte, errorEntries*64-len(b))...)
	case c.discovery:
		return fails(nvme.InvalidLogPage)
	case page.ID == nvme.HealthLog:
		c.health.Lock()
		h := c.health.Health
		c.health.Unlock()
		h.PowerOnHours = uint64(time.Since(c.target.began) / time.Hour)
		b = h.Append(nil)
	case page.ID == nvme.FirmwareLog:
		b = nvme.AppendFirmware(nil, firmware)
	case page.ID == nvme.EffectsLog:
		b = nvme.AppendEffects(nil, effects(adminCommands), effects(ioCommands))
	default:
		return fails(nvme.InvalidLogPage)
	}
	if page.Offset > uint64(len(b)) {
		return fails(nvme.InvalidField)
	}
	return send(x, b[page.Offset:], int(page.Length))
}

// portID returns the identifier of the port in the discovery log: 0 or, for IPv6, 1.
func portID(a netip.AddrPort) uint16 {
	if a.Addr().Is6() {
		return 1
	}
	return 0
}

// storedFeatures are features whose value the controller keeps and does not use.
var storedFeatures = map[nvme.Feature]bool{
	nvme.Arbitration: true, nvme.TemperatureThreshold: true, nvme.ErrorRecovery: true, nvme.WriteAtomicity: true, nvme.AsyncEventConfig: true,
}

// queueNumbers is the value of the feature Number of Queues: I/O queues of both kinds, counted from 0.
const queueNumbers = (MaxIOQueues-1)<<16 | (MaxIOQueues - 1)

func setFeatures(q *Queue, c *controller, cmd *nvme.Command, x Transfer, _ Reply) result {
	id, value := nvme.Feature(cmd.DW[0]), cmd.DW[1]
	switch {
	case cmd.DW[0]>>31 != 0:
		return fails(nvme.NotSaveable)
	case id == nvme.KeepAliveTimer:
		c.setKeepAlive(value)
		return result{}
	case c.discovery && id != nvme.AsyncEventConfig:
		return fails(nvme.InvalidField)
	case id == nvme.NumberOfQueues:
		if value&0xffff == 0xffff || value>>16 == 0xffff {
			return fails(nvme.InvalidField)
		}
		return result{value: queueNumbers}
	case id == nvme.VolatileWriteCache && value&1 == 1: // it cannot be turned off: the medium's cache is the system's
		return result{}
	case id == nvme.VolatileWriteCache, id == nvme.HostIdentifier, id == nvme.PowerManagement && value != 0:
		return fails(nvme.NotChangeable)
	case id == nvme.PowerManagement:
		return result{}
	case storedFeatures[id]:
		c.mu.Lock()
		c.features[id] = value
		c.mu.Unlock()
		return result{}
	}
	return fails(nvme.InvalidField)
}

func getFeatures(q *Queue, c *controller, cmd *nvme.Command, x Transfer, _ Reply) result {
	id, sel := nvme.Feature(cmd.DW[0]), cmd.DW[0]>>8&7
	if sel > 1 || c.discovery && id != nvme.KeepAliveTimer && id != nvme.AsyncEventConfig {
		return fails(nvme.InvalidField) // only current and default values
	}
	switch {
	case id == nvme.NumberOfQueues:
		return result{value: queueNumbers}
	case id == nvme.VolatileWriteCache:
		return result{value: 1}
	case id == nvme.PowerManagement:
		return result{}
	case id == nvme.HostIdentifier:
		if cmd.DW[1]&1 == 0 {
			return fails(nvme.InvalidField) // 64 bits are not enough over fabrics
		}
		return send(x, c.hostID[:], len(c.hostID))
	case storedFeatures[id] || id == nvme.KeepAliveTimer:
		c.mu.Lock()
		defer c.mu.Unlock()
		if sel == 1 {
			return result{}
		}
		return result{value: uint64(c.features[id])}
	}
	return fails(nvme.InvalidField)
}

// abort aborts an Asynchronous Event Request. Other commands are not aborted, as bit 0 of the result says.
func abort(q *Queue, c *controller, cmd *nvme.Command, x Transfer, _ Reply) result {
	if sq := uint16(cmd.DW[0]); sq != 0 {
		return result{value: 1}
	}
	id := uint16(cmd.DW[0] >> 16)
	c.mu.Lock()
	i := slices.IndexFunc(c.events, func(e event) bool { return e.id == id })
	if i < 0 {
		c.mu.Unlock()
		return result{value: 1}
	}
	found := c.events[i]
	c.events = slices.Delete(c.events, i, i+1)
	c.mu.Unlock()
	found.queue.complete(found.id, result{status: nvme.AbortRequested}, found.reply)
	return result{}
}

func asyncEvent(q *Queue, c *controller, cmd *nvme.Command, x Transfer, reply Reply) result {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.events) >= maxEvents {
		return fails(nvme.TooManyEvents)
	}
	c.events = append(c.events, event{cmd.ID, q, reply})
	return result{later: true}
}

// keepAlive does nothing: every command restarts the timer.
func keepAlive(q *Queue, c *controller, cmd *nvme.Command, x Transfer, _ Reply) result {
	return result{}
}
