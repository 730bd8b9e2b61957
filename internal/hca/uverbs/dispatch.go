//go:build linux

package uverbs

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/operr"
)

// The object types and methods of <rdma/ib_user_ioctl_cmds.h> and
// <rdma/mlx5_user_ioctl_cmds.h>.
const (
	objDevice = 0
	objPD     = 1
	objCQ     = 3
	objQP     = 4
	objSRQ    = 5
	objAH     = 6
	objMR     = 7
	objMW     = 8
	objXRCD   = 10
	objAsync  = 16

	objDEVX    = 0x1000
	objDEVXObj = 0x1001
	objUmem    = 0x1002
	objEvents  = 0x1005
	objUAR     = 0x1008

	driver = 0x1000 // the first attribute and method of a driver's own
	uhwIn  = driver // UVERBS_ATTR_UHW_IN
	uhwOut = driver + 1
)

type handler struct {
	name string
	do   func(*command) error
}

// handlers maps the ioctls to their handlers.
var handlers = map[method]handler{}

func init() {
	for m, h := range map[method]handler{
		{objDevice, 0}:           {"write command", (*command).invokeWrite},
		{objDevice, 2}:           {"query port", (*command).queryPort},
		{objDevice, 3}:           {"get context", (*command).getContext},
		{objDevice, 4}:           {"query context", (*command).queryContext},
		{objDevice, 5}:           {"query GID table", (*command).queryGIDTable},
		{objDevice, 6}:           {"query GID entry", (*command).queryGIDEntry},
		{objPD, 0}:               {"deallocate PD", destroy[pdObject]},
		{objPD, driver}:          {"query PD", (*command).queryPD},
		{objCQ, 0}:               {"create CQ", (*command).createCQ},
		{objCQ, 1}:               {"destroy CQ", (*command).destroyCQ},
		{objQP, 0}:               {"create QP", (*command).createQP},
		{objQP, 1}:               {"destroy QP", (*command).destroyQP},
		{objSRQ, 1}:              {"destroy SRQ", (*command).destroySRQ},
		{objAH, 0}:               {"destroy AH", destroy[ahObject]},
		{objMR, 1}:               {"deregister MR", destroy[mrObject]},
		{objMR, 3}:               {"query MR", (*command).queryMR},
		{objMR, 4}:               {"register dma-buf MR", notOffered("dma-buf regions")},
		{objMW, 0}:               {"deallocate MW", destroy[mwObject]},
		{objXRCD, 0}:             {"close XRCD", destroy[*xrcdObject]},
		{objAsync, 0}:            {"allocate async event descriptor", (*command).allocAsync},
		{objDEVX, driver}:        {"DEVX command", (*command).devxOther},
		{objDEVX, driver + 1}:    {"DEVX query UAR", (*command).devxQueryUAR},
		{objDEVX, driver + 2}:    {"DEVX query EQN", (*command).devxQueryEQN},
		{objDEVXObj, driver}:     {"DEVX create", (*command).devxCreate},
		{objDEVXObj, driver + 1}: {"DEVX destroy", destroyAt[*devxObject](driver)},
		{objDEVXObj, driver + 2}: {"DEVX modify", devxExec(prm.Command.Changes)},
		{objDEVXObj, driver + 3}: {"DEVX query", devxExec(prm.Command.Queries)},
		{objDEVX, driver + 3}:    {"DEVX subscribe to events", (*command).devxSubscribe},
		{objUmem, driver}:        {"register umem", (*command).regUmem},
		{objUmem, driver + 1}:    {"deregister umem", destroyAt[umemObject](driver)},
		{objEvents, driver}:      {"allocate DEVX event channel", (*command).allocEventChannel},
		{objUAR, driver}:         {"allocate UAR", (*command).allocUAR},
		{objUAR, driver + 1}:     {"free UAR", destroyAt[*uarObject](driver)},
	} {
		handlers[m] = h
	}
}

// notOffered returns the handler of a method that kernels know and the device lacks. The
// methods that are missing here are unknown to older kernels too: EPROTONOSUPPORT.
func notOffered(what string) func(*command) error {
	return func(*command) error {
		return operr.New("uverbs ioctl", syscall.EOPNOTSUPP, "%s are not offered", what)
	}
}

// destroy returns the handler that closes the object of type T whose handle is
// attribute 0.
func destroy[T object](c *command) error { return destroyAt[T](0)(c) }

func destroyAt[T object](id uint16) func(*command) error {
	return func(c *command) error {
		h, err := c.need(id, "destroy")
		if err != nil {
			return err
		}
		return remove[T](&c.file.objects, h)
	}
}

// Ioctl executes RDMA_VERBS_IOCTL for a caller whose argument is arg.
func (f *File) Ioctl(caller Caller, arg uint64) syscall.Errno {
	name, err := f.ioctl(caller, arg)
	if err == nil {
		return 0
	}
	if f.dev.refused != nil && err != error(errProbe) {
		f.dev.refused(caller.Process(), name, err)
	}
	return errnoOf(err)
}

func (f *File) ioctl(caller Caller, arg uint64) (name string, err error) {
	name = "uverbs ioctl"
	var header [headerSize]byte
	if err := caller.Read(arg, header[:]); err != nil {
		return name, err
	}
	m, n, err := parseHeader(header[:])
	if err != nil {
		return name, err
	}
	raw := make([]byte, n*attrSize)
	if err := caller.Read(arg+headerSize, raw); err != nil {
		return name, err
	}
	attrs, err := parseAttrs(raw)
	if err != nil {
		return name, err
	}
	h, ok := handlers[m]
	if !ok {
		return name, operr.New(name, syscall.EPROTONOSUPPORT, "object type %#x has no method %#x here", m.object, m.method)
	}
	c := &command{file: f, Caller: caller, request: request{m, attrs}}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return h.name, operr.New(h.name, syscall.EIO, "the device is closed")
	case f.ctx == nil && m != method{objDevice, 3} && m != method{objDevice, 0}:
		return h.name, operr.New(h.name, syscall.EINVAL, "the descriptor has no context yet")
	}
	if err := h.do(c); err != nil {
		return h.name, err
	}
	putAttrs(raw, attrs)
	return h.name, caller.Write(arg+headerSize, raw)
}
