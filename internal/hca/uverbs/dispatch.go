//go:build linux

package uverbs

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// speed says whether a method may take long.
type speed bool

const (
	quick speed = false // the command only reads tables, or announces that it takes long
	slow  speed = true  // the command waits for queues
	// Commands that register memory, or end that, are quick. They may wait for the program's memory, which the
	// caller's supervisor notices after a millisecond or two. To give the lead to another thread for each of them
	// takes longer than they do.
)

type handler struct {
	name  string
	do    func(*command) error
	speed speed
}

// handlers maps the ioctls to their handlers.
var handlers map[method]handler

func init() {
	handlers = map[method]handler{
		{objHelpers, helpersPage}:        {"helpers", (*command).giveHelpers, quick},
		{objDevice, deviceInvokeWrite}:   {"write command", (*command).invokeWrite, quick},
		{objDevice, deviceQueryPort}:     {"query port", (*command).queryPort, quick},
		{objDevice, deviceGetContext}:    {"get context", (*command).getContext, slow},
		{objDevice, deviceQueryContext}:  {"query context", (*command).queryContext, quick},
		{objDevice, deviceQueryGIDTable}: {"query GID table", (*command).queryGIDTable, quick},
		{objDevice, deviceQueryGIDEntry}: {"query GID entry", (*command).queryGIDEntry, quick},
		{objPD, pdDestroy}:               {"deallocate PD", destroy[pdObject], quick},
		{objPD, pdQuery}:                 {"query PD", (*command).queryPD, quick},
		{objCQ, cqCreate}:                {"create CQ", (*command).createCQ, slow},
		{objCQ, cqDestroy}:               {"destroy CQ", (*command).destroyCQ, slow},
		{objQP, qpCreate}:                {"create QP", (*command).createQP, slow},
		{objQP, qpDestroy}:               {"destroy QP", (*command).destroyQP, slow},
		{objSRQ, srqDestroy}:             {"destroy SRQ", (*command).destroySRQ, slow},
		{objAH, ahDestroy}:               {"destroy AH", destroy[ahObject], quick},
		{objMR, mrRegDM}:                 {"register device memory", (*command).regDMMR, slow},
		{objMR, mrDestroy}:               {"deregister MR", destroy[mrObject], quick},
		{objMR, mrAdvise}:                {"advise on MR", (*command).adviseMR, slow},
		{objMR, mrQuery}:                 {"query MR", (*command).queryMR, quick},
		{objMR, mrRegDMABuf}:             {"register dma-buf MR", (*command).regDMABuf, slow},
		{objMW, mwDestroy}:               {"deallocate MW", destroy[mwObject], quick},
		{objXRCD, xrcdDestroy}:           {"close XRCD", destroy[*xrcdObject], slow},
		{objDM, dmAlloc}:                 {"allocate device memory", (*command).allocDM, quick},
		{objDM, dmFree}:                  {"free device memory", destroy[*dmObject], quick},
		{objDM, dmQuery}:                 {"query device memory", (*command).queryDM, quick},
		{objAsync, asyncAlloc}:           {"allocate async event descriptor", (*command).allocAsync, slow},
		{objDEVX, devxOther}:             {"DEVX command", (*command).devxOther, quick},
		{objDEVX, devxQueryUAR}:          {"DEVX query UAR", (*command).devxQueryUAR, quick},
		{objDEVX, devxQueryEQN}:          {"DEVX query EQN", (*command).devxQueryEQN, quick},
		{objDEVXObj, devxObjCreate}:      {"DEVX create", (*command).devxCreate, quick},
		{objDEVXObj, devxObjDestroy}:     {"DEVX destroy", (*command).devxDestroy, quick},
		{objDEVXObj, devxObjModify}:      {"DEVX modify", devxExec(forDEVX(prm.Changes)), slow},
		{objDEVXObj, devxObjQuery}:       {"DEVX query", devxExec(forDEVX(prm.Queries)), quick},
		{objDEVX, devxSubscribe}:         {"DEVX subscribe to events", (*command).devxSubscribe, quick},
		{objUmem, umemReg}:               {"register umem", (*command).regUmem, quick},
		{objUmem, umemDereg}:             {"deregister umem", destroyAt[umemObject](attrDriverHandle), quick},
		{objEvents, eventsAlloc}:         {"allocate DEVX event channel", (*command).allocEventChannel, slow},
		{objUAR, uarAlloc}:               {"allocate UAR", (*command).allocUAR, slow},
		{objUAR, uarFree}:                {"free UAR", destroyAt[*uarObject](attrDriverHandle), slow},
	}
}

// destroy is the handler that closes the object of type T under attrHandle.
func destroy[T object](c *command) error { return destroyAt[T](attrHandle)(c) }

func destroyAt[T object](id uint16) func(*command) error {
	return func(c *command) error {
		_, err := remove[T](c, id, "destroy")
		return err
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
	return failure.Errno(err, syscall.EIO)
}

func (f *File) ioctl(caller Caller, arg uint64) (name string, err error) {
	name = "uverbs ioctl"
	// One read gets the whole of most ioctls: the rest of the header's page is readable too.
	var first [headerSize + 8*attrSize]byte
	got := first[:max(headerSize, min(len(first), pageSize-int(arg%pageSize)))]
	if err := caller.Read(arg, got); err != nil {
		return name, err
	}
	m, n, err := parseHeader(got[:headerSize])
	if err != nil {
		return name, err
	}
	raw := got[headerSize:]
	if n*attrSize <= len(raw) {
		raw = raw[:n*attrSize]
	} else {
		raw = make([]byte, n*attrSize)
		if err := caller.Read(arg+headerSize, raw); err != nil {
			return name, err
		}
	}
	attrs, err := parseAttrs(raw)
	if err != nil {
		return name, err
	}
	h, ok := handlers[m]
	if !ok {
		return name, failure.New(name, syscall.EPROTONOSUPPORT, "object type %#x has no method %#x here", m.object, m.method)
	}
	c := &command{file: f, Caller: caller, request: request{m, attrs}}
	if h.speed == slow {
		caller.MayTakeLong()
	}
	if !f.mu.TryLock() {
		caller.MayTakeLong()
		f.mu.Lock()
	}
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return h.name, failure.New(h.name, syscall.EIO, "the device is closed")
	case f.dead:
		return h.name, failure.New(h.name, syscall.EIO, "the device has failed (event device fatal): the program must open it again")
	case f.ctx == nil && m != method{objDevice, deviceGetContext} && m != method{objDevice, deviceInvokeWrite}:
		return h.name, failure.New(h.name, syscall.EINVAL, "the descriptor has no context yet")
	}
	if err := h.do(c); err != nil {
		return h.name, err
	}
	putAttrs(raw, attrs)
	return h.name, caller.Write(arg+headerSize, raw)
}
