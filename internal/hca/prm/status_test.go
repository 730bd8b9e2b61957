package prm

import (
	"fmt"
	"syscall"
	"testing"
)

// TestStatusOfError holds the table against the errno that mlx5_core makes of each status
// (cmd_status_to_err): the errno of a failed command must come back as it was where there is a
// status for it, and as EINVAL or EIO otherwise.
func TestStatusOfError(t *testing.T) {
	driver := map[CommandStatus]syscall.Errno{
		CmdInternalErr: syscall.EIO, CmdBadOp: syscall.EINVAL, CmdBadParam: syscall.EINVAL, CmdBadSystemState: syscall.EIO, CmdBadResource: syscall.EINVAL,
		CmdResourceBusy: syscall.EBUSY, CmdExceedLimit: syscall.ENOMEM, CmdBadResState: syscall.EINVAL, CmdBadIndex: syscall.EINVAL,
		CmdNoResources: syscall.EAGAIN, CmdBadQPState: syscall.EINVAL, CmdBadInputLen: syscall.EIO, CmdBadOutputLen: syscall.EIO,
	}
	for err, want := range map[error]syscall.Errno{
		syscall.EBUSY: syscall.EBUSY, syscall.ENOMEM: syscall.ENOMEM, fmt.Errorf("a quota: %w", syscall.ENOMEM): syscall.ENOMEM,
		syscall.EINVAL: syscall.EINVAL, syscall.ENOENT: syscall.EINVAL, syscall.EOPNOTSUPP: syscall.EINVAL, syscall.EFAULT: syscall.EINVAL,
		syscall.EPERM: syscall.EIO, syscall.EMSGSIZE: syscall.EIO,
	} {
		if got := driver[StatusOfError(err)]; got != want {
			t.Errorf("%v: %v, which the driver makes %v, want %v", err, StatusOfError(err), got, want)
		}
	}
}
