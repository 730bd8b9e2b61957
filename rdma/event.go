package rdma

import "fmt"

// EventType is the type of an asynchronous event. The values are those of enum
// ibv_event_type.
type EventType uint8

// The asynchronous events that the device raises.
const (
	EventCQErr            EventType = 0  // a CQ overran and takes no more completions
	EventQPFatal          EventType = 1  // a QP failed for a reason of its own
	EventQPReqErr         EventType = 2  // the peer sent a request that a QP cannot carry out
	EventQPAccessErr      EventType = 3  // the peer requested memory to which it has no right
	EventCommEst          EventType = 4  // the first packet reached a QP in RTR
	EventSQDrained        EventType = 5  // no request of a QP in SQD is in flight any more
	EventSRQLimitReached  EventType = 15 // a shared receive queue fell below its limit
	EventQPLastWQEReached EventType = 16 // a QP in ERR takes no more requests from its SRQ
)

var eventNames = map[EventType]string{
	EventCQErr: "CQ error", EventQPFatal: "QP fatal", EventQPReqErr: "QP request error",
	EventQPAccessErr: "QP access error", EventCommEst: "communication established",
	EventSQDrained: "send queue drained", 14: "SRQ error",
	8: "device fatal", 9: "port active", 10: "port error", 18: "GID change",
	EventSRQLimitReached: "SRQ limit reached", EventQPLastWQEReached: "last WQE reached",
}

// String returns the event in words.
func (t EventType) String() string {
	if s, ok := eventNames[t]; ok {
		return s
	}
	return fmt.Sprintf("event(%d)", uint8(t))
}
