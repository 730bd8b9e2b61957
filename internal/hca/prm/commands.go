package prm

import "fmt"

// Command is the opcode of a command, as in enum mlx5_ifc of Linux (MLX5_CMD_OP_*). What is known of a
// command is in its row of the table [commands]; the packages that execute it add a handler.
type Command uint16

// The opcodes, a line for each kind of object.
const (
	CmdQueryHCACap, CmdQueryAdapter                                              Command = 0x100, 0x101
	CmdInitHCA, CmdTeardownHCA, CmdEnableHCA, CmdDisableHCA                      Command = 0x102, 0x103, 0x104, 0x105
	CmdQueryPages, CmdManagePages, CmdSetHCACap                                  Command = 0x107, 0x108, 0x109
	CmdQueryISSI, CmdSetISSI, CmdSetDriverVersion                                Command = 0x10a, 0x10b, 0x10d
	CmdCreateMKey, CmdQueryMKey, CmdDestroyMKey, CmdQuerySpecial                 Command = 0x200, 0x201, 0x202, 0x203
	CmdAllocMEMIC, CmdDeallocMEMIC                                               Command = 0x205, 0x206
	CmdCreateEQ, CmdDestroyEQ, CmdQueryEQ                                        Command = 0x301, 0x302, 0x303
	CmdCreateCQ, CmdDestroyCQ, CmdQueryCQ, CmdModifyCQ                           Command = 0x400, 0x401, 0x402, 0x403
	CmdCreateQP, CmdDestroyQP, CmdQueryQP                                        Command = 0x500, 0x501, 0x50b
	CmdRst2InitQP, CmdInit2RTRQP, CmdRTR2RTSQP, CmdRTS2RTSQP, CmdSQErr2RTSQP     Command = 0x502, 0x503, 0x504, 0x505, 0x506
	CmdToErrQP, CmdToRstQP, CmdSQD2RTSQP, CmdInit2InitQP                         Command = 0x507, 0x50a, 0x50c, 0x50e
	CmdCreatePSV, CmdDestroyPSV                                                  Command = 0x600, 0x601
	CmdCreateSRQ                                                                 Command = 0x700
	CmdCreateXRCSRQ, CmdDestroyXRCSRQ, CmdQueryXRCSRQ, CmdArmXRCSRQ              Command = 0x705, 0x706, 0x707, 0x708
	CmdCreateDCT, CmdDestroyDCT, CmdDrainDCT, CmdQueryDCT                        Command = 0x710, 0x711, 0x712, 0x713
	CmdCreateXRQ                                                                 Command = 0x717
	CmdQueryVPortState, CmdQueryESWContext, CmdQueryNICVPort, CmdModifyNICVPort  Command = 0x750, 0x752, 0x754, 0x755
	CmdQueryRoCEAddress, CmdSetRoCEAddress, CmdQueryHCAVPort, CmdQueryPKey       Command = 0x760, 0x761, 0x762, 0x765
	CmdQueryVNICEnv, CmdQueryVPortCounter                                        Command = 0x76f, 0x770
	CmdAllocQCounter, CmdDeallocQCounter, CmdQueryQCounter                       Command = 0x771, 0x772, 0x773
	CmdCreateScheduling                                                          Command = 0x782
	CmdAllocPD, CmdDeallocPD, CmdAllocUAR, CmdDeallocUAR                         Command = 0x800, 0x801, 0x802, 0x803
	CmdAccessReg, CmdAttachMCG, CmdDetachMCG, CmdNop                             Command = 0x805, 0x806, 0x807, 0x80d
	CmdAllocXRCD, CmdDeallocXRCD, CmdAllocDomain, CmdDeallocDomain               Command = 0x80e, 0x80f, 0x816, 0x817
	CmdQueryCongStatus, CmdQueryCongParams, CmdQueryCongStats                    Command = 0x822, 0x824, 0x826
	CmdAddVXLANPort, CmdSetL2Entry, CmdQueryLAG                                  Command = 0x827, 0x829, 0x842
	CmdCreateTIR, CmdModifyTIR, CmdDestroyTIR                                    Command = 0x900, 0x901, 0x902
	CmdCreateSQ, CmdModifySQ, CmdDestroySQ, CmdQuerySQ                           Command = 0x904, 0x905, 0x906, 0x907
	CmdCreateRQ, CmdModifyRQ, CmdDestroyRQ, CmdQueryRQ                           Command = 0x908, 0x909, 0x90a, 0x90b
	CmdCreateRMP, CmdModifyRMP, CmdDestroyRMP, CmdQueryRMP                       Command = 0x90c, 0x90d, 0x90e, 0x90f
	CmdCreateTIS, CmdModifyTIS, CmdDestroyTIS                                    Command = 0x912, 0x913, 0x914
	CmdCreateRQT, CmdModifyRQT, CmdDestroyRQT                                    Command = 0x916, 0x917, 0x918
	CmdSetFlowRoot, CmdCreateFlowTable, CmdDestroyFlowTable, CmdModifyFlowTable  Command = 0x92f, 0x930, 0x931, 0x93c
	CmdCreateFlowGroup, CmdDestroyFlowGroup, CmdSetFlowEntry, CmdDeleteFlowEntry Command = 0x933, 0x934, 0x936, 0x938
	CmdAllocFlowCounter, CmdAllocReformat, CmdAllocModifyHeader                  Command = 0x939, 0x93d, 0x940
	CmdCreateObject, CmdModifyObject, CmdQueryObject, CmdDestroyObject           Command = 0xa00, 0xa01, 0xa02, 0xa03
	CmdCreateUser, CmdDestroyUser, CmdCreateUmem, CmdDestroyUmem                 Command = 0xa04, 0xa06, 0xa08, 0xa0a
)

// Effect is what a command does to an object.
type Effect uint8

// The effects.
const (
	General  Effect = iota // none: the command is about the function or its port
	Makes                  // an object, or more than one of a kind
	Destroys               // an object
	Changes                // an object
	Queries                // an object
)

// Flags are the callers of a command, and when and how it may be executed.
type Flags uint8

// The flags.
const (
	ByDriver  Flags = 1 << iota // a guest's kernel driver
	ByUser                      // a program of a guest, for which its driver executes the command with a user's number
	ByProgram                   // a program under softmkey run, by DEVX or by a library that uses commands
	ByDEVX                      // the kernel's DEVX lets programs send it; without ByProgram the adapter has it not for them
	Early                       // also before ENABLE_HCA and after TEARDOWN_HCA
	Quick                       // it changes tables only: neither queues nor memory of the caller are waited for

	byGuest = ByDriver | ByUser
	byAll   = byGuest | ByProgram | ByDEVX
)

// Sizes are lengths in bytes: the least and the most that a command has, and the room that its answer
// needs. Without sizes every length is taken, and fields beyond the end are 0.
type Sizes struct{ In, Most, Out int }

// Spec is a row of the table: a command.
type Spec struct {
	Name string // in Linux
	Does Effect
	Object
	Sizes
	Destroyer Command // of what the command makes; 0: another command or none
	Bytes     int64   // about the memory that each object it makes takes; 0: the object has a place in a small table
	Flags
}

// Object is the kind of the object that a command is about, in words; empty for General.
type Object string

// The objects that packages ask for.
const (
	OfQP  Object = "QP"
	OfDCT Object = "DCT"
	OfCQ  Object = "CQ"
	OfRMP Object = "RMP"
)

// CommandHeaderSize is the size of a command without fields of its own, and of such an answer.
const CommandHeaderSize = 16

// The most bytes of a command with a list of pages, and the frequent sizes.
const listed = 1 << 20

var (
	bare      = Sizes{CommandHeaderSize, CommandHeaderSize, CommandHeaderSize}
	qpContext = Sizes{0x100, 0x1d0, CommandHeaderSize} // with a QP's context, and its extension
	free      = Sizes{}
)

// making returns the sizes of a command that makes an object and has in bytes before its lists.
func making(in int) Sizes { return Sizes{in, listed, CommandHeaderSize} }

// answering returns the sizes of a command without fields whose answer has out bytes.
func answering(out int) Sizes { return Sizes{CommandHeaderSize, CommandHeaderSize, out} }

// commands are the commands that a device has, and those that DEVX lets programs send beside them.
var commands = map[Command]Spec{
	CmdQueryHCACap:       {"QUERY_HCA_CAP", General, "", bare, 0, 0, byAll | Early},
	CmdQueryAdapter:      {"QUERY_ADAPTER", General, "", free, 0, 0, byGuest | ByDEVX},
	CmdInitHCA:           {"INIT_HCA", General, "", free, 0, 0, ByDriver},
	CmdTeardownHCA:       {"TEARDOWN_HCA", General, "", free, 0, 0, ByDriver | Early},
	CmdEnableHCA:         {"ENABLE_HCA", General, "", free, 0, 0, ByDriver | Early},
	CmdDisableHCA:        {"DISABLE_HCA", General, "", free, 0, 0, ByDriver | Early},
	CmdQueryPages:        {"QUERY_PAGES", General, "", free, 0, 0, ByDriver | Early},
	CmdManagePages:       {"MANAGE_PAGES", General, "", free, 0, 0, ByDriver | Early},
	CmdSetHCACap:         {"SET_HCA_CAP", General, "", free, 0, 0, ByDriver | Early},
	CmdQueryISSI:         {"QUERY_ISSI", General, "", free, 0, 0, byGuest | ByDEVX | Early},
	CmdSetISSI:           {"SET_ISSI", General, "", free, 0, 0, ByDriver | Early},
	CmdSetDriverVersion:  {"SET_DRIVER_VERSION", General, "", free, 0, 0, ByDriver},
	CmdCreateMKey:        {"CREATE_MKEY", Makes, "memory key with index", making(0x50), CmdDestroyMKey, 512, byAll | Quick},
	CmdQueryMKey:         {"QUERY_MKEY", Queries, "memory key with index", free, 0, 0, ByDEVX},
	CmdDestroyMKey:       {"DESTROY_MKEY", Destroys, "memory key with index", bare, 0, 0, byAll | Quick},
	CmdQuerySpecial:      {"QUERY_SPECIAL_CONTEXTS", General, "", free, 0, 0, byGuest | ByDEVX},
	CmdAllocMEMIC:        {"ALLOC_MEMIC", General, "", Sizes{0x20, 0x20, CommandHeaderSize}, 0, 0, ByDriver},
	CmdDeallocMEMIC:      {"DEALLOC_MEMIC", General, "", Sizes{0x20, 0x20, CommandHeaderSize}, 0, 0, ByDriver},
	CmdCreateEQ:          {"CREATE_EQ", Makes, "EQ", free, CmdDestroyEQ, 0, ByDriver},
	CmdDestroyEQ:         {"DESTROY_EQ", Destroys, "EQ", free, 0, 0, ByDriver},
	CmdQueryEQ:           {"QUERY_EQ", Queries, "EQ", free, 0, 0, ByDriver},
	CmdCreateCQ:          {"CREATE_CQ", Makes, OfCQ, making(0x60), CmdDestroyCQ, 1024, byAll},
	CmdDestroyCQ:         {"DESTROY_CQ", Destroys, OfCQ, bare, 0, 0, byAll},
	CmdQueryCQ:           {"QUERY_CQ", Queries, OfCQ, answering(0x50), 0, 0, byGuest | ByDEVX},
	CmdModifyCQ:          {"MODIFY_CQ", Changes, OfCQ, making(0x30), 0, 0, byGuest | ByDEVX},
	CmdCreateQP:          {"CREATE_QP", Makes, OfQP, making(0x110), CmdDestroyQP, 4096, byAll},
	CmdDestroyQP:         {"DESTROY_QP", Destroys, OfQP, bare, 0, 0, byAll},
	CmdQueryQP:           {"QUERY_QP", Queries, OfQP, answering(0x100), 0, 0, byAll},
	CmdRst2InitQP:        {"RST2INIT_QP", Changes, OfQP, qpContext, 0, 0, byAll},
	CmdInit2RTRQP:        {"INIT2RTR_QP", Changes, OfQP, qpContext, 0, 0, byAll},
	CmdRTR2RTSQP:         {"RTR2RTS_QP", Changes, OfQP, qpContext, 0, 0, byAll},
	CmdRTS2RTSQP:         {"RTS2RTS_QP", Changes, OfQP, qpContext, 0, 0, byGuest | ByDEVX},
	CmdSQErr2RTSQP:       {"SQERR2RTS_QP", Changes, OfQP, qpContext, 0, 0, byGuest | ByDEVX},
	CmdToErrQP:           {"2ERR_QP", Changes, OfQP, bare, 0, 0, byAll},
	CmdToRstQP:           {"2RST_QP", Changes, OfQP, bare, 0, 0, byAll},
	CmdSQD2RTSQP:         {"SQD_RTS_QP", Changes, OfQP, qpContext, 0, 0, byGuest},
	CmdInit2InitQP:       {"INIT2INIT_QP", Changes, OfQP, Sizes{0x20, 0x1d0, CommandHeaderSize}, 0, 0, byAll},
	CmdCreatePSV:         {"CREATE_PSV", Makes, "PSV", answering(0x20), CmdDestroyPSV, 256, byAll | Quick},
	CmdDestroyPSV:        {"DESTROY_PSV", Destroys, "PSV", bare, 0, 0, byAll | Quick},
	CmdCreateSRQ:         {"CREATE_SRQ", Makes, "SRQ", free, 0, 0, ByDEVX},
	CmdCreateXRCSRQ:      {"CREATE_XRC_SRQ", Makes, "XRC SRQ", making(0x110), CmdDestroyXRCSRQ, 2048, byGuest | ByDEVX},
	CmdDestroyXRCSRQ:     {"DESTROY_XRC_SRQ", Destroys, "XRC SRQ", bare, 0, 0, byGuest},
	CmdQueryXRCSRQ:       {"QUERY_XRC_SRQ", Queries, "XRC SRQ", answering(0x70), 0, 0, byGuest},
	CmdArmXRCSRQ:         {"ARM_XRC_SRQ", Changes, "XRC SRQ", bare, 0, 0, byGuest},
	CmdCreateDCT:         {"CREATE_DCT", Makes, OfDCT, making(0x50), CmdDestroyDCT, 0, ByProgram | ByDEVX},
	CmdDestroyDCT:        {"DESTROY_DCT", Destroys, OfDCT, bare, 0, 0, ByProgram | ByDEVX},
	CmdDrainDCT:          {"DRAIN_DCT", Changes, OfDCT, bare, 0, 0, ByProgram | ByDEVX},
	CmdQueryDCT:          {"QUERY_DCT", Queries, OfDCT, answering(0x50), 0, 0, ByProgram | ByDEVX},
	CmdCreateXRQ:         {"CREATE_XRQ", Makes, "XRQ", free, 0, 0, ByDEVX},
	CmdQueryVPortState:   {"QUERY_VPORT_STATE", General, "", free, 0, 0, byGuest | ByDEVX},
	CmdQueryESWContext:   {"QUERY_ESW_VPORT_CONTEXT", General, "", free, 0, 0, ByDEVX},
	CmdQueryNICVPort:     {"QUERY_NIC_VPORT_CONTEXT", General, "", answering(0x14), 0, 0, byAll},
	CmdModifyNICVPort:    {"MODIFY_NIC_VPORT_CONTEXT", General, "", free, 0, 0, ByDriver},
	CmdQueryRoCEAddress:  {"QUERY_ROCE_ADDRESS", General, "", free, 0, 0, ByDEVX},
	CmdSetRoCEAddress:    {"SET_ROCE_ADDRESS", General, "", free, 0, 0, ByDriver},
	CmdQueryHCAVPort:     {"QUERY_HCA_VPORT_CONTEXT", General, "", free, 0, 0, ByDEVX},
	CmdQueryPKey:         {"QUERY_HCA_VPORT_PKEY", General, "", free, 0, 0, ByDriver},
	CmdQueryVNICEnv:      {"QUERY_VNIC_ENV", General, "", free, 0, 0, ByDriver | ByDEVX},
	CmdQueryVPortCounter: {"QUERY_VPORT_COUNTER", General, "", free, 0, 0, ByDriver | ByDEVX},
	CmdAllocQCounter:     {"ALLOC_Q_COUNTER", Makes, "counter set", free, CmdDeallocQCounter, 0, ByDriver | ByDEVX},
	CmdDeallocQCounter:   {"DEALLOC_Q_COUNTER", Destroys, "counter set", free, 0, 0, ByDriver},
	CmdQueryQCounter:     {"QUERY_Q_COUNTER", General, "", free, 0, 0, ByDriver | ByDEVX},
	CmdCreateScheduling:  {"CREATE_SCHEDULING_ELEMENT", Makes, "scheduling element", free, 0, 0, ByDEVX},
	CmdAllocPD:           {"ALLOC_PD", Makes, "PD", bare, CmdDeallocPD, 256, byAll},
	CmdDeallocPD:         {"DEALLOC_PD", Destroys, "PD", bare, 0, 0, byAll},
	CmdAllocUAR:          {"ALLOC_UAR", Makes, "UAR", free, CmdDeallocUAR, 0, byGuest},
	CmdDeallocUAR:        {"DEALLOC_UAR", Destroys, "UAR", free, 0, 0, byGuest},
	CmdAccessReg:         {"ACCESS_REG", General, "", free, 0, 0, ByDriver | ByDEVX | Early},
	CmdAttachMCG:         {"ATTACH_TO_MCG", Makes, "membership", Sizes{0x20, 0x20, CommandHeaderSize}, 0, 0, byGuest | ByDEVX},
	CmdDetachMCG:         {"DETACH_FROM_MCG", Destroys, "membership", Sizes{0x20, 0x20, CommandHeaderSize}, 0, 0, byGuest},
	CmdNop:               {"NOP", General, "", free, 0, 0, ByDriver | ByDEVX},
	CmdAllocXRCD:         {"ALLOC_XRCD", Makes, "XRC domain", bare, CmdDeallocXRCD, 512, ByDriver | ByDEVX},
	CmdDeallocXRCD:       {"DEALLOC_XRCD", Destroys, "XRC domain", bare, 0, 0, ByDriver},
	CmdAllocDomain:       {"ALLOC_TRANSPORT_DOMAIN", Makes, "transport domain", bare, CmdDeallocDomain, 128, byAll},
	CmdDeallocDomain:     {"DEALLOC_TRANSPORT_DOMAIN", Destroys, "transport domain", bare, 0, 0, byAll},
	CmdQueryCongStatus:   {"QUERY_CONG_STATUS", General, "", free, 0, 0, ByDEVX},
	CmdQueryCongParams:   {"QUERY_CONG_PARAMS", General, "", free, 0, 0, ByDEVX},
	CmdQueryCongStats:    {"QUERY_CONG_STATISTICS", General, "", free, 0, 0, ByDEVX},
	CmdAddVXLANPort:      {"ADD_VXLAN_UDP_DPORT", Makes, "VXLAN port", free, 0, 0, ByDEVX},
	CmdSetL2Entry:        {"SET_L2_TABLE_ENTRY", Makes, "L2 entry", free, 0, 0, ByDEVX},
	CmdQueryLAG:          {"QUERY_LAG", General, "", bare, 0, 0, byAll},
	CmdCreateTIR:         {"CREATE_TIR", Makes, "TIR", free, CmdDestroyTIR, 512, ByDriver | ByDEVX},
	CmdModifyTIR:         {"MODIFY_TIR", Changes, "TIR", free, 0, 0, ByDriver},
	CmdDestroyTIR:        {"DESTROY_TIR", Destroys, "TIR", free, 0, 0, ByDriver},
	CmdCreateSQ:          {"CREATE_SQ", Makes, "SQ", free, CmdDestroySQ, 512, ByDriver | ByDEVX},
	CmdModifySQ:          {"MODIFY_SQ", Changes, "SQ", free, 0, 0, ByDriver},
	CmdDestroySQ:         {"DESTROY_SQ", Destroys, "SQ", free, 0, 0, ByDriver},
	CmdQuerySQ:           {"QUERY_SQ", Queries, "SQ", free, 0, 0, ByDriver},
	CmdCreateRQ:          {"CREATE_RQ", Makes, "RQ", free, CmdDestroyRQ, 512, ByDriver | ByDEVX},
	CmdModifyRQ:          {"MODIFY_RQ", Changes, "RQ", free, 0, 0, ByDriver},
	CmdDestroyRQ:         {"DESTROY_RQ", Destroys, "RQ", free, 0, 0, ByDriver},
	CmdQueryRQ:           {"QUERY_RQ", Queries, "RQ", free, 0, 0, ByDriver},
	CmdCreateRMP:         {"CREATE_RMP", Makes, OfRMP, making(0x88), CmdDestroyRMP, 2048, byAll},
	CmdModifyRMP:         {"MODIFY_RMP", Changes, OfRMP, making(0x110), 0, 0, byGuest | ByDEVX},
	CmdDestroyRMP:        {"DESTROY_RMP", Destroys, OfRMP, bare, 0, 0, byAll},
	CmdQueryRMP:          {"QUERY_RMP", Queries, OfRMP, answering(0x110), 0, 0, byGuest | ByDEVX},
	CmdCreateTIS:         {"CREATE_TIS", Makes, "TIS", free, CmdDestroyTIS, 128, ByDriver | ByDEVX},
	CmdModifyTIS:         {"MODIFY_TIS", Changes, "TIS", free, 0, 0, ByDriver},
	CmdDestroyTIS:        {"DESTROY_TIS", Destroys, "TIS", free, 0, 0, ByDriver},
	CmdCreateRQT:         {"CREATE_RQT", Makes, "RQT", free, CmdDestroyRQT, 256, ByDriver | ByDEVX},
	CmdModifyRQT:         {"MODIFY_RQT", Changes, "RQT", free, 0, 0, ByDriver},
	CmdDestroyRQT:        {"DESTROY_RQT", Destroys, "RQT", free, 0, 0, ByDriver},
	CmdSetFlowRoot:       {"SET_FLOW_TABLE_ROOT", General, "", free, 0, 0, ByDriver},
	CmdCreateFlowTable:   {"CREATE_FLOW_TABLE", Makes, "flow table", free, CmdDestroyFlowTable, 0, ByDriver | ByDEVX},
	CmdDestroyFlowTable:  {"DESTROY_FLOW_TABLE", Destroys, "flow table", free, 0, 0, ByDriver},
	CmdModifyFlowTable:   {"MODIFY_FLOW_TABLE", Changes, "flow table", free, 0, 0, ByDriver},
	CmdCreateFlowGroup:   {"CREATE_FLOW_GROUP", Makes, "flow group", free, CmdDestroyFlowGroup, 0, ByDriver | ByDEVX},
	CmdDestroyFlowGroup:  {"DESTROY_FLOW_GROUP", Destroys, "flow group", free, 0, 0, ByDriver},
	CmdSetFlowEntry:      {"SET_FLOW_TABLE_ENTRY", Makes, "flow entry", free, CmdDeleteFlowEntry, 0, ByDriver | ByDEVX},
	CmdDeleteFlowEntry:   {"DELETE_FLOW_TABLE_ENTRY", Destroys, "flow entry", free, 0, 0, ByDriver},
	CmdAllocFlowCounter:  {"ALLOC_FLOW_COUNTER", Makes, "flow counter", free, 0, 0, ByDEVX},
	CmdAllocReformat:     {"ALLOC_PACKET_REFORMAT_CONTEXT", Makes, "packet reformat", free, 0, 0, ByDEVX},
	CmdAllocModifyHeader: {"ALLOC_MODIFY_HEADER_CONTEXT", Makes, "header change", free, 0, 0, ByDEVX},
	CmdCreateObject:      {"CREATE_GENERAL_OBJECT", Makes, "object", making(CommandHeaderSize), CmdDestroyObject, 1024, byAll | Quick},
	CmdModifyObject:      {"MODIFY_GENERAL_OBJECT", Changes, "object", free, 0, 0, ByDEVX},
	CmdQueryObject:       {"QUERY_GENERAL_OBJECT", Queries, "object", bare, 0, 0, byAll},
	CmdDestroyObject:     {"DESTROY_GENERAL_OBJECT", Destroys, "object", bare, 0, 0, byAll | Quick},
	CmdCreateUser:        {"CREATE_UCTX", Makes, "user", free, CmdDestroyUser, 0, ByDriver},
	CmdDestroyUser:       {"DESTROY_UCTX", Destroys, "user", free, 0, 0, ByDriver},
	CmdCreateUmem:        {"CREATE_UMEM", Makes, "umem", making(0x30), CmdDestroyUmem, 512, byGuest | ByProgram},
	CmdDestroyUmem:       {"DESTROY_UMEM", Destroys, "umem", bare, 0, 0, byGuest | ByProgram},
}

// Spec returns the command's row of the table, or an empty one.
func (c Command) Spec() Spec { return commands[c] }

// String returns the command's name.
func (c Command) String() string {
	if s, ok := commands[c]; ok {
		return s.Name
	}
	return fmt.Sprintf("command(%#x)", uint16(c))
}

// Has reports whether all of the flags are set.
func (f Flags) Has(all Flags) bool { return f&all == all }
