package mad

import "fmt"

// Reason is the reason for a REJ (section 12.6.7.2).
type Reason uint16

// The reasons. ReasonConsumer means that the application refused.
const (
	ReasonNoQP               Reason = 1
	ReasonNoEEC              Reason = 2
	ReasonNoResources        Reason = 3
	ReasonTimeout            Reason = 4
	ReasonUnsupported        Reason = 5
	ReasonInvalidCommID      Reason = 6
	ReasonInvalidInstance    Reason = 7
	ReasonInvalidServiceID   Reason = 8
	ReasonInvalidTransport   Reason = 9
	ReasonStale              Reason = 10
	ReasonNoRDC              Reason = 11
	ReasonPrimaryGID         Reason = 12
	ReasonPrimaryLID         Reason = 13
	ReasonInvalidMTU         Reason = 26
	ReasonResponderResources Reason = 27
	ReasonConsumer           Reason = 28
	ReasonRNRRetry           Reason = 29
	ReasonDuplicateID        Reason = 30
	ReasonClassVersion       Reason = 31
	ReasonVendorOption       Reason = 35
)

var reasonNames = map[Reason]string{
	ReasonNoQP:               "no QP available",
	ReasonNoEEC:              "no EE context available",
	ReasonNoResources:        "no resources available",
	ReasonTimeout:            "timeout",
	ReasonUnsupported:        "unsupported request",
	ReasonInvalidCommID:      "invalid communication id",
	ReasonInvalidInstance:    "invalid communication instance",
	ReasonInvalidServiceID:   "invalid service id: nobody listens",
	ReasonInvalidTransport:   "invalid transport service type",
	ReasonStale:              "stale connection",
	ReasonNoRDC:              "RDC does not exist",
	ReasonPrimaryGID:         "primary remote port GID rejected",
	ReasonPrimaryLID:         "primary remote port LID rejected",
	ReasonInvalidMTU:         "invalid path MTU",
	ReasonResponderResources: "insufficient responder resources",
	ReasonConsumer:           "rejected by the application",
	ReasonRNRRetry:           "RNR retry count rejected",
	ReasonDuplicateID:        "duplicate local communication id",
	ReasonClassVersion:       "unsupported class version",
	ReasonVendorOption:       "vendor option not supported",
}

// String returns the reason in words.
func (r Reason) String() string {
	if name, ok := reasonNames[r]; ok {
		return name
	}
	return fmt.Sprintf("reason %d", uint16(r))
}
