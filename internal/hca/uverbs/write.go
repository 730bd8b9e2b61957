//go:build linux

package uverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/operr"
)

// The numbers of the commands, enum ib_uverbs_write_cmds in <rdma/ib_user_verbs.h>.
const (
	cmdQueryDevice   = 1
	cmdAllocPD       = 3
	cmdCreateAH      = 5
	cmdRegMR         = 9
	cmdReregMR       = 11
	cmdAllocMW       = 14
	cmdCreateChannel = 17
	cmdResizeCQ      = 19
	cmdQueryQP       = 25
	cmdModifyQP      = 26
	cmdAttachMcast   = 30
	cmdDetachMcast   = 31
	cmdCreateSRQ     = 32
	cmdModifySRQ     = 33
	cmdQuerySRQ      = 34
	cmdOpenXRCD      = 37
	cmdCreateXSRQ    = 39
	cmdOpenQP        = 40
	cmdModifyCQ      = 57

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
		cmdQueryDevice:            {"query device", (*command).queryDevice},
		cmdAllocPD:                {"allocate PD", (*command).allocPD},
		cmdCreateAH:               {"create AH", of(16, (*command).createAH)},
		cmdRegMR:                  {"register MR", of(32, (*command).regMR)},
		cmdReregMR:                {"re-register MR", of(8, (*command).reregMR)},
		cmdAllocMW:                {"allocate MW", of(8, (*command).allocMW)},
		cmdCreateChannel:          {"create completion channel", (*command).createChannel},
		cmdResizeCQ:               {"resize CQ", of(8, (*command).resizeCQ)},
		cmdQueryQP:                {"query QP", of(8, (*command).queryQP)},
		cmdModifyQP:               {"modify QP", of(64, (*command).modifyQP)},
		cmdAttachMcast:            {"attach multicast", of(16, (*command).attach)},
		cmdDetachMcast:            {"detach multicast", of(16, (*command).detach)},
		cmdCreateSRQ:              {"create SRQ", of(16, (*command).createSRQ)},
		cmdModifySRQ:              {"modify SRQ", of(0, (*command).modifySRQ)},
		cmdQuerySRQ:               {"query SRQ", of(8, (*command).querySRQ)},
		cmdOpenXRCD:               {"open XRCD", (*command).openXRCD},
		cmdCreateXSRQ:             {"create SRQ", of(20, (*command).createXSRQ)},
		cmdOpenQP:                 {"open QP", of(16, (*command).openQP)},
		extended | cmdQueryDevice: {"query device", (*command).queryDevice},
		extended | cmdModifyQP:    {"modify QP", of(64, (*command).modifyQP)},
		extended | cmdModifyCQ:    {"modify CQ", of(0, (*command).modifyCQ)},
	}
}

// of returns the handler of a command on an object, whose handle stands at an offset of the command's structure.
func of[T object](at int, do func(*command, T, fields) error) func(*command, fields) error {
	return func(c *command, in fields) error {
		o, err := get[T](&c.file.objects, uint64(in.u32(at)))
		if err != nil {
			return err
		}
		return do(c, o, in)
	}
}

// errProbe answers the command without data by which libibverbs asks whether all commands
// may be ioctls.
var errProbe = failure.New("write command", syscall.ENOSPC, "a command without data probes the interface")

func (c *command) invokeWrite() error {
	const op = "write command"
	cmd, err := c.need(writeCmd, op)
	if err != nil {
		return err
	}
	if cmd != cmdRegMR && cmd != cmdReregMR {
		c.MayTakeLong()
	}
	if !c.has(coreIn) && !c.has(coreOut) {
		return errProbe
	}
	h, ok := writeHandlers[uint32(cmd)]
	if !ok {
		return failure.New(op, syscall.EOPNOTSUPP, "command %d: the device does not have it", uint32(cmd)&^extended)
	}
	if c.file.ctx == nil {
		return failure.New(h.name, syscall.EINVAL, "the descriptor has no context yet")
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
