//go:build linux

package uverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/operr"
)

// The attributes of INVOKE_WRITE, which carries the commands of the older
// interface without their headers.
const (
	coreIn   = 0
	coreOut  = 1
	writeCmd = 2

	extended = 1 << 31 // IB_USER_VERBS_CMD_FLAG_EXTENDED
)

type writeHandler struct {
	name string
	do   func(*command, fields) error
}

// writeHandlers maps the numbers of the commands to their handlers.
var writeHandlers map[uint32]writeHandler

func init() {
	writeHandlers = map[uint32]writeHandler{
		1:             {"query device", (*command).queryDevice},
		3:             {"allocate PD", (*command).allocPD},
		5:             {"create AH", (*command).createAH},
		9:             {"register MR", (*command).regMR},
		11:            {"re-register MR", (*command).reregMR},
		14:            {"allocate MW", (*command).allocMW},
		17:            {"create completion channel", (*command).createChannel},
		19:            {"resize CQ", (*command).resizeCQ},
		25:            {"query QP", (*command).queryQP},
		26:            {"modify QP", (*command).modifyQP},
		30:            {"attach multicast", attach},
		31:            {"detach multicast", detach},
		32:            {"create SRQ", (*command).createSRQ},
		33:            {"modify SRQ", (*command).modifySRQ},
		34:            {"query SRQ", (*command).querySRQ},
		37:            {"open XRCD", (*command).openXRCD},
		39:            {"create SRQ", (*command).createXSRQ},
		40:            {"open QP", (*command).openQP},
		extended | 1:  {"query device", (*command).queryDevice},
		extended | 26: {"modify QP", (*command).modifyQP},
		extended | 57: {"modify CQ", (*command).modifyCQ},
	}
}

func attach(c *command, in fields) error { return c.mcast(in, (*adapter.QP).AttachMcast) }
func detach(c *command, in fields) error { return c.mcast(in, (*adapter.QP).DetachMcast) }

// errProbe answers the command without data by which libibverbs asks whether all commands
// may be ioctls.
var errProbe = operr.New("write command", syscall.ENOSPC, "a command without data probes the interface")

func (c *command) invokeWrite() error {
	const op = "write command"
	cmd, err := c.need(writeCmd, op)
	if err != nil {
		return err
	}
	if !c.has(coreIn) && !c.has(coreOut) {
		return errProbe
	}
	h, ok := writeHandlers[uint32(cmd)]
	if !ok {
		return operr.New(op, syscall.EOPNOTSUPP, "command %d: the device does not have it", uint32(cmd)&^extended)
	}
	if c.file.ctx == nil {
		return operr.New(h.name, syscall.EINVAL, "the descriptor has no context yet")
	}
	in, err := c.input(coreIn)
	if err != nil {
		return err
	}
	if err := h.do(c, in); err != nil {
		var e *operr.Error
		if errors.As(err, &e) {
			return err
		}
		return fmt.Errorf("%s: %w", h.name, err)
	}
	return nil
}

func putBE64(b []byte, v uint64) { binary.BigEndian.PutUint64(b, v) }

// firmware packs a version "major.minor.sub" as QUERY_DEVICE reports it.
func firmware(s string) uint64 {
	var v [3]uint64
	for i, p := range strings.SplitN(s, ".", 3) {
		v[i], _ = strconv.ParseUint(p, 10, 16)
	}
	return v[0]<<32 | v[1]<<16 | v[2]
}
