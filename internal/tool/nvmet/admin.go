package nvmet

import (
	"net/netip"
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

func identify(q *Queue, c *controller, cmd *nvme.Command, x Transfer) result {
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
	case nvme.CNSLimits:
		if cmd.DW[1]>>24 != 0 { // another command set
			return fails(nvme.InvalidField)
		}
		size := 0
		for _, ns := range c.target.Namespaces {
			size = max(size, ns.BlockSize)
		}
		b = nvme.AppendLimits(nil, uint32(maxDeallocate/uint64(size)))
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
		Warning: warning, Critical: critical,
		Optional: nvme.HasCompare | nvme.HasDatasetManagement | nvme.HasWriteZeroes | nvme.HasVerify,
	}
	if c.discovery {
		d.Subsystem, d.Namespaces, d.Optional = nvme.DiscoveryNQN, 0, 0
	}
	return d.Append(nil)
}

func getLogPage(q *Queue, c *controller, cmd *nvme.Command, x Transfer) result {
	page := cmd.LogPage()
	if page.Length > MaxTransfer || page.Offset%4 != 0 {
		return fails(nvme.InvalidField)
	}
	var b []byte
	switch {
	case page.ID == nvme.DiscoveryLog && c.discovery:
		var list []nvme.DiscoveryEntry
		if c.target.permits(c.host) {
			list = []nvme.DiscoveryEntry{{
				Subsystem: c.target.NQN, Address: q.peer.Local.Addr().String(), Port: strconv.Itoa(int(q.peer.Local.Port())),
				IPv6: q.peer.Local.Addr().Is6(), PortID: portID(q.peer.Local),
			}}
		}
		b = nvme.AppendDiscovery(nil, 1, list)
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
		h.Temperature = temperature
		c.mu.Lock()
		h.Beyond = temperature >= c.features[featureValue{id: nvme.TemperatureThreshold}] || temperature <= c.features[featureValue{nvme.TemperatureThreshold, true}]
		c.mu.Unlock()
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

// Temperatures in kelvins.
const (
	temperature = 273 + 25
	warning     = 273 + 70 // WCTEMP
	critical    = 273 + 100
)

// featureValue names a value of a feature. A temperature threshold has one for each direction.
type featureValue struct {
	id    nvme.Feature
	under bool
}

// storedFeatures are features whose value the controller keeps and does not use.
var storedFeatures = map[nvme.Feature]bool{
	nvme.Arbitration: true, nvme.TemperatureThreshold: true, nvme.ErrorRecovery: true, nvme.WriteAtomicity: true, nvme.AsyncEventConfig: true,
}

// defaultFeatures are the values of features that are not 0.
func defaultFeatures() map[featureValue]uint32 {
	return map[featureValue]uint32{{id: nvme.TemperatureThreshold}: warning}
}

// queueNumbers is the value of the feature Number of Queues: I/O queues of both kinds, counted from 0.
const queueNumbers = (MaxIOQueues-1)<<16 | (MaxIOQueues - 1)

// threshold returns which value of a temperature threshold a command names (Base 5.21.1.4). kept is whether the
// controller has the sensor: only the composite temperature is one. ok is whether it may be named.
func threshold(dw uint32, set bool) (v featureValue, kept, ok bool) {
	sensor, direction := dw>>16&15, dw>>20&3
	v = featureValue{nvme.TemperatureThreshold, direction == 1}
	const all = 15 // for Set Features alone
	return v, sensor == 0 || sensor == all, direction <= 1 && (sensor <= 8 || sensor == all && set)
}

func setFeatures(q *Queue, c *controller, cmd *nvme.Command, x Transfer) result {
	id, value := nvme.Feature(cmd.DW[0]), cmd.DW[1]
	v, kept, ok := featureValue{id: id}, true, true
	if id == nvme.TemperatureThreshold {
		v, kept, ok = threshold(value, true)
		value &= 0xffff
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case cmd.DW[0]>>31 != 0:
		return fails(nvme.NotSaveable)
	case id == nvme.KeepAliveTimer:
		c.setKeepAliveLocked(value)
		return result{}
	case c.discovery && id != nvme.AsyncEventConfig, !ok:
		return fails(nvme.InvalidField)
	case id == nvme.NumberOfQueues && len(c.queues) > 1:
		return fails(nvme.CommandSequenceError) // I/O queues exist
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
		if kept {
			c.features[v] = value
		}
		return result{}
	}
	return fails(nvme.InvalidField)
}

func getFeatures(q *Queue, c *controller, cmd *nvme.Command, x Transfer) result {
	id, sel := nvme.Feature(cmd.DW[0]), cmd.DW[0]>>8&7
	if sel > 1 || c.discovery && id != nvme.KeepAliveTimer && id != nvme.AsyncEventConfig {
		return fails(nvme.InvalidField) // only current and default values
	}
	v, kept, ok := featureValue{id: id}, true, true
	if id == nvme.TemperatureThreshold {
		v, kept, ok = threshold(cmd.DW[1], false)
	}
	switch {
	case !ok:
		return fails(nvme.InvalidField)
	case id == nvme.NumberOfQueues:
		return result{value: queueNumbers}
	case id == nvme.VolatileWriteCache:
		return result{value: 1}
	case id == nvme.PowerManagement, !kept:
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
			return result{value: uint64(defaultFeatures()[v])}
		}
		return result{value: uint64(c.features[v])}
	}
	return fails(nvme.InvalidField)
}

// abort aborts nothing, as bit 0 of the result says.
func abort(q *Queue, c *controller, cmd *nvme.Command, x Transfer) result { return result{value: 1} }

// asyncEvent counts an Asynchronous Event Request, which is never completed.
func asyncEvent(q *Queue, c *controller, cmd *nvme.Command, x Transfer) result {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events >= maxEvents {
		return fails(nvme.TooManyEvents)
	}
	c.events++
	return result{never: true}
}

// keepAlive does nothing: every command restarts the timer.
func keepAlive(q *Queue, c *controller, cmd *nvme.Command, x Transfer) result { return result{} }
