package pci

import (
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// Types of asynchronous events.
const (
	eventCommEst     = 0x02
	eventSQDrained   = 0x03
	eventCQError     = 0x04
	eventQPFatal     = 0x05
	eventQPRequest   = 0x10
	eventQPAccess    = 0x11
	eventSRQError    = 0x12
	eventLastWQE     = 0x13
	eventSRQLimit    = 0x14
	cqErrorOverrun   = 1
	eventOfQP        = 0
	offEventQPType   = 20
	offEventQPNumber = 24
	offCQSyndrome    = 11
)

// eventTypes are the types of the adapter's events in event queues.
var eventTypes = map[rdma.EventType]uint8{
	rdma.EventCommEst: eventCommEst, rdma.EventSQDrained: eventSQDrained, rdma.EventCQErr: eventCQError, rdma.EventQPFatal: eventQPFatal,
	rdma.EventQPReqErr: eventQPRequest, rdma.EventQPAccessErr: eventQPAccess, ibv.EventSRQErr: eventSRQError,
	rdma.EventQPLastWQEReached: eventLastWQE, rdma.EventSRQLimitReached: eventSRQLimit,
}

// Async implements adapter.Events.
func (e events) Async(t rdma.EventType, obj any) {
	typ, known := eventTypes[t]
	if !known {
		return
	}
	var data [32]byte
	switch x := obj.(type) {
	case *adapter.QP:
		data[offEventQPType] = eventOfQP
		be.PutUint32(data[offEventQPNumber:], x.Number())
	case *adapter.SRQ:
		be.PutUint32(data[offEventQPNumber:], x.Number())
	case *adapter.CQ:
		be.PutUint32(data[:], x.Number())
		data[offCQSyndrome] = cqErrorOverrun
	default:
		return
	}
	e.f.eqs.event(typ, 0, data[:])
}
