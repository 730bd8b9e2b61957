//go:build linux

package uverbs

// The numbers of objects, methods and attributes of ioctls. They are those of enums in
// <rdma/ib_user_ioctl_cmds.h> and, from driver on, in <rdma/mlx5_user_ioctl_cmds.h>.

// driver is the first object, method and attribute of a driver's own.
const driver = 0x1000

// The objects: uverbs_default_objects and mlx5_ib_objects.
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
	objDM     = 14
	objAsync  = 16

	objDEVX    = driver
	objDEVXObj = driver + 1
	objUmem    = driver + 2
	objEvents  = driver + 5
	objUAR     = driver + 8

	// objHelpers is not the kernel's: libsoftmkey-run.so asks for the page of the device's helpers.
	objHelpers = driver + 0xf0
)

// The methods of the objects.
const (
	deviceInvokeWrite   = 0
	deviceQueryPort     = 2
	deviceGetContext    = 3
	deviceQueryContext  = 4
	deviceQueryGIDTable = 5
	deviceQueryGIDEntry = 6

	pdDestroy = 0
	pdQuery   = driver

	cqCreate  = 0
	cqDestroy = 1

	qpCreate  = 0
	qpDestroy = 1

	srqDestroy = 1

	ahDestroy = 0

	mrRegDM     = 0
	mrDestroy   = 1
	mrAdvise    = 2
	mrQuery     = 3
	mrRegDMABuf = 4

	mwDestroy = 0

	helpersPage = driver

	xrcdDestroy = 0

	dmAlloc = 0
	dmFree  = 1
	dmQuery = driver + 1

	asyncAlloc = 0

	devxOther     = driver
	devxQueryUAR  = driver + 1
	devxQueryEQN  = driver + 2
	devxSubscribe = driver + 3

	devxObjCreate  = driver
	devxObjDestroy = driver + 1
	devxObjModify  = driver + 2
	devxObjQuery   = driver + 3

	umemReg   = driver
	umemDereg = driver + 1

	eventsAlloc = driver

	uarAlloc = driver
	uarFree  = driver + 1
)

// attrHandle is the attribute of the handle in the methods that destroy an object; attrDriverHandle
// is the one of an object of the driver.
const (
	attrHandle       = 0
	attrDriverHandle = driver
)

// The attributes of each method. Those of the driver's structures go with many methods.
const (
	uhwIn  = driver
	uhwOut = driver + 1

	// INVOKE_WRITE carries the commands of the older interface without their headers.
	coreIn   = 0
	coreOut  = 1
	writeCmd = 2

	queryPortNumber = 0
	queryPortAnswer = 1

	getContextVectors = 0
	getContextSupport = 1

	queryContextVectors = 0
	queryContextSupport = 1
	queryContextDriver  = driver

	gidTableEntrySize = 0
	gidTableFlags     = 1
	gidTableEntries   = 2
	gidTableCount     = 3

	gidEntryPort   = 0
	gidEntryIndex  = 1
	gidEntryFlags  = 2
	gidEntryAnswer = 3

	queryPDHandle = driver
	queryPDNumber = driver + 1

	createCQHandle        = 0
	createCQEntries       = 1
	createCQUser          = 2
	createCQChannel       = 3
	createCQVector        = 4
	createCQFlags         = 5
	createCQAnswerEntries = 6
	createCQEvents        = 7

	destroyCQHandle = 0
	destroyCQAnswer = 1

	createQPHandle       = 0
	createQPXRCD         = 1
	createQPPD           = 2
	createQPSRQ          = 3
	createQPSendCQ       = 4
	createQPRecvCQ       = 5
	createQPIndTable     = 6
	createQPUser         = 7
	createQPCap          = 8
	createQPType         = 9
	createQPFlags        = 10
	createQPSourceQPN    = 11
	createQPEvents       = 12
	createQPAnswerCap    = 13
	createQPAnswerNumber = 14

	destroyQPHandle = 0
	destroyQPAnswer = 1

	destroySRQHandle = 0
	destroySRQAnswer = 1

	regDMMRHandle = 0
	regDMMROffset = 1
	regDMMRLength = 2
	regDMMRPD     = 3
	regDMMRAccess = 4
	regDMMRDM     = 5
	regDMMRLKey   = 6
	regDMMRRKey   = 7

	regDMABufHandle = 0
	regDMABufPD     = 1
	regDMABufOffset = 2
	regDMABufLength = 3
	regDMABufIOVA   = 4
	regDMABufFD     = 5
	regDMABufAccess = 6
	regDMABufLKey   = 7
	regDMABufRKey   = 8
	regDMABufFlags  = driver // of mlx5dv_reg_dmabuf_mr

	allocDMHandle    = 0
	allocDMLength    = 1
	allocDMAlignment = 2
	allocDMStart     = driver // of the memory in its first page
	allocDMPage      = driver + 1
	allocDMType      = driver + 2

	queryDMHandle = driver
	queryDMStart  = driver + 1
	queryDMPage   = driver + 2
	queryDMLength = driver + 3

	adviseMRPD     = 0
	adviseMRAdvice = 1
	adviseMRFlags  = 2
	adviseMRList   = 3

	queryMRHandle = 0
	queryMRLKey   = 1
	queryMRRKey   = 2
	queryMRLength = 3
	queryMRIOVA   = 4

	helpersDescriptor = driver

	allocAsyncDescriptor = 0

	devxOtherIn  = driver
	devxOtherOut = driver + 1

	devxQueryUARIndex = driver
	devxQueryUARPage  = driver + 1

	devxQueryEQNVector = driver
	devxQueryEQNNumber = driver + 1

	subscribeChannel  = driver
	subscribeObject   = driver + 1
	subscribeTypes    = driver + 2
	subscribeSignaled = driver + 3 // an eventfd
	subscribeCookie   = driver + 4

	// The creation, change and query of an object of DEVX.
	devxObjHandle = driver
	devxObjIn     = driver + 1
	devxObjOut    = driver + 2

	regUmemHandle = driver
	regUmemAddr   = driver + 1
	regUmemLength = driver + 2
	regUmemAccess = driver + 3
	regUmemNumber = driver + 4
	regUmemDMABuf = driver + 6

	allocEventsDescriptor = driver
	allocEventsFlags      = driver + 1

	allocUARHandle = driver
	allocUARType   = driver + 1
	allocUAROffset = driver + 2
	allocUARLength = driver + 3
	allocUARPage   = driver + 4
)

// noAttr is the number of no attribute: commands of the older interface have none.
const noAttr = 0xffff
