package ibv

import "github.com/softmkey/softmkey/rdma"

// The events that a device of package verbs does not raise.
const (
	EventDeviceFatal rdma.EventType = 8  // the device failed, with all of its objects
	EventPortActive  rdma.EventType = 9  // the port has a link again
	EventPortErr     rdma.EventType = 10 // the port has lost its link
	EventGIDChange   rdma.EventType = 18 // the GID table has changed
	EventSRQErr      rdma.EventType = 14 // a shared receive queue failed
)
