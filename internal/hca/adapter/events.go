package adapter

// EventType is the type of an asynchronous event; the values are those of enum
// ibv_event_type.
type EventType uint8

// The asynchronous events.
const (
	EventCQErr            EventType = 0
	EventQPFatal          EventType = 1
	EventQPReqErr         EventType = 2
	EventQPAccessErr      EventType = 3
	EventCommEst          EventType = 4
	EventSQDrained        EventType = 5
	EventDeviceFatal      EventType = 8
	EventPortActive       EventType = 9
	EventSRQErr           EventType = 14
	EventSRQLimitReached  EventType = 15
	EventQPLastWQEReached EventType = 16
)

// Events takes what a context reports. The methods are called from any goroutine,
// never under a lock that a call of this package takes, and must not block.
type Events interface {
	// Completion reports that an armed CQ got a completion: once for each arm.
	Completion(cq *CQ)

	// Async reports an asynchronous event of obj: a *QP, *CQ or *SRQ, or nil for the
	// port and the device.
	Async(t EventType, obj any)
}
