package prm

import (
	"errors"
	"syscall"
)

// statuses are the statuses of commands that failed with an errno. mlx5_core turns a status back
// into the errno of its caller (cmd_status_to_err in its cmd.c), so that a program and a guest
// see the errno of one cause alike: EXCEED_LIM is ENOMEM there, while NO_RESOURCES is EAGAIN.
var statuses = []struct {
	errno  syscall.Errno
	status CommandStatus
}{
	{syscall.EBUSY, CmdResourceBusy},
	{syscall.ENOMEM, CmdExceedLimit},
	{syscall.ENOENT, CmdBadResource},
	{syscall.EPERM, CmdBadSystemState},
	{syscall.EMSGSIZE, CmdBadInputLen},
}

// StatusOfError returns the status of a command that failed with err: BAD_PARAM, unless the errno of
// err says more. The opcode of a command that does not exist is refused with BAD_OP before.
func StatusOfError(err error) CommandStatus {
	for _, s := range statuses {
		if errors.Is(err, s.errno) {
			return s.status
		}
	}
	return CmdBadParam
}
