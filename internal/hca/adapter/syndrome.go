package adapter

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/operr"
)

// syndrome is the reason of a refused command in its answer: a number of this device, which
// distinguishes failures that have the same status.
type syndrome uint32

// The syndromes. Their upper half marks them as those of this device.
const (
	synOther syndrome = 0x50f7_0000 + iota
	synOpcode
	synShortInput
	synLongInput
	synShortOutput
	synNoObject
	synForeignObject
	synInUse
	synLimit
	synMemory
	synValue
	synNotSupported
	synState
	synNoLogin
	synClosed
	synField
)

var syndromeNames = map[syndrome]string{
	synOther:         "failed",
	synOpcode:        "unknown opcode",
	synShortInput:    "the command is too short",
	synLongInput:     "the command is too long",
	synShortOutput:   "the answer has too little room",
	synNoObject:      "an object does not exist",
	synForeignObject: "an object belongs to another user",
	synInUse:         "the object is in use",
	synLimit:         "a limit is reached",
	synMemory:        "the memory cannot be used",
	synValue:         "a value is not valid",
	synNotSupported:  "not supported",
	synState:         "the object is in another state",
	synNoLogin:       "no valid login",
	synClosed:        "the context was closed",
	synField:         "a field of the context has another value than it may have",
}

// String returns the syndrome's words.
func (s syndrome) String() string { return syndromeNames[s] }

// refusal is a command that was refused: the status and the syndrome of its answer, and the
// reason in words.
type refusal struct {
	status   prm.CommandStatus
	syndrome syndrome
	reason   error
}

// Error returns the status, the syndrome with its words, and the reason.
func (r *refusal) Error() string {
	return fmt.Sprintf("%v, syndrome %#x (%v): %v", r.status, uint32(r.syndrome), r.syndrome, r.reason)
}

func (r *refusal) Unwrap() error { return r.reason }

// refuse makes a refusal.
func refuse(st prm.CommandStatus, s syndrome, format string, args ...any) error {
	return &refusal{st, s, fmt.Errorf(format, args...)}
}

// missing is the refusal of a command that names an object that does not exist.
func missing(kind prm.Object, number uint32) error {
	return refuse(prm.CmdBadResource, synNoObject, "%s %#x does not exist", kind, number)
}

// refusalOf returns the refusal that an error of a command is.
func refusalOf(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	r = &refusal{prm.StatusOfError(err), synValue, err}
	for _, e := range []struct {
		errno syscall.Errno
		syn   syndrome
	}{
		{syscall.EBUSY, synInUse}, {syscall.ENOMEM, synLimit}, {syscall.EOPNOTSUPP, synNotSupported}, {syscall.EFAULT, synMemory}, {syscall.ENOENT, synNoObject},
	} {
		if errors.Is(err, e.errno) {
			r.syndrome = e.syn
		}
	}
	return r
}

// ErrCommand is the errno of a command that ran and failed: its answer has the status. It
// is Linux's EREMOTEIO, which other systems do not have.
const ErrCommand = syscall.Errno(121)

// failed is the error of a call whose command was refused.
func failed(cmd prm.Command, r *refusal) error {
	return &operr.Error{Op: cmd.String(), Errno: ErrCommand, Reason: "the command was refused", Err: r}
}
