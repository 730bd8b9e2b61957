//go:build linux

package uverbs

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/operr"
)

type handler struct {
	name string
	do   func(*command) error
}

// handlers maps the ioctls to their handlers.
var handlers = map[method]handler{}

func init() {
	for m, h := range map[method]handler{
		{objDevice, deviceInvokeWrite}:   {"write command", (*command).invokeWrite},
		{objDevice, deviceQueryPort}:     {"query port", (*command).queryPort},
		{objDevice, deviceGetContext}:    {"get context", (*command).getContext},
		{objDevice, deviceQueryContext}:  {"query context", (*command).queryContext},
		{objDevice, deviceQueryGIDTable}: {"query GID table", (*command).queryGIDTable},
		{objDevice, deviceQueryGIDEntry}: {"query GID entry", (*command).queryGIDEntry},
		{objPD, pdDestroy}:               {"deallocate PD", destroy[pdObject]},
		{objPD, pdQuery}:                 {"query PD", (*command).queryPD},
		{objCQ, cqCreate}:                {"create CQ", (*command).createCQ},
		{objCQ, cqDestroy}:               {"destroy CQ", (*command).destroyCQ},
		{objQP, qpCreate}:                {"create QP", (*command).createQP},
		{objQP, qpDestroy}:               {"destroy QP", (*command).destroyQP},
		{objSRQ, srqDestroy}:             {"destroy SRQ", (*command).destroySRQ},
		{objAH, ahDestroy}:               {"destroy AH", destroy[ahObject]},
		{objMR, mrDestroy}:               {"deregister MR", destroy[mrObject]},
		{objMR, mrQuery}:                 {"query MR", (*command).queryMR},
		{objMR, mrRegDMABuf}:             {"register dma-buf MR", notOffered("dma-buf regions")},
		{objMW, mwDestroy}:               {"deallocate MW", destroy[mwObject]},
		{objXRCD, xrcdDestroy}:           {"close XRCD", destroy[*xrcdObject]},
		{objAsync, asyncAlloc}:           {"allocate async event descriptor", (*command).allocAsync},
		{objDEVX, devxOther}:             {"DEVX command", (*command).devxOther},
		{objDEVX, devxQueryUAR}:          {"DEVX query UAR", (*command).devxQueryUAR},
		{objDEVX, devxQueryEQN}:          {"DEVX query EQN", (*command).devxQueryEQN},
		{objDEVXObj, devxObjCreate}:      {"DEVX create", (*command).devxCreate},
		{objDEVXObj, devxObjDestroy}:     {"DEVX destroy", destroyAt[*devxObject](attrDriverHandle)},
		{objDEVXObj, devxObjModify}:      {"DEVX modify", devxExec(prm.Command.Changes)},
		{objDEVXObj, devxObjQuery}:       {"DEVX query", devxExec(prm.Command.Queries)},
		{objDEVX, devxSubscribe}:         {"DEVX subscribe to events", (*command).devxSubscribe},
		{objUmem, umemReg}:               {"register umem", (*command).regUmem},
		{objUmem, umemDereg}:             {"deregister umem", destroyAt[umemObject](attrDriverHandle)},
		{objEvents, eventsAlloc}:         {"allocate DEVX event channel", (*command).allocEventChannel},
		{objUAR, uarAlloc}:               {"allocate UAR", (*command).allocUAR},
		{objUAR, uarFree}:                {"free UAR", destroyAt[*uarObject](attrDriverHandle)},
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

// destroy is the handler that closes the object of type T under attrHandle.
func destroy[T object](c *command) error { return destroyAt[T](attrHandle)(c) }

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
	case f.ctx == nil && m != method{objDevice, deviceGetContext} && m != method{objDevice, deviceInvokeWrite}:
		return h.name, operr.New(h.name, syscall.EINVAL, "the descriptor has no context yet")
	}
	if err := h.do(c); err != nil {
		return h.name, err
	}
	putAttrs(raw, attrs)
	return h.name, caller.Write(arg+headerSize, raw)
}
