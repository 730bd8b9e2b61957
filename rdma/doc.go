// Package rdma is the vocabulary of RDMA programs: states, operations, statuses, flags,
// attributes and completions, with the numeric values of <infiniband/verbs.h>.
//
// The package imports nothing of this module, and mkey, roce, verbs and cm use
// its types. Package verbs has aliases for these types and constants, so a
// program that uses verbs needs no second import. It has no aliases for the
// following names, because its devices do not have these features or its
// programs do not need the names:
//
//   - the types [GSI], [XRCSend], [XRCRecv], [DCI] and [DCT] of queue pairs;
//   - memory windows: [MWBind], [WRBindMW], [OpBindMW];
//   - the operations of send requests, [WROp] and [WRWrite] to [WRNop]: a Chain has a method
//     for each;
//   - alternate paths, and queues that are resized: [AttrAltPath], [AttrPathMigState], [AttrCap];
//   - events of ports and of the whole device, which only adapters with a firmware raise:
//     [EventPortActive], [EventPortErr], [EventGIDChange], [EventDeviceFatal];
//   - [FlagNames], which only packages below verbs use.
//
// The package contains only values, which can be printed, compared and copied.
package rdma
