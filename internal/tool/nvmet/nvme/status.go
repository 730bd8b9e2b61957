package nvme

import (
	"cmp"
	"fmt"
)

// Status is the status field of a completion without the phase tag: status code in bits 0 to 7,
// status code type in bits 8 to 10 (Base 4.6.1).
type Status uint16

// Statuses.
const (
	Success               Status = 0x000
	InvalidOpcode         Status = 0x001
	InvalidField          Status = 0x002
	DataTransferError     Status = 0x004
	InternalError         Status = 0x006
	InvalidNamespace      Status = 0x00b
	CommandSequenceError  Status = 0x00c
	DataLengthInvalid     Status = 0x00f // data SGL length invalid
	DescriptorTypeInvalid Status = 0x011 // SGL descriptor type invalid
	OffsetInvalid         Status = 0x016 // SGL offset invalid
	WriteProtected        Status = 0x020
	OutOfRange            Status = 0x080 // LBA out of range
	CapacityExceeded      Status = 0x081
	TooManyEvents         Status = 0x105 // asynchronous event request limit exceeded
	InvalidLogPage        Status = 0x109
	NotSaveable           Status = 0x10d // feature identifier not saveable
	NotChangeable         Status = 0x10e // feature not changeable
	InvalidPI             Status = 0x181 // invalid protection information of an I/O command
	WriteFault            Status = 0x280
	UnrecoveredRead       Status = 0x281
	GuardCheck            Status = 0x282 // end-to-end guard check error
	AppTagCheck           Status = 0x283 // end-to-end application tag check error
	RefTagCheck           Status = 0x284 // end-to-end reference tag check error
	CompareFailure        Status = 0x285

	// Statuses of Connect (Fabrics 3.3). They share numbers with those of I/O commands.
	IncompatibleFormat Status = 0x180
	ControllerBusy     Status = 0x181
	InvalidParameters  Status = 0x182
	InvalidHost        Status = 0x184

	DNR Status = 0x4000 // do not retry
)

// Set is the set of a command. Sets share the numbers of their own statuses.
type Set uint8

// The sets.
const (
	IOSet Set = iota
	FabricsSet
	anySet // statuses whose numbers no set shares
)

var statusNames = [...]map[Status]string{
	anySet: {
		Success: "success", InvalidOpcode: "invalid opcode", InvalidField: "invalid field", DataTransferError: "data transfer error",
		InternalError: "internal error", InvalidNamespace: "invalid namespace",
		CommandSequenceError: "command sequence error", DataLengthInvalid: "data SGL length invalid", DescriptorTypeInvalid: "SGL descriptor type invalid",
		OffsetInvalid: "SGL offset invalid", WriteProtected: "namespace is write protected", OutOfRange: "LBA out of range", CapacityExceeded: "capacity exceeded",
		TooManyEvents: "asynchronous event request limit exceeded", InvalidLogPage: "invalid log page", NotSaveable: "feature not saveable",
		NotChangeable: "feature not changeable", WriteFault: "write fault", UnrecoveredRead: "unrecovered read error",
		GuardCheck: "guard check error", AppTagCheck: "application tag check error", RefTagCheck: "reference tag check error",
		CompareFailure: "compare failure",
	},
	IOSet:      {InvalidPI: "invalid protection information"},
	FabricsSet: {IncompatibleFormat: "incompatible format", ControllerBusy: "controller busy", InvalidParameters: "invalid parameters", InvalidHost: "invalid host"},
}

// Of returns the number, with the name that it has for commands of a set if there is one.
func (s Status) Of(set Set) string {
	s &^= DNR
	if name := cmp.Or(statusNames[anySet][s], statusNames[set][s]); name != "" {
		return fmt.Sprintf("%#x (%s)", uint16(s), name)
	}
	return fmt.Sprintf("%#x", uint16(s))
}

// String returns the number, with the name that it has for I/O commands if there is one.
func (s Status) String() string { return s.Of(IOSet) }

// OfMedia reports whether the status is one of media and data integrity errors. A comparison of different data is none.
func (s Status) OfMedia() bool { return s>>8&7 == 2 && s&^DNR != CompareFailure }
